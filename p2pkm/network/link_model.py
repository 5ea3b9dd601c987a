"""Link models: how fast devices compute and links carry, by profile or as attributes of the graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.spec import Spec, read_value
from p2pkm.network.graph import LARGE, Topology

_LEAST, _MOST = 1e-30, 1e30
_FIGURES = ("latency", "bandwidth", "access", "speed", "server_access", "server_speed")
_OPEN = {"bandwidth", "access", "server_access", "server_speed"}  # may be None
_RANGE = f"a latency up to {_MOST:g}, all others from {_LEAST:g}"


@dataclass(frozen=True)
class LinkModel:
    """How fast devices compute and links carry, the same for all of them unless the graph has attributes of its own.

    Made by the functions below, each with the figures of a profile, such as ``LinkModel.wan(latency=0.05)``.

    Attributes
    ----------
    profile : str
    latency : float
        Seconds that a message takes beside the transfer of its bytes.
    bandwidth : float or None
        Bytes per second of a link, each way; None: links never limit.
    access : float or None
        Bytes per second of the one line that all transfers of a device share; None: it never limits.
    speed : float
        Floating-point operations per second of a device.
    server_access, server_speed : float or None
        The same of a server; None: as the devices.

    Raises
    ------
    ExperimentError
        If a figure is out of range.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.LinkModel.of("wan").latency, p2pkm.LinkModel.wan(latency=0.05).latency
    (0.075, 0.05)
    """

    profile: str
    latency: float
    bandwidth: float | None
    access: float | None
    speed: float
    server_access: float | None = None
    server_speed: float | None = None

    def __post_init__(self) -> None:
        """Refuse figures that make times infinite or nothing."""
        for name in _FIGURES:
            value = vars(self)[name]
            if not (_usable(value, name) if value is not None else name in _OPEN):
                raise ExperimentError(
                    f"link model {self.profile}:{name} is {value!r}; expected a number above 0, {_RANGE}"
                )

    def __str__(self) -> str:
        """Return the text of the command line, such as ``wan:latency=0.05``: figures that are not the profile's."""
        usual = vars(PROFILES[self.profile]())
        given = {name: vars(self)[name] for name in _FIGURES if vars(self)[name] != usual[name]}
        return str(Spec(self.profile, {name: "none" if value is None else value for name, value in given.items()}))

    @classmethod
    def of(cls, given: "LinkModel | str | None") -> "LinkModel | None":
        """Return the value of a text; a value and None stay as they are, see `p2pkm.core.spec.read_value`."""
        return None if given is None else read_value(LinkModel, given, PROFILES, "link model")

    @classmethod
    def lan(
        cls, *, latency: float = 2.5e-4, bandwidth: float | None = None, access: float | None = 1.25e8, speed: float =
        1e10, server_access: float | None = None, server_speed: float | None = None,
    ) -> "LinkModel":  # fmt: skip
        """Connect computers of one building or data center by gigabit Ethernet.

        Latency: half of a round trip of 0.5 ms within a data center (J. Dean, "Numbers everyone should know", LADIS
        2009). Access: 1 Gbit/s (IEEE 802.3ab). Speed: 10 Gflop/s, a round number for one core.
        """
        return cls("lan", latency, bandwidth, access, speed, server_access, server_speed)

    @classmethod
    def wan(
        cls, *, latency: float = 0.075, bandwidth: float | None = 8.3e6, access: float | None = 1.25e8, speed: float =
        1e10, server_access: float | None = None, server_speed: float | None = None,
    ) -> "LinkModel":  # fmt: skip
        """Connect data centers on several continents.

        Latency: half of a round trip of 150 ms between California and the Netherlands (J. Dean, LADIS 2009). Bandwidth:
        a 15th of 1 Gbit/s; so much less than within a data center do links between regions carry on average (Hsieh et
        al., "Gaia", NSDI 2017, section 2). Access and speed as `lan`.
        """
        return cls("wan", latency, bandwidth, access, speed, server_access, server_speed)

    @classmethod
    def edge(
        cls, *, latency: float = 0.035, bandwidth: float | None = None, access: float | None = 7.5e5, speed: float =
        1e9, server_access: float | None = None, server_speed: float | None = None,
    ) -> "LinkModel":  # fmt: skip
        """Connect phones over a mobile network.

        Access: 6 Mbit/s, the median uplink of LTE, and latency: half of a round trip of 70 ms (Huang et al., "A close
        examination of performance and power characteristics of 4G LTE networks", MobiSys 2012). Speed: 1 Gflop/s, a
        round number for one core that has to save power.
        """
        return cls("edge", latency, bandwidth, access, speed, server_access, server_speed)

    @classmethod
    def lora(
        cls, *, latency: float = 0.046, bandwidth: float | None = None, access: float | None = 684.0, speed: float =
        1e6, server_access: float | None = None, server_speed: float | None = None,
    ) -> "LinkModel":  # fmt: skip
        """Connect sensors by LoRa radio at spreading factor 7 and 125 kHz.

        Access: 5470 bit/s, data rate 5 of LoRaWAN's EU863-870 (LoRa Alliance, RP002). Latency: the time on air of a
        frame with 13 bytes of headers and nothing else (Semtech SX1276 data sheet, section 4.1.1.7: 45.25 symbols of
        1.024 ms). Speed: 1 Mflop/s, a round number for a microcontroller that computes in double precision by software.
        Where a sender may use 1 % of the time (ETSI EN 300 220), say ``access=6.84``.
        """
        return cls("lora", latency, bandwidth, access, speed, server_access, server_speed)

    def check_devices(self, devices: int) -> None:
        """Refuse more devices than those whose messages are kept, with an ExperimentError."""
        if devices > LARGE:
            raise ExperimentError(
                f"link model {self}: virtual time needs every message of every device, which are not kept above "
                f"{LARGE:,} devices; there are {devices:,}. Leave --link-model out, or take fewer devices"
            )

    def place(self, topology: Topology, graph: Any = None) -> "LinkParameters":
        """Return the figures of every device and link of a topology: where the graph has attributes, these.

        Parameters
        ----------
        topology : Topology
        graph : networkx.Graph, optional
            What the topology was read from: edge attributes `latency` and `bandwidth`, node attributes `access` and
            `speed`, each where it is given; other kinds of graphs have none.

        Raises
        ------
        ExperimentError, TopologyError
            If there are too many devices, or an attribute cannot be used.
        """
        self.check_devices(topology.n)
        n, e = topology.n, len(topology.indices)
        access, speed = np.full(n, _bounded(self.access)), np.full(n, self.speed)
        if topology.hub >= 0:
            access[topology.hub] = _bounded(self.server_access or self.access)
            speed[topology.hub] = self.server_speed or self.speed
        net = LinkParameters(np.full(e, self.latency), np.full(e, _bounded(self.bandwidth)), access, speed)
        if hasattr(graph, "edges") and hasattr(graph, "nodes"):
            _read_attributes(net, topology, graph)
        return net


