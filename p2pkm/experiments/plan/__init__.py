"""What a run would need, estimated before it starts: memory, messages, bytes, seconds."""
