"""Why a run ends before its rounds are over, and the exit codes of a program that was asked to stop."""

INTERRUPTED, TERMINATED = 130, 143  # exit codes after SIGINT and SIGTERM
STOPPED = {"interrupted": INTERRUPTED, "terminated": TERMINATED}  # why a run was stopped, and its exit code
