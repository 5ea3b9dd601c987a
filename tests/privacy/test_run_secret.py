"""Noise and masks of a guarantee come from a secret of the operating system, which is held in memory alone."""

import gc
import io
import json
import pickle
import secrets
import shutil
import types
from functools import partial

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.batch import Secrets
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.engine import run_job, run_secret
from p2pkm.methods.building_blocks.gdp import compose, epsilon_of
from p2pkm.methods.peer import private
from p2pkm.methods.registry import METHODS
from p2pkm.methods.registry import find as find_method
from p2pkm.network.local import LocalWorld
from tests.support.each import each
from tests.support.run_cli import here, on_ranks, ranks, solve, there

TRUSTS = ("masks", "none", "server")
SEEDED = "no guarantee: seeded noise"


def deal(n=5, points=20):
    rng = np.random.default_rng(0)
    return p2pkm.Shards.from_list([9.0 * rng.integers(0, 2, (points, 2)) + rng.normal(size=(points, 2))] * n)


def play(trust="masks", seed=0, **options):
    method = p2pkm.Private(4, epsilon=2.0, radius=20.0, trust=trust, **options)
    return p2pkm.simulate(method, topologies.complete(5), deal(), seed=seed, progress=False)


def words(*more, noise_seed=None):
    noise = "" if noise_seed is None else f",noise_seed={noise_seed}"
    return ("--algorithm", f"private:epsilon=2,radius=30{noise}", "--graph", "complete", "--devices", 5, "-k", 4,
            "--data", "grid16:points=20", "--no-plot", *more)  # fmt: skip


# --- where noise comes from


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.sample(3)
def test_two_runs_with_one_seed_have_different_noise(trust):
    one, other = play(trust), play(trust)
    assert (one.centroids != other.centroids).all()


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.sample(3)
def test_noise_and_words_follow_from_the_secret_and_not_from_the_seed(trust, monkeypatch):
    """With the secret of another run the same noise is drawn; the seed moves the cells alone."""
    kept = []
    prepare = private.PrivateOnGraph.cover

    def keep(self, state, devices):
        kept.append((devices.secrets.keys.tolist(), devices.secrets.shared, state.edge_keys.tolist()))
        return prepare(self, state, devices)

    monkeypatch.setattr(private.PrivateOnGraph, "cover", keep)
    for fixed, seed in ((b"a", 0), (b"a", 1), (b"b", 0)):
        monkeypatch.setattr(secrets, "token_bytes", lambda count, fixed=fixed: fixed * count)
        play(trust, seed=seed)
    first, other_seed, other_secret = kept[:5], kept[5:10], kept[10:]
    assert first == other_seed
    assert not set(first[0][0]) & set(other_secret[0][0]) and first[0][1] != other_secret[0][1]
    assert (trust != "masks") or not set(first[0][2]) & set(other_secret[0][2])


def test_whoever_knows_the_seed_cannot_subtract_the_noise():
    """The attack of the issue: rerun the public program with and without a point, and compare: right by chance."""
    base = deal()
    blocks = [base.points[base.offsets[i] : base.offsets[i + 1]] for i in range(base.n)]
    without = p2pkm.Shards.from_list([blocks[0][1:], *blocks[1:]])
    method = partial(p2pkm.Private, 4, epsilon=0.1, radius=20.0)

    def guess(**options):
        run = [p2pkm.simulate(method(**options), topologies.complete(5), shards, progress=False).centroids
               for shards in (base, base, without)]  # fmt: skip
        return [(run[0] == other).all() for other in run[1:]]

    assert guess(noise_seed=3) == [True, False]  # what a noise seed gives away
    assert guess() == [False, False]


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.sample(3)
def test_a_noise_seed_repeats_and_says_that_there_is_no_guarantee(trust):
    one, other, third = play(trust, noise_seed=3), play(trust, noise_seed=3), play(trust, noise_seed=4)
    assert (one.centroids == other.centroids).all() and (one.centroids != third.centroids).any()
    assert any(SEEDED in note for note in one.notes)
    assert one.summary["noise_seed"] == 3


