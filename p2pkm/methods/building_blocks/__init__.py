"""Building blocks that several methods share: sums, trees, matchings, encodings and rules."""
