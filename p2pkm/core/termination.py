"""Reasons to stop a run early, and their exit codes."""

# Exit codes of a shell after SIGINT and SIGTERM: 128 plus the signal number.
INTERRUPTED = 130
TERMINATED = 143
STOPPED = {"interrupted": INTERRUPTED, "terminated": TERMINATED}
