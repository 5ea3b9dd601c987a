"""Sampling of the cases of long tests for the default run."""

import pytest


def thin(cases, every):
    """Mark all cases as slow except one of every `every`."""
    return [
        case if i % every == 0
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for i, case in enumerate(cases)
    ]  # fmt: skip
