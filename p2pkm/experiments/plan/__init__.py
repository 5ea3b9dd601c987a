"""What a run will need, said before it starts: memory, messages, seconds."""
