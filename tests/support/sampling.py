"""Sampling of the cases of long tests for the default run."""

import pytest


def thin(cases, every):
    """Mark all cases as slow except one of every `every`.

    With the product of two lists all entries of both stay, if `every` and the length of the second have no divisor in
    common.
    """
    return [case if i % every == 0 else _slow(case) for i, case in enumerate(cases)]


def first_of_each(cases, kind):
    """Mark all cases as slow except the first of each kind, which `kind` returns for a case."""
    cases, first = list(cases), {}
    for i, case in enumerate(cases):
        first.setdefault(kind(case), i)
    return [case if i in first.values() else _slow(case) for i, case in enumerate(cases)]


def _slow(case):
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
