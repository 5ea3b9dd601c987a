"""The network on MPI, played by threads, is the twin of the one in one process: same tables, ledgers and runs."""

import os
import sys
import threading
import weakref
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm.experiments.deal
from p2pkm.cli.main import main
from p2pkm.core import sorting
from p2pkm.core.errors import ExperimentError, NetworkError
from p2pkm.core.messages import DenseMessages, RaggedArray, expand_ranges
from p2pkm.data.shards import Shards
from p2pkm.engine import run_job
from p2pkm.experiments import simulate
from p2pkm.methods.init import select_candidate
from p2pkm.methods.peer import gtvmin
from p2pkm.methods.peer.gtvmin import GTVMin
from p2pkm.methods.peer.private import Private
from p2pkm.metrics import cost_ratio, medians, monitor, summary
from p2pkm.metrics.gathering import Gathering
from p2pkm.network import graph, mpi, mpi_abort, transport_state, world
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalWorld
from p2pkm.network.rank_partition import RankPartition
from p2pkm.storage.checkpoint import CheckpointWriter, list_checkpoints
from tests.support.mpi_in_threads import LostRankError, Ranks
from tests.support.programs import determinism, placement, resumed
from tests.support.sampling import thin

RUNS = ("complete async leader", "choice of 5", "by events", "tape gossip", "coreset over a tree",
        "trimmed server")  # fmt: skip


MADE = ("MPIR_CVAR_ENABLE_HEAVY_YIELD", "MPIR_CVAR_SUPPRESS_ABORT_MESSAGE")


def ring(n):
    return Topology.from_links(n, np.array([[i, (i + 1) % n, 1.0] for i in range(n)]))


