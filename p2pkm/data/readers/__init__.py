"""Files of points, one or several: text, NumPy, Arrow, LEAF and AnnData."""
