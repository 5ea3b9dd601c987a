"""Tests that take hours; a sample of each is in the tests that always run."""
