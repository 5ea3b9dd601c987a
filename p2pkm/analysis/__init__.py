"""Statistics of the rows of a study: means, verdicts, explanations, rankings, LaTeX tables."""
