"""What a method declares, checked against what it does in runs of every kind."""
