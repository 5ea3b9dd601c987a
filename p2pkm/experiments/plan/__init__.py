"""Resource estimates of a run before it starts: memory, messages, bytes and seconds."""
