"""An option that is given twice, or without its value, is an error in every command."""

import click
import pytest

from p2pkm.cli.options import CheckedOption
from p2pkm.cli.run import command as root
from p2pkm.engine.run_options import RunOptions
from tests.support.each import each
from tests.support.run_cli import here


def list_commands(command=root, path=()):
    """Yield all commands with their names."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from list_commands(inner, (*path, name))


COMMANDS = [pytest.param(command, id="-".join(path) or "p2pkm") for path, command in list_commands()]


def parse(command, *words):
    with pytest.raises(click.UsageError) as raised:
        command.make_context("p2pkm", list(words))
    return raised.value.message


def is_eager(option):
    return option.is_eager or option.name == "version"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.sample(5)
def test_every_option_of_every_command_is_given_once(command):
    options = [option for option in command.params if isinstance(option, click.Option) and not is_eager(option)]
    assert all(isinstance(option, CheckedOption) for option in options)
    for option in options:
        # All names of an option, such as -k and --clusters, with and without =.
        for name in option.opts:
            long = max(option.opts, key=len)
            if option.is_flag:
                assert f"{long} is given 2 times" in parse(command, name, long)
                for other in option.secondary_opts:
                    assert f"{long} is combined with {other}" in parse(command, name, other)
            elif option.multiple:
                assert f"{long} is followed by {name}" in parse(command, name, "1", name, name)
            else:
                assert f"{long} is set twice, to 1 and to 2" in parse(command, name, "1", f"{long}=2")
                assert f"{long} is set 3 times, to 1 and to 1 and to 1" in parse(command, *[name, "1"] * 3)
                assert f"{long} is followed by {name}" in parse(command, name, name)


def test_a_value_may_be_the_name_of_an_argument():
    assert root.commands["sweep"].make_context("sweep", ["s.toml", "--out", "study"]).params["out"] == "study"


def test_lists_may_be_repeated_where_the_help_says_so():
    context = root.commands["compare"].make_context("compare", ["--graph", "ring", "--graph", "star"])
    assert context.params["graphs"] == ("ring", "star")


@each(
    ("words", "message"),
    [
        (
            ["-k", "3", "--clusters", "4"],
            "--clusters is set twice, to 3 and to 4; expected one value. Use --clusters 4",
        ),
        (["--seeds", "0", "--seeds=1-3"], "expected one list. Use --seeds 0,1-3"),
        (["run", "-k3", "-k4"], "--clusters is set twice"),
        (["--algorithm", "gtvmin:coupling=1,coupling=2"], "give coupling once"),
        (["--faults", "loss=0.1,loss=0.2"], "give loss once"),
        (["compare", "--algorithm", "gtvmin:coupling=1,coupling=2"], "give coupling once"),
    ],
)
def test_mistakes(words, message):
    ending = here(*words)
    assert ending.code == 2 and message in " ".join(ending.err.split())


def test_keys_of_files(tmp_path):
    file = tmp_path / "options.toml"
    file.write_text('link-model = "lan"\nlink_model = "wan"\n')
    ending = here("--config", file)
    assert ending.code == 2 and "has link_model twice, with - and with _" in ending.err
    file.write_text('record-every = 0\nlink-model = "lan"\n')
    assert '"link_model": "wan"' in here("--config", file, "--record-every", 1, "--link-model", "wan", "--dry-run").out
    assert RunOptions.from_mapping({"link-model": "lan"}, "here").link_model.profile == "lan"
