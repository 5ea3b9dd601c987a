"""Secret of a run: source of the noise and masks of a differential privacy guarantee.

A guarantee holds against an adversary who knows everything except the noise, so the noise must not follow from
`--seed`, which is public. Rank 0 takes 32 bytes from the operating system and broadcasts them over MPI, outside of the
messages of devices. They and the keys derived from them are in memory alone: never in a state that is saved, a record,
the summary, the result or the run folder. So such a run writes no checkpoints and cannot be resumed or repeated.

The keys have 64 bits and the generator is Philox, which is not a cryptographic one.
"""

import hashlib

import numpy as np

from p2pkm.core.batch import Integers, Keys, Secrets, Stream
from p2pkm.core.sorting import blocks
from p2pkm.core.traits import MethodTraits
from p2pkm.kernels.reference import philox
from p2pkm.network.transport import World

SEEDED = "no guarantee: seeded noise"
UNREPEATABLE = "its noise came from a secret of the operating system, which was kept in memory alone"
# Length of the secret.
_BYTES = 32
# Temporary memory of the draw of one key, in numbers of 8 bytes; sizes the blocks of `derive_keys`.
_NUMBERS_PER_DRAW = 64
# Stands for a device id in the derivation of the shared key; no device has it.
_SHARED = 2**64 - 1


def draw_secret(traits: MethodTraits, seed: int, world: World) -> bytes | None:
    """Draw the secret of a run, identical on all ranks; a collective call. None if the method needs no secret.

    With a noise seed, the secret is a function of it and of the seed of the run. So runs can be repeated, and the runs
    of a study over seeds have independent noise.
    """
    if not traits.draws_secrets:
        return None
    if traits.noise_seed is not None:
        return hashlib.sha256(f"noise seed {traits.noise_seed}, seed {seed}".encode()).digest()
    from secrets import token_bytes

    fresh = {"secret": np.frombuffer(token_bytes(_BYTES), np.uint8)} if world.rank == 0 else None
    return bytes(world.broadcast(fresh)["secret"])


def derive_keys(secret: bytes, ids: Integers) -> Secrets:
    """Derive the keys of these devices, and the shared key, from the secret of a run."""
    keys = np.empty(len(ids), np.uint64)
    for block in blocks(len(ids), _NUMBERS_PER_DRAW):
        keys[block] = _derive(secret, ids[block].astype(np.uint64))
    return Secrets(keys, int(_derive(secret, np.array([_SHARED], np.uint64))[0]))


def _derive(secret: bytes, ids: Keys) -> Keys:
    """Derive one key per id, uint64[len(ids)]; every 8 bytes of the secret enter in turn."""
    keys = np.zeros(len(ids), np.uint64)
    for number in np.frombuffer(secret, "<u8"):
        keys = philox(ids, number, keys, Stream.SECRET)[:, 0]
    return keys


def describe_secret(traits: MethodTraits) -> list[str]:
    """Describe the source of the noise in a note; no note for a method without a secret."""
    if not traits.draws_secrets:
        return []
    if traits.noise_seed is not None:
        return [f"{SEEDED} (noise_seed={traits.noise_seed}); remove noise_seed for noise that cannot be predicted"]
    return ["noise from a secret of the operating system: the run writes no checkpoints and cannot be resumed or "
            "repeated; with noise_seed=1 it repeats, without a guarantee"]  # fmt: skip
