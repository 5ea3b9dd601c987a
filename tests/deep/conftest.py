"""What tests of deep methods with and without a server share."""

import pytest

from tests.support.toy_network import WIDTH, plug

_DIGIT = 64  # pixels


@pytest.fixture(scope="session")
def jax():
    return pytest.importorskip("jax", reason="needs the extra deep")


@pytest.fixture(params=["toy", pytest.param("jax", marks=pytest.mark.slow)])
def n_parameters(request, monkeypatch):
    """Return the number of parameters of a network for digits; all else is the same with a toy, in a trice."""
    if request.param == "jax":
        request.getfixturevalue("jax")
        return 22816
    plug(monkeypatch)
    return _DIGIT * WIDTH
