"""The verdict of a report cannot contradict the figures of its run."""

import re
from dataclasses import replace
from functools import cache

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import p2pkm
from p2pkm.metrics.closing_rows import DESCENTS, TERMINATIONS
from p2pkm.metrics.milestones import is_worse
from p2pkm.viz.report.narrative import describe_ratio, narrate

RATIO = st.floats(0.5, 1e4) | st.floats(0.98, 1.02)
SHARE = st.none() | st.floats(0, 1)
COUNT = st.integers(0, 10**7) | st.sampled_from([0, 1])
DEVICES, EDGES = 4, 6  # a star of three leaves


@st.composite
def summaries(draw):
    """Draw figures that belong together: a ratio is never below the best, milestones are those of the last record."""
    best, others = draw(st.none() | RATIO), [draw(st.sampled_from([0, 1e-5, 2e-4, 0.3])) for _ in range(2)]
    mean = None if best is None else best * (1 + others[0])
    reached = draw(st.integers(0, 50)) if mean is not None and mean <= 1.01 else None
    return {
        "devices": draw(st.integers(1, 3)), "clusters": draw(st.integers(1, 2000)), "algorithm": "gtvmin",
        "centroid_sets": draw(st.integers(int(mean is not None), 3)), "gtv": draw(st.none() | st.floats(0, 1e6)),
        "ratio_best": best, "ratio_mean": mean, "ratio_worst": None if mean is None else mean * (1 + others[1]),
        "ratio_local_only": draw(st.none() | RATIO), "ratio_best_round": draw(st.integers(0, 2000)),
        "ratio_best_stage": "gtvmin", "method_rounds_to_1pct_of_central": reached,
        "rounds_to_1pct_of_central": None if reached is None else reached + draw(st.integers(0, 2000)),
        "rounds": draw(st.integers(0, 2000)), "termination": draw(st.sampled_from(sorted(TERMINATIONS))),
        "descent": draw(st.sampled_from([None, *DESCENTS])), "faults": draw(st.sampled_from([None, "loss=0.1"])),
        "messages_lost": draw(st.none() | COUNT), "unavailable_fraction": draw(SHARE),
        "messages_rejected": draw(st.none() | COUNT), "min_cluster_size": draw(st.integers(0, 3)),
    }  # fmt: skip


@cache
def a_run():
    shards = p2pkm.Shards.from_list([np.arange(6.0).reshape(3, 2) + i for i in range(DEVICES)])
    return p2pkm.simulate(p2pkm.GTVMin(2), nx.star_graph(DEVICES - 1), shards, rounds=1)


def write(drawn, **changes):
    """Return the verdict of a run with other figures, and what finds all numbers of a clause in it."""
    run = a_run()
    text = narrate(replace(run, summary=run.summary | {"graph": "star"} | drawn, **changes))
    return text, lambda pattern: [part.replace(",", "") for part in re.findall(pattern, text)]


