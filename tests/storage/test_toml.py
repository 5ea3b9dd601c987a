"""Options from a file: how large numbers and files may be."""

import pytest

from p2pkm.core.errors import ExperimentError
from p2pkm.storage.toml import _LARGEST, read_toml


def test_numbers_of_64_bits_and_files_of_16_kilobytes_are_read_and_no_larger_ones(tmp_path):
    path = tmp_path / "run.toml"
    for text, words in (
        (f"a = {2**64 - 1}", ""),
        (f"a = {2**64}", "'a' is too large"),
        (f"a = {-(2**64)}", "'a' is too large"),
        ("#" * _LARGEST, ""),
        ("#" * (_LARGEST + 1), "it has more than 16384 bytes"),
    ):
        path.write_text(text)
        if words:
            with pytest.raises(ExperimentError, match=words):
                read_toml(str(path))
        else:
            assert read_toml(str(path)) == ({"a": 2**64 - 1} if "a" in text else {})


@pytest.mark.parametrize("text", ["[a]\nb = 1", "a = [1, 2]"])
def test_a_file_of_options_has_one_level(tmp_path, text):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(ExperimentError, match="one level of keys"):
        read_toml(str(tmp_path / "run.toml"))