def test_runs_of_several_seeds_with_one_noise_seed_have_independent_noise():
    draws = [
        run_secret.draw_secret(
            MethodTraits(message_content=MessageContent.OTHER, guarantee="some", noise_seed=0), seed, LocalWorld()
        )
        for seed in range(9)
    ]
    assert len(set(draws)) == 9
    assert run_secret.draw_secret(MethodTraits(message_content=MessageContent.OTHER), 0, LocalWorld()) is None


def test_keys_depend_on_every_byte_of_the_secret_and_on_the_device():
    ids = np.arange(150)
    secret = bytes(range(32))
    keys = run_secret.derive_keys(secret, ids)
    assert len({*keys.keys.tolist(), keys.shared}) == 151
    for place in range(32):
        changed = secret[:place] + bytes([secret[place] ^ 1]) + secret[place + 1 :]
        other = run_secret.derive_keys(changed, ids)
        assert (other.keys != keys.keys).all() and other.shared != keys.shared
    for some in (ids[7:9], ids[140:]):
        np.testing.assert_array_equal(run_secret.derive_keys(secret, some).keys, keys.keys[some])


def test_the_table_has_no_guarantee_with_a_noise_seed_and_the_guarantee_without():
    seeded, fresh = (here(*words(noise_seed=number), "--out", "none").out for number in (1, None))
    rows = {" ".join(line.split()) for line in seeded.splitlines()}
    assert (
        "differential privacy none no guarantee: the noise has a known seed" in rows
        and SEEDED in seeded
        and "if all others collude" not in seeded
    )
    assert "eps 2  at delta" in fresh and SEEDED not in fresh and "if all others collude" in fresh


@each("name", METHODS)
def test_only_methods_that_declare_it_have_secrets(name):
    """Two methods claim a guarantee; no other method may draw from the secret, so that its runs repeat."""
    claims = name in ("private", "feddp")
    traits = find_method(name)(3, **({"epsilon": 1.0, "radius": 2.0} if claims else {})).traits
    assert traits.draws_secrets == traits.is_secret == claims


def test_a_method_that_does_not_declare_it_cannot_draw(monkeypatch):
    real = private.Private.traits.fget
    undeclared = property(lambda self: MethodTraits(**{**vars(real(self)), "guarantee": ""}))
    monkeypatch.setattr(private.Private, "traits", undeclared)
    with pytest.raises(RuntimeError, match="the trait guarantee"):
        play()


# --- where it must not be


@pytest.fixture
def spied(monkeypatch):
    """Return all secret numbers of the runs that follow, as uint64."""
    found = []
    derive, prepare = run_secret.derive_keys, private.PrivateOnGraph.cover

    def keep_keys(secret, ids):
        keys = derive(secret, ids)
        found.extend([*np.frombuffer(secret, "<u8").tolist(), *keys.keys.tolist(), keys.shared])
        return keys

    def keep_links(self, state, devices):
        found.extend(state.edge_keys[state.edge_keys > 0].tolist())
        return prepare(self, state, devices)

    monkeypatch.setattr("p2pkm.engine.build_batch.derive_keys", keep_keys)
    monkeypatch.setattr(private.PrivateOnGraph, "cover", keep_links)
    return found


def reveals(data: bytes, found) -> list[int]:
    """Return which secret numbers stand in bytes, in binary or in decimal or hexadecimal digits."""

    def forms(number):
        texts = {str(number), str(number - 2**64), f"{number:x}"}
        return [number.to_bytes(8, "little"), number.to_bytes(8, "big"), *(text.encode() for text in texts)]

    return [number for number in set(found) if any(form in data for form in forms(number))]


def reach(thing) -> bytes:
    """Return the bytes of all arrays, integers and texts that an object leads to, modules and classes apart."""
    seen, left, parts = set(), [thing], []
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            parts.append(np.ascontiguousarray(one).tobytes())
        elif isinstance(one, (int, str, bytes)):
            parts.append(str(one).encode())
        assert not isinstance(one, Secrets)
        left.extend(gc.get_referents(one))
    return b"\n".join(parts)


