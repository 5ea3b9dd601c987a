"""An option, key or value of version 0.1.0 is refused with its name of today."""

import pytest

from p2pkm.channel.sampled_faults import Faults
from p2pkm.cli.options import with_options
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import RENAMED, parameters
from p2pkm.engine.run_options import OPTIONS, RunOptions
from tests.support.each import each
from tests.support.run_cli import here

WORDS = {old: new for old, new in RENAMED.items() if new in OPTIONS}
FLAGS = (*WORDS, "no_central")


@each("old", FLAGS)
def test_an_old_option_is_told_its_new_name(old):
    ending = here(f"--{old.replace('_', '-')}", "1")
    assert ending.code == 2
    assert f"It is called --{RENAMED[old].replace('_', '-')} now." in ending.err


@each("old", WORDS)
def test_an_old_key_of_a_file_is_told_its_new_name(old):
    with pytest.raises(ExperimentError, match=f"It is called '{RENAMED[old]}' now"):
        RunOptions.from_mapping({old: 1}, "a file")


@each("old", {old: new for old, new in RENAMED.items() if new in parameters(Faults)})
def test_an_old_key_of_faults_is_told_its_new_name(old):
    with pytest.raises(ExperimentError, match=f"unknown key '{old}' .* It is called '{RENAMED[old]}' now"):
        Faults.of(f"{old}=0.1")


def test_recipe_groups_became_an_option_of_its_own():
    for words in (("--recipe", "groups"), ("--recipe=groups",)):
        assert "It is called --groups now." in here(*words).err
    assert "It is called --init now." in here("--recipe", "global").err
    with pytest.raises(ExperimentError, match="It is called 'groups' now"):
        RunOptions.from_mapping({"recipe": "groups"}, "a file")


def test_no_old_name_is_an_option_still():
    command = with_options(lambda: None)
    assert not {one.name for one in command.__click_params__} & set(RENAMED)
