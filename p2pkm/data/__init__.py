"""Data: where points come from and which device gets them."""