def test_reveals_finds_what_it_looks_for():
    number = 2**63 + 12345
    for data in (np.array([number], np.uint64).tobytes(), f"x{number}".encode(), np.array([number - 2**64]).tobytes()):
        assert reveals(data, [number]) == [number]
    assert reveals(reach({"a": [np.array([1, number], np.uint64)]}), [number]) == [number]


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_result_its_pickle_and_its_representation_hold_no_secret(trust, spied):
    result = play(trust)
    assert len(spied) > 9
    texts = [repr(result), str(result), repr(result.summary), json.dumps(result.rounds), *result.notes]
    for data in (pickle.dumps(result), reach(result), *(text.encode() for text in texts)):
        assert not reveals(data, spied)


def test_a_run_folder_holds_no_secret(spied, tmp_path):
    assert here(*words("--checkpoint-every", 0), "--out", tmp_path / "run").code == 0
    assert here(*words(), "--seeds", "0,1", "--out", tmp_path / "seeds").code == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20 and not list(tmp_path.rglob("checkpoint"))
    for path in files:
        data = path.read_bytes()
        if path.suffix == ".npz":
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                data = b"".join(np.ascontiguousarray(arrays[name]).tobytes() for name in arrays.files)
        assert not reveals(data, spied), path


def test_the_batch_and_its_keys_do_not_print_them(monkeypatch):
    shown = []

    def keep(self, state, devices):
        shown.append((repr(devices), repr(devices.secrets), str(devices.secrets.keys[0])))
        return original(self, state, devices)

    original = private.PrivateOnGraph.cover
    monkeypatch.setattr(private.PrivateOnGraph, "cover", keep)
    play()
    assert all(key not in devices and own == "Secrets(...)" for devices, own, key in shown)


# --- checkpoints, resume, verify


@pytest.mark.parametrize("more", [{}, {"checkpoint_every": 2}])
def test_a_folder_for_checkpoints_is_refused(more, tmp_path):
    method = p2pkm.Private(4, epsilon=2.0, radius=20.0)
    with pytest.raises(p2pkm.ExperimentError, match=r"checkpoint .* without noise_seed.*private:noise_seed=1"):
        p2pkm.simulate(method, topologies.complete(5), deal(), progress=False, checkpoint=tmp_path / "new", **more)
    assert not (tmp_path / "new").exists()


def test_checkpoints_that_are_asked_for_are_refused_before_the_run_and_written_with_a_noise_seed(tmp_path):
    refused = here(*words("--checkpoint-every", 1), "--out", tmp_path / "run")
    assert refused.code == 2 and not (tmp_path / "run").exists()
    assert here(*words("--checkpoint-every", 1, noise_seed=1), "--out", tmp_path / "run").code == 0


def test_a_run_writes_no_checkpoint_whenever_one_would_be_due(tmp_path, monkeypatch):
    from p2pkm.storage.checkpoint import CheckpointWriter

    written = []
    monkeypatch.setattr(CheckpointWriter, "is_due", lambda self, t: True)
    monkeypatch.setattr(CheckpointWriter, "put", lambda self, *given: written.append(given))
    assert here(*words(), "--out", tmp_path / "fresh").code == 0
    assert not written
    assert here(*words(noise_seed=1), "--out", tmp_path / "seeded").code == 0
    assert written


def test_resume_refuses_a_run_that_has_not_ended_and_prints_one_that_has(tmp_path):
    run = tmp_path / "run"
    assert here(*words(), "--out", run).code == 0
    assert here("resume", run).code == 0
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["resumable"] is False
    (run / "manifest.json").write_text(json.dumps(manifest | {"state": "interrupted"}))
    (run / "summary.json").unlink()
    before = sorted(path.name for path in run.iterdir())
    refused = here("resume", run)
    assert refused.code == 3 and "secret of the operating system" in refused.err
    assert sorted(path.name for path in run.iterdir()) == before
    told = here("report", run)
    assert "p2pkm resume" not in told.err and f"--config {run / 'config.toml'}" in told.err
    again = here("--config", run / "config.toml", "--out", tmp_path / "again")
    assert again.code == 0  # the command that the messages name


