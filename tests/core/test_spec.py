"""Values that are a number or one of a few words."""

from typing import Literal

import pytest

from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import convert

KIND = float | Literal["auto", "rehearsal"] | None


@pytest.mark.parametrize(("text", "expected"), [("auto", "auto"), ("rehearsal", "rehearsal"), ("3", 3.0), (2, 2.0),
                                                ("none", None), (None, None)])  # fmt: skip
def test_a_number_or_a_word(text, expected):
    found = convert(text, KIND, "coupling")
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize("text", ["automatic", "", "nan", True])
def test_neither_number_nor_word(text):
    with pytest.raises(ExperimentError, match=r"coupling is .*; expected a .*number, or auto, or rehearsal"):
        convert(text, KIND, "coupling")
