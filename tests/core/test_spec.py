"""Values that are a number or one of a few words, and values that text stands for."""

import re
from typing import Literal

import pytest

import p2pkm
from p2pkm.channel.registry import PluginTransforms
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import Spec, complete, convert, parse, read_count, read_range
from tests.support.each import each

KIND = float | Literal["auto", "strong"] | None


@each(("text", "expected"), [("auto", "auto"), ("strong", "strong"), ("3", 3.0), (2, 2.0),
                                                ("none", None), (None, None)])  # fmt: skip
def test_a_number_or_a_word(text, expected):
    found = convert(text, KIND, "coupling")
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize("text", ["automatic", "", "nan", True])
def test_neither_number_nor_word(text):
    with pytest.raises(ExperimentError, match=r"coupling is .*; expected a .*number, or auto, or strong"):
        convert(text, KIND, "coupling")


@each(
    ("value", "kind", "words"),
    [(2.5, int, "a whole number"), (2**63, int, "a whole number below 2^63"), (str(-(2**63)), int, "below 2^63"),
     (5, str, "text"), ([1.0], float, "a number"), (True, float, "a number")],
)  # fmt: skip
def test_a_value_of_another_kind_is_refused_and_not_converted(value, kind, words):
    with pytest.raises(ExperimentError, match=re.escape(f"option is {value!r}; expected") + ".*" + re.escape(words)):
        convert(value, kind, "option")
    assert convert(str(1 - 2**63), int, "option") == 1 - 2**63


@each(
    ("text", "count"),
    [("0", 0), ("007", 7), ("999999999", 999_999_999), ("1000000000", None), ("", None), ("-1", None), ("+1", None),
     (" 1", None), ("1_0", None), ("1.0", None), ("²", None), ("٣", None), ("9" * 5000, None)],
)  # fmt: skip
def test_counts_are_up_to_nine_digits_and_nothing_else(text, count):
    assert read_count(text) == count


@each(
    ("text", "found"),
    [("3-5", range(3, 6)), ("4", range(4, 5)), ("4-4", range(4, 5)), ("5-3", None), ("3-", None), ("-3", None),
     ("3-5-7", None), ("", None), ("a-b", None)],
)  # fmt: skip
def test_ranges_have_both_ends(text, found):
    assert read_range(text) == found


@each(
    "value",
    [p2pkm.Faults(), p2pkm.Faults(loss=0.25, stages="all"), p2pkm.Faults(trace="a.jsonl"), p2pkm.Faults(trace="b"),
     p2pkm.DataStream(), p2pkm.DataStream(kind="jump", at=5)],
    ids=str,
)  # fmt: skip
def test_what_is_drawn_is_read_as_it_is_written_and_stays_as_it_is(value):
    assert type(value).of(value) is value
    assert type(value).of(str(value)) == value


def test_a_complete_spec_has_what_was_given_else_the_default_and_the_seed_of_the_run():
    def ring(*, degree: int = 2, rewire: float | None = None, seed: int | None = None): ...

    assert complete(Spec("ring", {}), {"ring": ring}, 7) == Spec("ring", {"degree": 2, "seed": 7})
    assert complete(Spec("ring", {"seed": 3, "rewire": 0.5}), {"ring": ring}, 7) == Spec(
        "ring", {"degree": 2, "rewire": 0.5, "seed": 3}
    )


@pytest.mark.parametrize(
    ("of", "given", "words"),
    [
        (p2pkm.Quantization.of, 8, "quantize is 8; expected a p2pkm.Quantization, or text such as"),
        (p2pkm.LinkModel.of, 8, "link model is 8; expected a p2pkm.LinkModel, or text such as"),
        (PluginTransforms.of, 8, "transforms is 8; expected text such as 'rounding:digits=3'"),
        (lambda stages: p2pkm.Faults(stages=stages), "some", "faults stages is 'some'. Known: all, method"),
        (p2pkm.Byzantine.of, 1.5, "byzantine is 1.5; expected a whole number"),
    ],
)
def test_what_stands_for_no_value_is_refused(of, given, words):
    with pytest.raises(ExperimentError, match=re.escape(words)):
        of(given)


@pytest.mark.parametrize("text", ["gtvmin:alpha", "gtvmin:alpha=1,alpha=2"])
def test_a_key_without_value_and_a_repeated_key_are_refused(text):
    with pytest.raises(ExperimentError, match="give alpha once"):
        parse(text, {"gtvmin": p2pkm.GTVMin}, "algorithm")


def test_words_for_true_and_false():
    for text, wanted in {"true": 1, "yes": 1, "1": 1, "Yes": 1, "false": 0, "no": 0, "0": 0, "NO": 0}.items():
        assert parse(f"gtvmin:swaps={text}", {"gtvmin": p2pkm.GTVMin}, "algorithm").options["swaps"] is bool(wanted), (
            text
        )
    with pytest.raises(ExperimentError, match="true or false"):
        parse("gtvmin:swaps=on", {"gtvmin": p2pkm.GTVMin}, "algorithm")
