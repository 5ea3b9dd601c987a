"""Share of the clients that a server asks in each round.

The clients that are not asked have no active link in this round: a star whose links change. So they neither compute nor
send, and nothing is sent to them.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask, Stream
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import parse, show
from p2pkm.core.validation import check_choice, check_positive
from p2pkm.kernels.reference import uniforms
from p2pkm.kernels.streams import shared_key
from p2pkm.network.graph import Topology


@dataclass(frozen=True)
class ClientShare:
    """Share of the clients that the server asks in each round, at least one of them.

    Attributes
    ----------
    share : float
        The number of clients that are asked is share times the number of clients, rounded.
    by : {"uniform", "size", "availability"}
        Draw of the clients, without replacement. "uniform": all alike. "size": one after the other, each with a
        probability in proportion to its number of points at the start, or their weight, among those that are left.
        "availability": all alike among those that are not unavailable at the start of the round, see `--faults`; all of
        these if they are fewer.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.ClientShare.of("0.1:by=size") == p2pkm.ClientShare(0.1, by="size")
    True
    """

    share: float
    _: KW_ONLY
    by: Literal["uniform", "size", "availability"] = "uniform"

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_positive(self.share, "client_share", most=1.0)
        check_choice(self.by, ("uniform", "size", "availability"), "client_share by")

    def __str__(self) -> str:
        """Return the text of the command line."""
        share = show(float(self.share))
        return share if self.by == "uniform" else f"{share}:by={self.by}"

    @classmethod
    def of(cls, value: "ClientShare | str | float | None") -> "ClientShare | None":
        """Convert a text such as ``0.1:by=size``, or a number; other values are returned unchanged.

        Raises
        ------
        ExperimentError
            If the text does not begin with a number, a key or value is unknown, or the share is not above 0 and at most
            1.
        """
        if value is None or isinstance(value, ClientShare):
            return value
        if not isinstance(value, str):
            return cls(value)
        name = value.partition(":")[0].strip()
        try:
            share = float(name)
        except ValueError:
            raise ExperimentError(
                f"client_share is {value!r}; expected a share of the clients, with options if needed, for example "
                "0.1:by=size"
            ) from None
        return cls(share, **parse(value, {name: cls}, "client_share").options)

    def count(self, clients: int) -> int:
        """Return the number of clients that are asked in a round, of this number of clients."""
        return max(1, round(self.share * clients))

    def apply(
        self,
        star: Topology,
        seed: int,
        sizes: Integers | Floats | None = None,
        absent: Callable[[], Mask | None] = lambda: None,
    ) -> Topology:
        """Return a star whose active links, in each round, are those of the clients that are asked.

        Parameters
        ----------
        star : Topology
        seed : int
            The draws depend on the seed and the round, and with "availability" on `absent`.
        sizes : int64[n] or float64[n], optional
            Number of points of each device, or their weight, by which clients are drawn; None: all are alike.
        absent : callable, optional
            Returns the unavailable devices in the round that begins, bool[N]; None: all are available.
        """
        from topologies import CSRGraph, TimeVaryingGraph

        count = self.count(star.clients)
        union = CSRGraph(star.indptr, star.indices, name=f"{count:,} of {star.clients:,} clients")
        # A link leads from a client to the server, which is the last device, or back.
        ends = np.minimum(star.sources, star.indices)
        odds = None if sizes is None or self.by != "size" else sizes[: star.clients]
        active = partial(_mark_links, ends, count, shared_key(seed), odds)
        if self.by == "availability":
            active = partial(_mark_links_online, ends, count, shared_key(seed), absent)
        return replace(star, varying=TimeVaryingGraph(union, None, active, checked=True))


def _mark_links(clients: Integers, count: int, key: int, odds: Integers | Floats | None, t: int) -> Mask:
    """Mark the links of the clients that are asked in round t, bool[e]; `clients`: the client of each link."""
    draws = uniforms(key, Stream.ASKED, [t], len(clients) // 2)[0]
    if odds is not None:
        # The smallest of independent exponential times with these rates are a draw without replacement (Efraimidis and
        # Spirakis 2006). math.log instead of np.log, whose last bits differ between processors.
        rates = zip(draws.tolist(), odds.tolist(), strict=True)
        draws = np.array([-math.log(1.0 - draw) / rate if rate else math.inf for draw, rate in rates])
    asked = np.zeros(len(draws), np.bool_)
    asked[np.argsort(draws, kind="stable")[:count]] = True
    return asked[clients]


def _mark_links_online(clients: Integers, count: int, key: int, absent: Callable[[], Mask | None], t: int) -> Mask:
    """Mark the links of the clients that are asked among those available in round t, which is the current one."""
    draws = uniforms(key, Stream.ASKED, [t], len(clients) // 2)[0]
    away = absent()
    online = np.ones(len(draws), np.bool_) if away is None else ~away[: len(draws)]
    # Who is unavailable comes after all others.
    asked = np.zeros(len(draws), np.bool_)
    asked[np.argsort(np.where(online, draws, math.inf), kind="stable")[:count]] = True
    return (asked & online)[clients]
