"""Methods without a server: devices exchange messages with their neighbors only."""
