"""Reasons why a run ended early or without a result, and their exit codes."""

# Exit codes of a shell after SIGINT and SIGTERM: 128 plus the signal number.
INTERRUPTED = 130
TERMINATED = 143
STOPPED = {"interrupted": INTERRUPTED, "terminated": TERMINATED}
# Exit code of a run in which devices with points ended without centroids, so that their points have no cluster.
WITHOUT_CENTROIDS = 7
