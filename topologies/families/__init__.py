"""Graph families, one function each."""
