"""Benchmark of the methods: suites of tasks, entries, references, and the table of all runs."""
