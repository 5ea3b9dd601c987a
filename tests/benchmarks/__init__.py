"""Figures that are measured, not asserted; each module is run by hand."""
