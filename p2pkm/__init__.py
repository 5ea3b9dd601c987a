"""Decentralized peer-to-peer k-means on communication graphs, with or without MPI.

Import costs nothing: every name below is loaded when it is first used.

>>> import p2pkm, topologies
>>> X, y = p2pkm.grid16(points=50, seed=0)
>>> device = p2pkm.partition.dirichlet(y, 16, alpha=0.3, seed=0)
>>> shards = p2pkm.Shards.deal(X, device, devices=16, labels=y)
>>> result = p2pkm.simulate(p2pkm.GTVMin(16), topologies.ring(16), shards)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p2pkm.algorithms.admm import ADMM as ADMM
    from p2pkm.algorithms.alone import Alone as Alone
    from p2pkm.algorithms.central import Central as Central
    from p2pkm.algorithms.consensus import ConsensusLloyd as ConsensusLloyd
    from p2pkm.algorithms.coreset import Coreset as Coreset
    from p2pkm.algorithms.feca import FeCA as FeCA
    from p2pkm.algorithms.ffcm import FFCM as FFCM
    from p2pkm.algorithms.fkm import FKM as FKM
    from p2pkm.algorithms.fkmeanscb import FKMeansCB as FKMeansCB
    from p2pkm.algorithms.gossip import GossipMatching as GossipMatching
    from p2pkm.algorithms.gtvmin import GTVMin as GTVMin
    from p2pkm.algorithms.kfed import KFED as KFED
    from p2pkm.algorithms.mavg import MAvg as MAvg
    from p2pkm.algorithms.mufc import MUFC as MUFC
    from p2pkm.algorithms.pushsum import PushSumLloyd as PushSumLloyd
    from p2pkm.algorithms.tracking import TrackingLloyd as TrackingLloyd
    from p2pkm.data import partition as partition
    from p2pkm.data.communities import communities as communities
    from p2pkm.data.files import read_table as read_table
    from p2pkm.data.shards import Shards as Shards
    from p2pkm.data.sources import balls as balls
    from p2pkm.data.sources import blobs as blobs
    from p2pkm.data.sources import digits as digits
    from p2pkm.data.sources import grid16 as grid16
    from p2pkm.data.sources import iris as iris
    from p2pkm.data.sources import slike as slike
    from p2pkm.data.sources import wine as wine
    from p2pkm.errors import DataError as DataError
    from p2pkm.errors import ExperimentError as ExperimentError
    from p2pkm.errors import NetworkError as NetworkError
    from p2pkm.errors import P2PKMError as P2PKMError
    from p2pkm.errors import TopologyError as TopologyError
    from p2pkm.estimator import P2PKMeans as P2PKMeans
    from p2pkm.loading import load as load
    from p2pkm.paths import coupling_path as coupling_path
    from p2pkm.reporting import partition_report as partition_report
    from p2pkm.result import Result as Result
    from p2pkm.rows import Study as Study
    from p2pkm.rows import load_study as load_study
    from p2pkm.simulation import simulate as simulate
    from p2pkm.topology import Topology as Topology

__version__ = "0.1.0"  # the one place: the package, `--version` and every manifest take it from here

_HOMES = {
    "ADMM": "p2pkm.algorithms.admm",
    "Alone": "p2pkm.algorithms.alone",
    "Central": "p2pkm.algorithms.central",
    "ConsensusLloyd": "p2pkm.algorithms.consensus",
    "Coreset": "p2pkm.algorithms.coreset",
    "FeCA": "p2pkm.algorithms.feca",
    "FFCM": "p2pkm.algorithms.ffcm",
    "FKM": "p2pkm.algorithms.fkm",
    "FKMeansCB": "p2pkm.algorithms.fkmeanscb",
    "GossipMatching": "p2pkm.algorithms.gossip",
    "GTVMin": "p2pkm.algorithms.gtvmin",
    "KFED": "p2pkm.algorithms.kfed",
    "MAvg": "p2pkm.algorithms.mavg",
    "MUFC": "p2pkm.algorithms.mufc",
    "P2PKMeans": "p2pkm.estimator",
    "PushSumLloyd": "p2pkm.algorithms.pushsum",
    "TrackingLloyd": "p2pkm.algorithms.tracking",
    "communities": "p2pkm.data.communities",
    "Shards": "p2pkm.data.shards",
    "Result": "p2pkm.result",
    "Topology": "p2pkm.topology",
    "simulate": "p2pkm.simulation",
    "coupling_path": "p2pkm.paths",
    "load": "p2pkm.loading",
    "Study": "p2pkm.rows",
    "load_study": "p2pkm.rows",
    "read_table": "p2pkm.data.files",
    "partition_report": "p2pkm.reporting",
    **dict.fromkeys(("DataError", "ExperimentError", "NetworkError", "P2PKMError", "TopologyError"), "p2pkm.errors"),
    **dict.fromkeys(("balls", "blobs", "digits", "grid16", "iris", "slike", "wine"), "p2pkm.data.sources"),
}
__all__ = [*sorted(_HOMES), "partition"]


def __getattr__(name: str) -> Any:
    if name == "partition":
        return import_module("p2pkm.data.partition")
    if name not in _HOMES:
        raise AttributeError(f"module 'p2pkm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
