"""Conformance checks for methods: the contract of a method, tested in runs of every kind."""
