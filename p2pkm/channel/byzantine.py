"""Byzantine devices: some say wrong tables; who they are, and what they say in the place of their own message.

A lie is told between the algorithm and the network: the liar's own state goes on as if it were honest, with what it
hears from others. Lies are functions of (seed, device, round, turn), so they are the same on any number of ranks.
"""

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from p2pkm.channel.rejection import reject_malformed
from p2pkm.core.batch import LIE, PLACE, Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, SparseMessages
from p2pkm.core.spec import Spec, complete, parse
from p2pkm.kernels.reference import uniforms
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

_PACE = 0.05  # of the spans of the data: what a drifting table moves in a round
_FAR = 3.0  # spans of the data: how far away colluding devices meet
_ABSURD = 1e101
_NAMED = 10  # liars in a note
_MISSHAPEN = 3  # of the four kinds of tables that are none: it ends within a row
_ALWAYS = 2**32 - 1  # number of a draw that stays the same in all rounds


@dataclass(frozen=True)
class Byzantine:
    """How many devices lie, how, and where they are.

    Attributes
    ----------
    count : int
    kind : {"random", "flip", "drift", "nan", "collude"}
        random: rows drawn anew in every turn, uniformly in the box of all points; flip: the own rows mirrored at the
        mean of all points; drift: the own rows, moved by a twentieth of the spans of the data more in every
        round, each liar in a direction of its own; nan: NaN, infinite or absurd numbers or a table of the wrong shape;
        collude: all liars say the same rows, three to four spans of the data away.
    place : {"random", "central", "peripheral"}
        Drawn from the seed, or the devices of largest or smallest centrality; of equals the lower id.
    by : {"closeness", "betweenness"}
        Which centrality: see `topologies.measures`, exact up to 1,000 devices.
    stages : {"method", "all"}
        Whether liars are honest in what comes before the method, or lie in the opening of these stages, too.
    """

    count: int
    _: KW_ONLY
    kind: Literal["random", "flip", "drift", "nan", "collude"] = "random"
    place: Literal["random", "central", "peripheral"] = "random"
    by: Literal["closeness", "betweenness"] = "closeness"
    stages: Literal["method", "all"] = "method"

    def __str__(self) -> str:
        """Return the spec in full."""
        return str(complete(Spec(str(self.count), vars(self)), {str(self.count): Byzantine}, 0))

    @classmethod
    def of(cls, given: "Byzantine | str | None") -> "Byzantine | None":
        """Return the value of a text such as ``2:kind=flip,place=central``; a value and None stay as they are.

        Raises
        ------
        ExperimentError
            If it does not begin with a whole number, or a key or value is not known.
        """
        if given is None or isinstance(given, Byzantine):
            return given
        name = given.partition(":")[0].strip()
        if not (name.isascii() and name.isdigit() and len(name) < 10):
            raise ExperimentError(
                f"byzantine is {given!r}; expected how many devices are Byzantine, and perhaps how, as in "
                "2:kind=flip,place=central"
            )
        return cls(int(name), **parse(given, {name: cls}, "byzantine").options)


def check_byzantine(spec: Byzantine | None, algorithm: Any, topology: Topology) -> None:
    """Refuse more liars than there can be, and methods whose messages have no rows to lie about."""
    if spec is None:
        return
    if not spec.count < topology.clients:
        raise ExperimentError(
            f"byzantine is {spec.count} of {topology.clients} devices; expected fewer, so that one is honest"
        )
    if not _subject(algorithm):
        raise ExperimentError(
            f"{algorithm.name} says nothing that a Byzantine device could replace by other centroids; take another "
            "method, such as gtvmin, admm, consensus or fkm"
        )


def select_byzantine(spec: Byzantine | None, topology: Topology, seed: int) -> Integers:
    """Return the ids of the liars, ascending; the server is never among them."""
    if spec is None or not spec.count:
        return np.zeros(0, np.int64)
    if spec.place == "random":
        merit = uniforms(seed, PLACE, [0], topology.n)[0]
    else:
        from topologies import CSRGraph, measures

        sign = -1.0 if spec.place == "central" else 1.0
        graph = CSRGraph(topology.indptr, topology.indices, topology.weights)
        merit = sign * np.round(getattr(measures, spec.by)(graph, seed=seed), 12)  # equals stay equal
    return np.sort(np.argsort(merit[: topology.clients], kind="stable")[: spec.count])