@pytest.fixture
def play(monkeypatch):
    """Return what plays work on so many ranks and returns what each rank returns."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for name in MADE:
        monkeypatch.setenv(name, "1")

    def play(size, work, *arguments):
        package, ranks, own = ModuleType("mpi4py"), Ranks(size), threading.local()
        package.MPI, package.rc = ranks, SimpleNamespace()
        monkeypatch.setitem(sys.modules, "mpi4py", package)
        for module in (simulate, determinism):
            monkeypatch.setattr(module, "connect", lambda: getattr(own, "world", LocalWorld()))

        def begin():
            own.world = mpi.MPIWorld()
            assert (own.world.rank, own.world.size) == (ranks.COMM_WORLD.rank, size)
            return work(*arguments)

        return ranks.play(begin)

    return play


@pytest.mark.parametrize("owner", [[0, 0, 1, 1, 2], [2, 0, 1, 0, 2], [2, 2, 2, 2, 0]])
def test_rows_are_found_and_gathered_where_only_rank_0_has_the_sizes_of_all(play, owner):
    sizes = np.array([3, 0, 2, 1, 4])
    division = RankPartition.by_owner("drawn", np.array(owner), 3)
    rows = np.arange(10.0)[:, None]

    def work():
        rank = mpi.MPIWorld().rank
        network = mpi.MPIWorld().network(place(ring(5), rank, 3, division))
        ids = network.placement.ids
        first = network.find_first_rows(sizes[ids])
        own = rows[expand_ranges(first, sizes[ids])]
        return ids, first, network.gather_by_device(own, sizes if rank == 0 else None)

    for rank, (ids, first, gathered) in enumerate(play(3, work)):
        assert_array_equal(first, np.array([0, 3, 3, 5, 6])[ids])
        if rank:
            assert gathered is None
        else:
            assert_array_equal(gathered, rows)


@pytest.mark.parametrize("everywhere", [False, True])
def test_what_devices_derived_for_their_points_is_gathered_on_every_rank_that_receives_it(play, everywhere):
    class Derived(NamedTuple):
        features: RaggedArray

    class State(NamedTuple):
        derived: Derived

    sizes, rows = np.array([3, 0, 2, 1, 4]), np.arange(10.0)[:, None]
    division = RankPartition.by_owner("drawn", np.array([2, 0, 1, 0, 2]), 3)

    def work():
        world = mpi.MPIWorld()
        network = world.network(place(ring(5), world.rank, 3, division))
        own = sizes[network.placement.ids]
        values = rows[expand_ranges(network.find_first_rows(own), own)]
        state = State(Derived(RaggedArray(values, own)))
        gathering = Gathering(network, world, everywhere=everywhere)
        return summary._collect_derived(SimpleNamespace(sizes=own), gathering, state)["features"]

    for rank, found in enumerate(play(3, work)):
        if everywhere or rank == 0:
            assert_array_equal(found, rows)
        else:
            assert found is None


@pytest.fixture
def asleep(monkeypatch):
    """Return how long ranks have slept."""
    asleep = []
    monkeypatch.setattr(mpi, "time", SimpleNamespace(sleep=asleep.append))
    return asleep


@pytest.mark.parametrize(("size", "seeds", "first_part"), thin([
    (size, seeds, part) for part in (5, mpi._FIRST_PART) for size, seeds in ((2, (1, 2, 4)), (3, (0, 6)), (3, (1, 16)))
], 2))  # fmt: skip
@pytest.mark.sample(3)
def test_mail_is_heard_as_in_one_process(play, monkeypatch, size, seeds, first_part):
    """Also if sparse messages are longer than their first part."""
    monkeypatch.setattr(mpi, "_FIRST_PART", first_part)
    found = play(size, lambda: list(determinism.exchanges(seeds)))
    for lines in found:
        assert [one for one in lines if one["wrong"] or one["kept"]] == [] and len(lines) == len(seeds)
    assert sum(one["requests"] for one in found[0]) > 0


def test_requests_are_made_once_for_tables_of_about_the_same_size(play):
    """A ring of 4 on two ranks, whose devices 0 and 1 lie side by side, and of 5, with 0 and 2 apart on rank 0."""

    def work(n, apart):
        world = mpi.MPIWorld()
        network = world.network(place(ring(n), world.rank, 2))
        network.open()
        ids, found = network.placement.ids, []
        for rows, selective in ((3, False), (4, False), (4, True), (3, True), (5, True)):
            edges = np.ones(len(network.placement.indices), np.bool_) if selective else None
            values = np.ones((len(ids), rows - world.rank, 2))
            network.exchange(DenseMessages(values, np.full(len(ids), rows - world.rank), edges, ragged=True))
            found.append((list(network._requests), network.memory.tables.shape[1]))
        assert len(network._outgoing) == (apart and world.rank == 0)
        network.close()
        return found

    for n, apart in ((4, False), (5, True)):
        for made in play(2, work, n, apart):
            requests, heights = zip(*made, strict=True)
            assert [len(one) for one in requests] == [2, 2, 4, 4, 4]
            assert [a == b for a, b in pairwise(requests)] == [True, False, True, False]
            assert heights == (5, 5, 5, 5, 9)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "first"), [(2, 0), (3, 1)])
def test_runs_have_the_same_bits_as_in_one_process(play, size, first):
    made = [one for one in determinism.configurations() if one[0] in RUNS[first::2]]
    expected = list(determinism.runs(made))
    assert len(expected) == len(RUNS[first::2])
    assert play(size, lambda: list(determinism.runs(made))) == [expected] * size


@pytest.mark.parametrize("size", [1, 2, 3])
def test_arrays_of_many_devices_are_measured_and_gathered_in_parts_to_the_same_bits(play, monkeypatch, size):
    """One value of the devices after the other, and one device after the other where only rank 0 has them."""
    names = ("strong", "strong in parts", "trimmed server", "coreset over a tree", "grid rooted")
    made = [one for one in determinism.configurations() if one[0] in names]
    expected = list(determinism.runs(made))
    assert len(expected) == len(names)
    monkeypatch.setattr(monitor, "LARGE", 0)
    for module, width in ((graph, "_EDGES"), (summary, "_LINKS"), (select_candidate, "_NUMBERS_PER_DEVICE")):
        monkeypatch.setattr(module, width, sorting._BLOCK)
    assert play(size, lambda: list(determinism.runs(made))) == [expected] * size


@pytest.mark.parametrize("size", [2, 3])
def test_costs_over_a_sample_of_the_points_have_the_same_bits(play, monkeypatch, size):
    """Some devices have several points in the sample, and some have none."""
    monkeypatch.setattr(cost_ratio, "_PRICED", 12)
    monkeypatch.setattr(cost_ratio, "_RUN", 3)
    points = np.random.default_rng(0).normal(size=(40, 2))
    shards = Shards.from_list([points[:11], points[11:12], points[12:14], points[14:33], points[33:]])

    def work():
        result = simulate.simulate(GTVMin(2, coupling=1), ring(5), shards, rounds=2)
        return result.ratios.tolist(), result.summary["ratio_local_only"], result.best

    expected = work()
    assert play(size, work) == [expected] * size


@pytest.mark.parametrize("size", [1, 3])
def test_only_rank_0_estimates_the_coupling_from_the_whole_graph(play, monkeypatch, size):
    called, choose = [], gtvmin.choose_coupling
    monkeypatch.setattr(gtvmin, "choose_coupling", lambda *given: called.append(mpi_rank()) or choose(*given))
    shards = Shards.from_list(list(np.arange(24.0).reshape(4, 6, 1) % 7))

    def mpi_rank():
        return simulate.connect().rank

    def work():
        return simulate.simulate(GTVMin(2, coupling="strong"), ring(4), shards, rounds=2).summary["coupling"]

    assert play(size, work) == [10.0] * size and called == [0]


def test_rank_0_gathers_the_result_when_its_own_points_links_and_state_are_freed(monkeypatch):
    held = []

    def measure_final_state(outcome, everywhere):
        batch, state = outcome.context.devices, outcome.final.state
        held.extend(map(weakref.ref, (batch.stored, batch.keys, batch.active_edges, state.previous)))
        return measured(outcome, everywhere)

    def build_result(gathering, *parts):
        alive.append([one() is not None for one in held])
        return built(gathering, *parts)

    measured, built, alive = run_job._measure_final_state, run_job.build_result, []
    monkeypatch.setattr(run_job, "_measure_final_state", measure_final_state)
    monkeypatch.setattr(run_job, "build_result", build_result)
    # As in a large run, for whose medians no points are kept.
    monkeypatch.setattr(medians, "_MAX_COORDINATES", 0)
    assert main("--graph ring --devices 8 --data blobs -k 3 --rounds 3 --out none -q".split()) == 0
    assert alive == [[False] * 4]


@pytest.mark.parametrize("kind", [Private, GTVMin])
def test_a_summary_needs_no_device_on_rank_0(play, monkeypatch, kind):
    """A method decides its final facts from the state of all devices, also of those on other ranks."""

    def work():
        given = {"epsilon": 100.0, "radius": 40.0, "trust": "none", "noise_seed": 0} if kind is Private else {}
        shards = Shards.from_list(list(np.arange(24.0).reshape(4, 6, 1) % 7))
        return simulate.simulate(kind(2, **given), ring(4), shards, rounds=9, baselines=False).summary

    alone = work()
    monkeypatch.setattr(p2pkm.experiments.deal, "choose", placement.reverse)
    told = ("size", "noise_count", "coupling", "coupling_chosen")
    for found in play(2, work):
        assert [(key, found.get(key)) for key in told] == [(key, alone.get(key)) for key in told]
    assert alone["size" if kind is Private else "coupling_chosen"] is not None


def test_ranks_that_were_given_other_points_or_another_start_are_told(play):
    def work():
        rank, told = mpi.MPIWorld().rank, []
        points, start = np.arange(12.0).reshape(4, 3, 1), np.array([[[0.0], [9.0]]] * 4)
        for shift, move in ((rank, 0), (0, rank)):
            given = Shards.from_list(list(points + shift))
            with pytest.raises(ExperimentError) as caught:
                simulate.simulate(GTVMin(2), ring(4), given, rounds=1, start=start + move, baselines=False)
            told.append(str(caught.value))
        return told

    for points, start in play(2, work):
        assert "rank 1 differs from rank 0 in points. Call with the same arguments on every rank" in points
        assert "rank 1 differs from rank 0 in start. Call with the same arguments on every rank" in start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "name"), [(2, 3, "scaled, under faults"), (3, 1, "along a tree with a stream")]
)
def test_a_run_goes_on_with_another_number_of_ranks(play, tmp_path, monkeypatch, before, after, name):
    put = CheckpointWriter.put

    def stop(self, outline, arrays):
        put(self, outline, arrays)
        if arrays and len(list_checkpoints(tmp_path)) == 2:
            raise InterruptedError

    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(CheckpointWriter, "put", stop)
        play(before, resumed.play, name, tmp_path)
    found = play(after, resumed.play, name, tmp_path)
    assert found == [resumed.play(name, None)] * after


@pytest.mark.parametrize(
    ("off", "large", "kind"), [(None, 0, None), (0, 0, np.int32), (1, 0, np.int32), (0, 1 << 32, np.int64)]
)
@pytest.mark.parametrize(("most", "kept"), [(4, True), (3, False)])
def test_ranks_keep_the_same_arrays_in_a_checkpoint(play, monkeypatch, off, large, kind, most, kept):
    """A path of 4 on two ranks; without the link from device 0 or 1 on rank 0 alone counts its edges, or both do."""
    monkeypatch.setattr(transport_state, "LARGE", most)
    path = Topology.from_links(4, np.array([[i, i + 1, 1.0] for i in range(3)]))
    used = None if off is None else (path.sources + path.indices) != 2 * off + 1

    def work():
        world = mpi.MPIWorld()
        network = world.network(place(path, world.rank, 2))
        network.open()
        if used is not None:
            network.set_active_edges(used[network.placement.edges])
        wire = np.full(2, 1 + large) if world.rank == 0 else None
        network.exchange(DenseMessages(np.ones((2, 1, 1)), np.ones(2, np.int64), wire=wire))
        found = network.snapshot()
        network.close()
        after = world.network(network.placement)
        after.open()
        inbox = after.restore(found)
        assert after.ledger.totals == network.ledger.totals and after.ledger.wire_total == network.ledger.wire_total
        assert len(after.ledger.exchanges) == kept
        assert_array_equal(inbox.tables[inbox.slots[inbox.slots >= 0], 0], 1.0)
        return found

    for found in play(2, work):
        assert (found["exchanges"] is not None) == kept
        edges = found["edge_sent"]
        assert (None if edges is None else edges.dtype) == kind
        assert edges is None or edges.shape == (3, 4)
        assert found["turn"] == 1
        assert found["memory"]["tables"].shape == (2, 1, 1, 1)  # without the row in which heads travel


def test_what_a_rank_broadcasts_scatters_and_gathers(play):
    given = {
        "a": np.arange(6.0).reshape(2, 3).T,
        "b": np.array(["x", "yz"]),
        "empty": np.zeros((0, 2)),
        "one": np.array(7),
    }

    def work():
        world = mpi.MPIWorld()
        assert world.broadcast(None) == {}
        part = world.broadcast(given if world.rank == 0 else None)
        own = world.scatter(({"n": np.full(rank, rank)} for rank in range(world.size)) if world.rank == 0 else None)
        return part, own["n"], world.gather(np.full(2 + world.rank, world.rank, np.uint8)), world.library()

    for rank, (part, own, everybody, library) in enumerate(play(3, work)):
        assert {name: one.dtype for name, one in part.items()} == {name: one.dtype for name, one in given.items()}
        for name, array in given.items():
            assert_array_equal(part[name], array)
            assert part[name].shape == array.shape
        assert_array_equal(own, [rank] * rank)
        assert library == "Threads 1.0"
        if rank:
            assert everybody is None
        else:
            assert [one.tolist() for one in everybody] == [[0] * 2, [1] * 3, [2] * 4]


def test_a_rank_that_fails_ends_all(play, asleep, monkeypatch, capsys):
    ended = []
    monkeypatch.setattr("os._exit", ended.append)

    def work():
        world = mpi.MPIWorld()
        if world.rank:
            return world.wait()
        return sys.excepthook(ValueError, ValueError("the disk is full"), None)

    with pytest.raises(LostRankError, match="code 4"):
        play(2, work)
    assert "p2pkm: rank 0 failed: ValueError: the disk is full" in capsys.readouterr().err
    assert set(ended) == {4} and mpi._FLUSH_DELAY in asleep


@pytest.mark.parametrize(("rank", "pause"), [(0, 0.0), (1, 0.5)])
def test_the_first_rank_reports_an_error_first_and_then_ends_the_others(monkeypatch, rank, pause):
    done, words = [], (ValueError, ValueError("the disk is full"), None)
    monkeypatch.setattr(mpi_abort, "time", SimpleNamespace(sleep=done.append))
    monkeypatch.setattr(sys, "excepthook", lambda *words: done.append(words))
    mpi_abort.abort_on_error(SimpleNamespace(rank=rank, abort=done.append))
    sys.excepthook(*words)
    assert done == [pause, words, 4]


def test_a_rank_that_waits_sleeps(play, asleep):
    for number, call in enumerate(("wait", "broadcast", "gather")):
        arguments = {"broadcast": [{}], "gather": [np.zeros(1, np.uint8)]}.get(call, ())
        play(2, lambda call=call, arguments=arguments: getattr(mpi.MPIWorld(), call)(*arguments))
        assert set(asleep) == {mpi._POLL} and len(asleep) > number


def test_how_mpi_is_started(play, monkeypatch):
    for name in MADE:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PMI_SIZE", "1")
    hook = sys.excepthook
    play(1, lambda: None)
    assert [os.environ[name] for name in MADE] == ["1", "1"] and sys.excepthook is hook
    monkeypatch.setenv("PMI_SIZE", "2")
    play(2, lambda: None)
    assert sys.excepthook is not hook
    with pytest.raises(NetworkError, match=r"started 2 processes, but each is alone .* library \(Threads 1.0\) belong"):
        play(1, lambda: None)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(NetworkError, match="no MPI library can be loaded"):
        mpi.MPIWorld()


@pytest.mark.parametrize("launched", [False, True])
def test_whoever_was_started_by_a_launcher_is_a_rank_of_mpi(monkeypatch, launched):
    monkeypatch.setattr(world, "launched", lambda: launched)
    monkeypatch.setattr(mpi, "MPIWorld", SimpleNamespace)
    assert type(world.connect.__wrapped__()) is (SimpleNamespace if launched else LocalWorld)


def test_ranks_that_wait_for_each_other_fail(play):
    with pytest.raises(LostRankError, match="every rank waits"):
        play(2, lambda: mpi.MPIWorld()._receive(0))
    with pytest.raises(LostRankError, match="others wait"):
        play(2, lambda: (world := mpi.MPIWorld()).rank or world.wait())
