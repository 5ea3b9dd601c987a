"""The rehearsal as integers: what is read can be decoded from what was counted, and the same coupling is found."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.core.batch import Grid
from p2pkm.core.wire_format import decode, encode
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.building_blocks.coupling_choice import calibrate_coupling
from p2pkm.methods.init.rehearsal import CouplingCalibration, sum_clusters
from tests.support.play_rounds import arrange, play, squared
from tests.support.prepare import prepare

K, D = 4, 3
LINE = [(i, i + 1) for i in range(4)]


def sums(*, size=1.0, weighted=False, grid=True, rice=True):
    """Rows of five devices, one of them empty and one of whom has two points."""
    draws = np.random.default_rng(1)
    points = [size * draws.normal(size=(m, D)) for m in (30, 0, 12, 2, 200)]
    devices = arrange(points, LINE, weights=draws.uniform(0.5, 1.5, 244) if weighted else None).devices
    start = np.repeat(points[4][None, :K], 5, axis=0)
    found = sum_clusters(replace(devices, grid=Grid(np.ones(5), 2, rice) if grid else None), start)
    return [found.take(np.array([i])).flat() for i in range(5)]


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_counts_and_sums_of_offsets_and_the_root_rehearses_with_those_of_all(weighted):
    draws = np.random.default_rng(2)
    points = [draws.normal(size=(m, D)) for m in (30, 0, 12, 2, 200)]
    weights = draws.uniform(0.5, 1.5, 244) if weighted else np.ones(244)
    table, start = arrange(points, LINE, weights=weights), points[4][:K]
    counts, sums, loss = np.zeros((K, 5)), np.zeros((K, 5, D)), 0.0
    owner = np.repeat(np.arange(5), [30, 0, 12, 2, 200])
    for i, point, weight in zip(owner, np.concatenate(points), weights, strict=True):
        apart = squared(point[None], start)[0]
        c = apart.argmin()
        counts[c, i] += weight
        sums[c, i] += weight * (point - start[c])
        loss += weight * apart[c]
    rows = sum_clusters(table.devices, np.repeat(start[None], 5, axis=0)).flat()
    lossy = rows[:, 2] == -1.0
    place = rows[~lossy, 2].astype(int), rows[~lossy, 0].astype(int)
    assert_array_equal(np.flatnonzero(counts.T), np.sort(place[1] * K + place[0]))
    assert_allclose(rows[~lossy, 3], counts[place])
    assert_allclose(rows[~lossy, 4:], sums[place], atol=1e-12)
    assert_allclose(rows[lossy, 3].sum(), loss)
    _, state = play(CouplingCalibration.on_graph(K, table.topology), table, np.repeat(start[None], 5, axis=0), 1)
    found = calibrate_coupling(table.topology, counts, sums, loss, weights.sum() / 5 / K)
    assert_allclose(state.rehearsed, [[found.coupling, found.mean]] * 5)
    assert state.converged.all()


def read(rows, *, rice):
    """Rows of a device as its parent reads them from the bits, and how many these are."""
    loss = np.float32(rows[-1, 3])
    spread = np.sqrt(float(loss) / (rows[:-1, 3].sum() * D))
    step = 2.0 ** (np.floor(np.log2(spread)) - 3)
    numbers = np.zeros((K, 1 + D), np.int64)
    for row in rows[:-1]:
        numbers[int(row[2])] = row[3], *(row[4:] / step)
    bits = encode(numbers, rice=rice)
    found = decode(bits, K, 1 + D)
    told = np.flatnonzero(found[:, 0])
    table = np.column_stack((told, found[told, :1], found[told, 1:] * step))
    return np.vstack((table, [-1.0, float(loss), 0.0, 0.0, 0.0])), 2 + 32 + len(bits)


@pytest.mark.parametrize("rice", [True, False])
@pytest.mark.parametrize("size", [1e-15, 1.0, 1e12])
def test_rows_are_decoded_from_the_bits_that_are_counted(size, rice):
    for rows, real in zip(sums(size=size, rice=rice), sums(size=size, grid=False), strict=True):
        assert len(rows) == len(real)
        if len(rows):
            found, bits = read(rows, rice=rice)
            assert_array_equal(rows[:, 2:], found)
            assert rows[:, 1].sum() == rows[0, 1] == bits < 64 * (real.size - 2 * len(real)) / 2
            spread = np.sqrt(real[-1, 3] / (real[:-1, 3].sum() * D))
            assert np.abs(rows[:-1, 4:] - real[:-1, 4:]).max() <= spread / 16 * (1 + 1e-6)
            assert_array_equal(rows[:-1, 2:4], real[:-1, 2:4])


@pytest.mark.parametrize("odd", [{"size": 1e-30}, {"size": 1e60}, {"weighted": True}])
def test_what_does_not_fit_travels_as_it_is(odd):
    for rows, real in zip(sums(**odd), sums(**odd, grid=False), strict=True):
        assert_array_equal(rows[:, 2:], real[:, 2:])
        if len(rows):
            assert rows[0, 1] == 2 + K + 64 * ((1 + D) * (len(rows) - 1) + 1)


def run(quantize):
    ready = prepare(RunOptions(graph="ring", devices=12, data="grid16:points=80", partition="dirichlet:alpha=0.3"), 1)
    method, graph = p2pkm.GTVMin(16, coupling="rehearsal", accept=True), ready.run.topology
    return p2pkm.simulate(method, graph, ready.shards, rounds=2, baselines=False, quantize=quantize)


@pytest.mark.parametrize("code", ["rice", "int8"])
def test_it_finds_the_same_with_a_fraction_of_the_bytes(code):
    found, real = run(code), run("none")
    sent = []
    for result in (found, real):
        places = [i for i, record in enumerate(result.rounds) if record["stage"] == "rehearsal"]
        first, last = result.rounds[places[0] - 1], result.rounds[places[-1]]
        sent.append({key: last[key] - first[key] for key in ("messages", "bytes", "wire_bytes")})
    assert sent[0]["messages"] == sent[1]["messages"] and sent[0]["bytes"] == sent[1]["bytes"]
    assert sent[0]["wire_bytes"] < sent[1]["wire_bytes"] / (7 if code == "rice" else 5)
    assert sent[1]["wire_bytes"] == sent[1]["bytes"]
    assert found.summary["coupling"] == real.summary["coupling"]
    assert found.summary["excess_predicted"] == pytest.approx(real.summary["excess_predicted"], rel=5e-3)