@dataclass(frozen=True)
class ByzantineMessages:
    """What the liars of a batch say in a stage.

    Attributes
    ----------
    spec : Byzantine
    liars : bool[n]
    method : type
        Of the stage that the run is about.
    low, high, mean : float64[d]
        Box and mean of all points, in the units that the method speaks in.
    opening : bool
        Whether they lie in the opening alone.
    says : str
        What the stage says: "centroids", "pairs" (flooded, with counts) or "mass" (sums and counts).
    """

    spec: Byzantine
    liars: Mask
    method: type
    low: Floats
    high: Floats
    mean: Floats
    opening: bool = False
    says: str = "centroids"
    started: list[bool] = field(default_factory=list)

    flooded: ClassVar[str] = "pairs"

    def during(self, algorithm: Any) -> "ByzantineMessages | None":
        """Return what is said in a stage, None if everybody is honest in it."""
        own, says = isinstance(algorithm, self.method), _subject(algorithm)
        if own:
            self.started.append(True)
        if not says or not (own or self.started or self.spec.stages == "all"):
            return None
        return replace(self, opening=not own, says=says)

    def snapshot(self) -> dict[str, bool]:
        """Return whether the method has begun, as `p2pkm.engine.state_tree` takes it."""
        return {"started": bool(self.started)}

    def restore(self, kept: dict[str, bool]) -> None:
        """Go on from a snapshot."""
        self.started[:] = [True] * kept["started"]

    def say(self, mail: DenseMessages | SparseMessages, devices: Devices) -> DenseMessages | SparseMessages:
        """Return the mail with the lies in it, and with what its receivers will refuse marked.

        Of what is flooded a liar replaces its own rows alone, whenever it sends them; it forwards others as they are.
        """
        forwards = self.says == self.flooded and self.spec.kind != "nan"
        if isinstance(mail, SparseMessages) or (self.opening and devices.step > 0 and not forwards):
            return mail
        who = np.flatnonzero(self.liars & (mail.rows > 0))
        if len(who) and self.spec.kind == "nan":
            mail = self._malform(mail, who, devices)
        elif len(who):
            values, first, last = mail.values.copy(), mail.header, mail.header + devices.d
            own = values[who, :, :1] == devices.ids[who, None, None] if forwards else True
            unit = values[who, :, last:] if self.says == "mass" else np.ones(1)
            with np.errstate(invalid="ignore", divide="ignore"):
                rows = np.where(unit != 0.0, values[who, :, first:last] / unit, 0.0)
            invented = self._invent(rows, who, devices) * unit
            values[who, :, first:last] = np.where(own, invented, values[who, :, first:last])
            mail = mail._replace(values=values)
        return reject_malformed(mail)

    def _invent(self, rows: Floats, who: Integers, devices: Devices) -> Floats:
        """Return what the liars say instead of their rows, float64[w, r, d]."""
        kind, span, (_, r, d), ids = self.spec.kind, self.high - self.low, rows.shape, devices.ids[who]
        if kind == "flip":
            return 2.0 * self.mean - rows
        if kind == "drift":
            way = 2.0 * _draw(devices, ids, d, _ALWAYS) - 1.0
            way /= np.sqrt(np.cumsum(way * way, axis=1)[:, -1:])
            return rows + (devices.step + 1) * _PACE * (way * span)[:, None, :]
        if kind == "collude":
            drawn = _FAR + _draw(devices, np.zeros(1, np.int64), r * d, _ALWAYS)
        else:
            drawn = _draw(devices, ids, r * d)
        return self.low + np.broadcast_to(drawn.reshape(-1, r, d), rows.shape) * span

    def _malform(self, mail: DenseMessages, who: Integers, devices: Devices) -> DenseMessages:
        """Return the mail with tables in it that are none."""
        values, rows = mail.values.copy(), mail.rows.copy()
        which = (4.0 * _draw(devices, devices.ids[who], 1)[:, 0]).astype(np.int64)
        values[who] = np.array([np.nan, np.inf, _ABSURD, 0.0])[which][:, None, None]
        broken = np.zeros(len(rows), np.bool_)
        broken[who[which == _MISSHAPEN]] = True
        return mail._replace(values=values, rows=rows + broken, unfit=broken)


def _draw(devices: Devices, ids: Integers, count: int, number: int | None = None) -> Floats:
    """Return draws from [0, 1) of each liar in this turn, or of a number of its own, float64[w, count]."""
    number = (devices.step << 12) + devices.turn if number is None else number
    steps = (ids.astype(np.uint64) << np.uint64(32)) + np.uint64(number)
    drawn: Floats = uniforms(devices.shared_key, LIE, steps, count)
    return drawn


def prepare_lies(
    spec: Byzantine | None, liars: Integers, devices: Devices, network: Network, method: Any
) -> ByzantineMessages | None:
    """Return what this rank's liars say; method: what the last stage runs."""
    if spec is None or not len(liars):
        return None
    low, high = (extreme(devices.stored, axis=0, initial=start) for extreme, start in
                 ((np.min, np.inf), (np.max, -np.inf)))  # fmt: skip
    ends = network.share(np.broadcast_to(np.concatenate((low, -high)), (len(devices), 2 * devices.d)))
    ends = ends.min(axis=0).astype(np.float64)
    sums = network.share(devices.kernels.moments(*devices.own, np.zeros(devices.d))[:, : 1 + devices.d])
    total = np.cumsum(sums, axis=0)[-1]
    box = np.stack((ends[: devices.d], -ends[devices.d :], total[1:] / total[0]))
    return ByzantineMessages(
        spec, np.isin(devices.ids, liars), type(method), *_convert(box, getattr(method, "method", None))
    )


def _convert(box: Floats, method: Any) -> Floats:
    """Return lower end, upper end and mean, float64[3, d], in the units of a method with a server."""
    frame = getattr(method, "frame", "none")
    if frame == "none":
        return box
    low, high = (box[0], box[1]) if frame == "coordinate" else (box[0].min(), box[1].max())
    return (box - low) / np.where(high > low, high - low, 1.0)


def byzantine_note(ids: Integers) -> list[str]:
    """Return a note on who lied, and that no score is about them."""
    if not len(ids):
        return []
    names = ", ".join(str(i) for i in ids[:_NAMED]) + f" and {len(ids) - _NAMED:,} more" * (len(ids) > _NAMED)
    devices = "1 device is" if len(ids) == 1 else f"{len(ids):,} devices are"
    return [f"{devices} Byzantine ({names}): scores are over the others, objective and variation over all"]


def _subject(algorithm: Any) -> str:
    """Return what the messages of an algorithm are about: "centroids", "pairs", "mass", or nothing of the kind."""
    if getattr(algorithm, "agreed", False):
        return ""
    says = str(getattr(algorithm, "says", "centroids" if hasattr(algorithm, "aggregate") else ""))
    return "" if says == "keyed" else says
