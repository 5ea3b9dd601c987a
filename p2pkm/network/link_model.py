"""Link models: latency, bandwidth and speed of links and devices, by profile or from attributes of the graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import ContractError, ExperimentError, TopologyError
from p2pkm.core.program_function import check_returned, is_function, name_function
from p2pkm.core.program_object import ProgramObject
from p2pkm.core.spec import Spec, read_value, suggest
from p2pkm.network.graph import LARGE, Topology

# Limits of all parameters, within which simulated times stay finite and above 0.
_LEAST, _MOST = 1e-30, 1e30
_PARAMETERS = ("latency", "bandwidth", "access", "speed", "server_access", "server_speed")
_OPTIONAL = {"bandwidth", "access", "server_access", "server_speed"}
_RANGE = f"a latency up to {_MOST:g}, all others from {_LEAST:g}"


@dataclass(frozen=True)
class LinkModel:
    """Link model: speed of devices and links, equal for all unless the graph has attributes.

    Created by one class method per profile, such as ``LinkModel.wan(latency=0.05)``.

    Attributes
    ----------
    profile : str
        Name of the profile.
    latency : float
        Latency of a message in seconds, in addition to the transfer of its bytes.
    bandwidth : float or None
        Bytes per second of a link in each direction; None: not limited.
    access : float or None
        Bytes per second of the access line of a device, shared by all of its transfers; None: not limited.
    speed : float
        Floating-point operations per second of a device.
    server_access, server_speed : float or None
        Access and speed of a server; None: those of devices.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

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
        """Validate the parameters: simulated times must be finite and above 0."""
        for name in _PARAMETERS:
            value = vars(self)[name]
            if not (_is_usable(value, name) if value is not None else name in _OPTIONAL):
                raise ExperimentError(
                    f"link model {self.profile}:{name} is {value!r}; expected a number above 0, {_RANGE}"
                )

    def __str__(self) -> str:
        """Return the text for the command line, such as ``wan:latency=0.05``, without defaults of the profile."""
        defaults = vars(PROFILES[self.profile]())
        changed = {name: vars(self)[name] for name in _PARAMETERS if vars(self)[name] != defaults[name]}
        return str(Spec(self.profile, {name: "none" if value is None else value for name, value in changed.items()}))

    @classmethod
    def of(cls, value: Any) -> "LinkModel | LinkFunction | None":
        """Parse the text of a link model, see `p2pkm.core.spec.read_value`; models and None are returned unchanged.

        A function, or the `ProgramObject` of one, becomes a `LinkFunction`.
        """
        if isinstance(value, ProgramObject):
            return LinkFunction(value.value, str(value))
        if is_function(value):
            return LinkFunction(value, name_function(value))
        if value is None or isinstance(value, LinkFunction):
            return value
        return read_value(LinkModel, value, PROFILES, "link model")

    @classmethod
    def lan(
        cls,
        *,
        latency: float = 2.5e-4,
        bandwidth: float | None = None,
        access: float | None = 1.25e8,
        speed: float = 1e10,
        server_access: float | None = None,
        server_speed: float | None = None,
    ) -> "LinkModel":
        """Return the model of computers in one building or data center, with gigabit Ethernet.

        Latency: half of a round trip of 0.5 ms within a data center (J. Dean, "Numbers everyone should know", LADIS
        2009). Access: 1 Gbit/s (IEEE 802.3ab). Speed: 10 Gflop/s, a round number for one core.
        """
        return cls("lan", latency, bandwidth, access, speed, server_access, server_speed)

    @classmethod
    def wan(
        cls,
        *,
        latency: float = 0.075,
        bandwidth: float | None = 8.3e6,
        access: float | None = 1.25e8,
        speed: float = 1e10,
        server_access: float | None = None,
        server_speed: float | None = None,
    ) -> "LinkModel":
        """Return the model of data centers on several continents.

        Latency: half of a round trip of 150 ms between California and the Netherlands (J. Dean, LADIS 2009). Bandwidth:
        1/15 of 1 Gbit/s, the mean ratio of bandwidth between regions to bandwidth within a data center (Hsieh et
        al., "Gaia", NSDI 2017, section 2). Access and speed as in `lan`.
        """
        return cls("wan", latency, bandwidth, access, speed, server_access, server_speed)

    @classmethod
    def edge(
        cls,
        *,
        latency: float = 0.035,
        bandwidth: float | None = None,
        access: float | None = 7.5e5,
        speed: float = 1e9,
        server_access: float | None = None,
        server_speed: float | None = None,
    ) -> "LinkModel":
        """Return the model of phones in a mobile network.

        Access: 6 Mbit/s, the median uplink of LTE, and latency: half of a round trip of 70 ms (Huang et al., "A close
        examination of performance and power characteristics of 4G LTE networks", MobiSys 2012). Speed: 1 Gflop/s, a
        round number for one low-power core.
        """
        return cls("edge", latency, bandwidth, access, speed, server_access, server_speed)

    @classmethod
    def lora(
        cls,
        *,
        latency: float = 0.046,
        bandwidth: float | None = None,
        access: float | None = 684.0,
        speed: float = 1e6,
        server_access: float | None = None,
        server_speed: float | None = None,
    ) -> "LinkModel":
        """Return the model of sensors with LoRa radio at spreading factor 7 and 125 kHz.

        Access: 5470 bit/s, data rate 5 of LoRaWAN's EU863-870 (LoRa Alliance, RP002). Latency: the time on air of a
        frame with 13 bytes of headers and an empty payload (Semtech SX1276 data sheet, section 4.1.1.7: 45.25 symbols
        of 1.024 ms). Speed: 1 Mflop/s, a round number for a microcontroller with software double precision. With a
        duty cycle of 1 % (ETSI EN 300 220), use ``access=6.84``.
        """
        return cls("lora", latency, bandwidth, access, speed, server_access, server_speed)

    def check_devices(self, devices: int) -> None:
        """Reject more than `LARGE` devices: above, the ledger does not store single messages."""
        _check_devices(devices, str(self))

    def place(self, topology: Topology, graph: Any = None) -> "LinkParameters":
        """Return the parameters of every device and link of a topology; attributes of the graph take precedence.

        Parameters
        ----------
        topology : Topology
        graph : networkx.Graph, optional
            Graph of the topology, with optional edge attributes `latency` and `bandwidth` and node attributes `access`
            and `speed`, as numbers or texts with units (5ms, 10Mbit); other types of graphs have none of them.

        Raises
        ------
        ExperimentError, TopologyError
            If there are too many devices, or an attribute is out of range.
        """
        self.check_devices(topology.n)
        n, e = topology.n, len(topology.indices)
        access, speed = np.full(n, _or_inf(self.access)), np.full(n, self.speed)
        if topology.hub >= 0:
            access[topology.hub] = _or_inf(self.server_access or self.access)
            speed[topology.hub] = self.server_speed or self.speed
        net = LinkParameters(np.full(e, self.latency), np.full(e, _or_inf(self.bandwidth)), access, speed)
        if hasattr(graph, "edges") and hasattr(graph, "nodes"):
            _read_attributes(net, topology, graph)
        return net


