"""channel."""
