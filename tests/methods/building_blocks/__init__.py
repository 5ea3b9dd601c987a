"""building_blocks."""
