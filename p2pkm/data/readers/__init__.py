"""Readers of data files: text, NumPy, Arrow, LEAF and AnnData."""
