"""time_varying."""
