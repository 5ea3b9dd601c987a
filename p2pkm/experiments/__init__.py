"""Experiments: configuration, single runs, resumption, studies, plans, conformance checks and estimators."""