@pytest.mark.slow
def test_resume_of_seeds_refuses_the_one_that_was_cut_off(tmp_path):
    folder = tmp_path / "seeds"
    assert here(*words(), "--seeds", "0-2", "--out", folder).code == 0
    shutil.rmtree(folder / "seed-2")  # never begun: a release of its own
    assert here("resume", folder).code == 0
    manifest = json.loads((folder / "seed-1" / "manifest.json").read_text())
    (folder / "seed-1" / "manifest.json").write_text(json.dumps(manifest | {"state": "interrupted"}))
    refused = here("resume", folder)
    assert refused.code == 3 and "seed-1 cannot be resumed" in refused.err


def test_verify_checks_the_files_alone_and_says_so(tmp_path):
    run = tmp_path / "run"
    assert here(*words(), "--out", run).code == 0
    told = here("verify", run)
    assert told.code == 0 and "the run was not repeated, because its noise came from a secret" in told.out
    found = json.loads(here("verify", run, "--ranks", 2, "--format", "json").out)
    assert found["same"] is True and found["ranks"] is None and "not repeated" in found["note"]
    with (run / "rounds.jsonl").open("a") as file:
        file.write("\n")
    assert here("verify", run).code == 6


def test_verify_repeats_a_run_with_a_noise_seed(tmp_path):
    run = tmp_path / "run"
    assert here(*words(noise_seed=1), "--out", run).code == 0
    assert "the same bits" in here("verify", run).out


# --- several releases


@pytest.mark.slow
def test_several_seeds_are_several_releases_and_the_table_says_what_they_give_together():
    one = solve(*words())
    closing = json.loads(here(*words(), "--seeds", "0-3", "--out", "none", "--format", "json", "-q").out)
    mu = compose(*[one["mu"]] * 4)
    assert closing["privacy"] == {"releases": 4, "mu": pytest.approx(2 * one["mu"]), "delta": 1e-6,
                                  "epsilon": pytest.approx(epsilon_of(mu, 1e-6))}  # fmt: skip
    text = here(*words(), "--seeds", "0-3", "--out", "none", "-q").out
    assert f"4 releases, of the same points together eps {epsilon_of(mu, 1e-6):.3g} at delta 1e-06" in text
    for other in (words(noise_seed=1), ("--algorithm", "local", "--data", "grid16:points=5", "--no-plot")):
        assert "release" not in here(*other, "--seeds", "0,1", "--out", "none", "-q").out


# --- ranks


def test_the_secret_is_drawn_on_rank_0_and_broadcast_once(monkeypatch):
    asked = []

    class Rank(LocalWorld):
        rank, size = 1, 2

        def broadcast(self, arrays):
            asked.append(arrays)
            return {"secret": np.arange(32, dtype=np.uint8)}

    monkeypatch.setattr(secrets, "token_bytes", lambda count: pytest.fail("drawn on another rank than 0"))
    assert run_secret.draw_secret(
        MethodTraits(message_content=MessageContent.OTHER, guarantee="some"), 0, Rank()
    ) == bytes(range(32))
    assert asked == [None] and run_job.draw_secret is run_secret.draw_secret


@pytest.mark.mpi
@pytest.mark.parametrize("count", [2, 3])
def test_the_same_bits_with_a_noise_seed_on_any_number_of_ranks(count):
    commands = [
        (*words(noise_seed=5)[2:], "--algorithm", f"private:epsilon=2,radius=30,trust={trust},noise_seed=5",
         "--format", "json", "--out", "none")
        for trust in TRUSTS
    ]  # fmt: skip
    for command, ending in zip(commands, on_ranks(count, commands), strict=True):
        one, many = here(*command).summary, ending.summary
        assert many["ranks"] == count
        for key in ("centroids_sha256", "chain_sha256", "bytes"):
            assert one[key] == many[key], (key, command)


@pytest.mark.mpi
def test_all_ranks_have_one_secret_and_runs_have_different_ones():
    """Only with the same link keys at both ends do masks cancel: a total behind masks that remain is no clustering."""
    found = [there(*ranks(3), "-m", "p2pkm", *words(), "--format", "json", "--out", "none").summary for _ in range(2)]
    assert found[0]["centroids_sha256"] != found[1]["centroids_sha256"]
    for summary in found:
        assert summary["centroid_sets"] == 1 and summary["ratio_mean"] < 20
