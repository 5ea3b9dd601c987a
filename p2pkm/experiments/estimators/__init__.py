"""Clustering behind scikit-learn's interface."""
