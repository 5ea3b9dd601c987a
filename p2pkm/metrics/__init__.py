"""Everything that is measured from outside: cost ratios, scores, disagreement, the closing summary."""