@given(summaries())
def test_each_sentence_about_quality_is_that_of_its_figure(drawn):
    """Every clause is there if and only if its figure says so, and its number is that of the figure."""
    text, found = write(drawn)
    devices, sets, mean, worst = (drawn[name] for name in ("devices", "centroid_sets", "ratio_mean", "ratio_worst"))
    assert found(r"^([\d,]+) devices? ") == [str(devices)]
    assert found(r"computed ([\d,]+) clusters? with gtvmin\.") == [str(drawn["clusters"])]
    assert ("No device holds a centroid" in text) == (sets == 0)
    assert ("All devices hold the same centroids" in text) == (sets == 1 and devices > 1)
    assert found(r"hold ([\d,]+) distinct models") == [str(sets)] * (sets > 1)
    assert ("not compared" in text) == (mean is None and sets > 0)
    assert found(r"their centroids cost (.+?) central") == ([] if mean is None else [describe_ratio(mean)])
    differs = mean is not None and devices > 1 and worst > mean + 5e-4 and describe_ratio(worst) != describe_ratio(mean)
    assert found(r"those of the worst device (.+?) it") == ([describe_ratio(worst)] if differs else [])
    alone = drawn["ratio_local_only"] if mean is not None and devices > 1 else None
    assert found(r"local-only baseline, .+?, costs (.+?) central") == ([] if alone is None else [describe_ratio(alone)])
    reached = drawn["method_rounds_to_1pct_of_central"]
    assert ("did not come within 1 %" in text) == (mean is not None and reached is None)
    assert found(r"came within 1 % of central k-means in ([\d,]+) rounds?") == [str(reached)] * (reached is not None)
    for percent in map(float, found(r"their centroids cost (\S+) % more than central")):
        assert percent >= 1 if reached is None else percent <= 1
    fell = found(r"the cost ratio was (\S+) in round [\d,]+ of gtvmin"), found(r"and is (\S+) at the end")
    assert [len(one) for one in fell] == [is_worse(mean, drawn["ratio_best"])] * 2
    assert not [(before, now) for before, now in zip(*fell, strict=True) if not float(before) < float(now)]


@given(summaries(), st.lists(st.integers(0, 9), min_size=EDGES, max_size=EDGES), st.sampled_from([0, 1, 800]))
def test_each_sentence_about_the_end_and_messages_is_that_of_its_figure(drawn, messages, size):
    sent, volume = sum(messages), size * np.array(messages)
    ledger = a_run().ledger._replace(messages=np.array(messages), bytes=volume)
    text, found = write(drawn | {"messages": sent, "bytes": size * sent}, ledger=ledger)
    assert not re.search(r"\b1 (devices|clusters|rounds|(empty )?messages)\b", text)
    assert found(r"The method ended after ([\d,]+) rounds?, ") == [str(drawn["rounds"])]
    assert [name for name, words in TERMINATIONS.items() if f", {words}" in text] == [drawn["termination"]]
    told = [name for name, words in DESCENTS.items() if f"; {words}." in text]
    assert told == [drawn["descent"]] * (drawn["descent"] is not None)
    assert ("Nothing was sent" in text) == (sent == 0)
    assert found(r"It took ([\d,]+) (?:empty )?messages?\b") == [str(sent)] * (sent > 0)
    load = np.bincount(ledger.src, volume, DEVICES) + np.bincount(ledger.dst, volume, DEVICES)
    even = sent > 0 and size > 0 and load.max() < 1.01 * load.mean()
    assert ("the same for all" in text) == even
    busiest = [load.argmax()] if load.any() and not even else []
    assert found(r"device (\d+) is the busiest with") == [str(top) for top in busiest]
    assert found(r" with (\S+) % of all traffic") == [f"{100 * load[top] / load.sum():.2g}" for top in busiest]
    assert found(r", (\S+) times the mean") == [f"{load[top] / load.mean():.2g}" for top in busiest]


@given(summaries(), st.integers(0, 2))
def test_each_sentence_about_faults_is_that_of_its_figure(drawn, byzantine):
    _, found = write(drawn | {"byzantine": f"{byzantine}:kind=flip"}, byzantine=np.arange(byzantine))
    lost, away, refused = (drawn[name] or 0 for name in ("messages_lost", "unavailable_fraction", "messages_rejected"))
    struck = drawn["faults"] is not None
    assert found(r"Under faults \(loss=0.1\) ([\d,]+) of the messages were lost") == [str(lost)] * struck
    assert found(r"and (\S+) % of the devices were unavailable") == [f"{100 * away:.2g}"] * (struck and away > 0)
    assert found(r"(\d+) devices? sent Byzantine messages") == [str(byzantine)] * (byzantine > 0)
    assert found(r"([\d,]+) messages? (?:was|were) rejected") == [str(refused)] * (refused > 0)
    least = drawn["min_cluster_size"]
    assert found(r"fewer than (\d+) points") == [str(least)] * (least > 1)