@dataclass(frozen=True)
class LinkFunction:
    """Link model that is a function of a program.

    Attributes
    ----------
    function : callable
        Takes the `Topology` and returns a dict with any of latency, bandwidth, access and speed, in the units of
        `LinkParameters`: a number for all, or an array. The others are those of the profile "lan".
    name : str
    """

    function: Callable[[Topology], Mapping[str, Any]]
    name: str

    def __str__(self) -> str:
        return self.name

    def check_devices(self, devices: int) -> None:
        """Reject too many devices, as `LinkModel.check_devices` does."""
        _check_devices(devices, self.name)

    def place(self, topology: Topology, graph: Any = None) -> "LinkParameters":
        """Call the function; attributes of the graph take precedence, as in `LinkModel.place`.

        Raises
        ------
        ContractError
            If the function returns another key, a wrong shape, or a number out of range.
        """
        net = LinkModel.lan().place(topology)
        returned = self.function(topology)
        if not isinstance(returned, Mapping):
            raise ContractError(
                f"link_model={self.name} returned {type(returned).__name__}; expected a dict with any of "
                f"{', '.join(net._fields)}"
            )
        for key, value in returned.items():
            if key not in net._fields:
                raise ContractError(
                    f"link_model={self.name} returned the key {key!r}. {suggest(str(key), net._fields)}"
                )
            values = getattr(net, key)
            meaning = f"{key} of each {'directed link' if key in ('latency', 'bandwidth') else 'device'}"
            filled = np.broadcast_to(value, values.shape) if np.ndim(value) == 0 else value
            values[:] = check_returned(filled, values.shape, f"{key} of link_model={self.name}", meaning)
            least = 0.0 if key == "latency" else _LEAST
            most = _MOST if key == "latency" else inf
            wrong = (values < least) | (values > most)
            if wrong.any():
                raise ContractError(
                    f"{key} of link_model={self.name} is {values[wrong][0]:g}; expected numbers above 0, {_RANGE}"
                )
        if hasattr(graph, "edges") and hasattr(graph, "nodes"):
            _read_attributes(net, topology, graph)
        return net


