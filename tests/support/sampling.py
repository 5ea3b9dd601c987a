"""Cases of long tests of which the default run takes a sample."""

import pytest


def thin(cases, every):
    """Return the cases as parameters: every so many-th as it is, the others marked slow."""
    return [
        case if i % every == 0
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for i, case in enumerate(cases)
    ]  # fmt: skip