PROFILES: Mapping[str, Callable[..., LinkModel]] = {
    "lan": LinkModel.lan,
    "wan": LinkModel.wan,
    "edge": LinkModel.edge,
    "lora": LinkModel.lora,
}


class LinkParameters(NamedTuple):
    """What every device and every directed edge of a topology can do.

    Attributes
    ----------
    latency, bandwidth : float64[e]
        Seconds, and bytes per second; +inf: no limit.
    access, speed : float64[n]
        Bytes per second of a device's line, +inf: no limit; operations per second.
    """

    latency: Floats
    bandwidth: Floats
    access: Floats
    speed: Floats


def _bounded(value: float | None) -> float:
    return inf if value is None else value


def _read_attributes(net: LinkParameters, topology: Topology, graph: Any) -> None:
    """Replace the figures of those nodes and links that have their own."""
    number, n = topology.number(graph), topology.n
    for name in ("access", "speed"):
        for node, value in graph.nodes(data=name):
            if value is not None:
                getattr(net, name)[number[node]] = _check(value, name, f"node {node!r}")
    places = topology.sources * n + topology.indices  # ascending
    for name in ("latency", "bandwidth"):
        for u, v, value in graph.edges(data=name):
            if value is not None:
                i, j = number[u], number[v]
                both = np.searchsorted(places, (i * n + j, j * n + i))
                getattr(net, name)[both] = _check(value, name, f"link {u!r} - {v!r}")


def _check(value: object, name: str, where: str) -> float:
    """Return an attribute as a number above 0; a latency may be 0."""
    if isinstance(value, Real) and not isinstance(value, bool):
        figure = float(value)
        if _usable(figure, name):
            return figure
    raise TopologyError(f"attribute {name} of {where} is {value!r}; expected a finite number above 0, {_RANGE}")


def _usable(figure: float, name: str) -> bool:
    """Return whether times that follow from a figure are finite numbers."""
    return 0 <= figure <= _MOST if name == "latency" else _LEAST <= figure < inf