def _check_devices(devices: int, model: str) -> None:
    if devices > LARGE:
        raise ExperimentError(
            f"number of devices is {devices:,}; expected at most {LARGE:,} with --link-model {model}: simulated "
            "time requires every single message. Remove --link-model, or use fewer devices"
        )


PROFILES: Mapping[str, Callable[..., LinkModel]] = {
    "lan": LinkModel.lan,
    "wan": LinkModel.wan,
    "edge": LinkModel.edge,
    "lora": LinkModel.lora,
}


class LinkParameters(NamedTuple):
    """Parameters of every device and directed edge of a topology.

    Attributes
    ----------
    latency, bandwidth : float64[e]
        Latency in seconds; bytes per second, +inf: not limited.
    access, speed : float64[n]
        Bytes per second of the access line, +inf: not limited; floating-point operations per second.
    """

    latency: Floats
    bandwidth: Floats
    access: Floats
    speed: Floats


def _or_inf(value: float | None) -> float:
    """Return the value, or +inf for None."""
    return inf if value is None else value


def _read_attributes(net: LinkParameters, topology: Topology, graph: Any) -> None:
    """Replace the parameters of nodes and links by attributes of the graph."""
    number, n = topology.number(graph), topology.n
    for name in ("access", "speed"):
        for node, value in graph.nodes(data=name):
            if value is not None:
                getattr(net, name)[number[node]] = _check(value, name, f"node {node!r}")
    # Ascending, since edges are sorted by source and then by neighbor.
    places = topology.sources * n + topology.indices
    for name in ("latency", "bandwidth"):
        for u, v, value in graph.edges(data=name):
            if value is not None:
                i, j = number[u], number[v]
                edges = np.searchsorted(places, (i * n + j, j * n + i))
                getattr(net, name)[edges] = _check(value, name, f"link {u!r} - {v!r}")


def _check(value: object, name: str, where: str) -> float:
    """Validate an attribute: a number above 0, or a latency of at least 0."""
    from topologies.units import EXAMPLES, parse_quantity

    number = parse_quantity(value, name) if isinstance(value, str) else value
    if isinstance(number, Real) and not isinstance(number, bool) and _is_usable(float(number), name):
        return float(number)
    raise TopologyError(
        f"attribute {name} of {where} is {value!r}; expected a finite number above 0, {_RANGE}, or a text with a unit "
        f"such as {EXAMPLES[name]}"
    )


def _is_usable(value: float, name: str) -> bool:
    """Return whether simulated times with this parameter are finite."""
    return 0 <= value <= _MOST if name == "latency" else _LEAST <= value < inf
