"""What several methods share: averaging, flooding, spanning trees, robust aggregation."""
