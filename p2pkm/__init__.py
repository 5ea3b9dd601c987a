"""Decentralized peer-to-peer k-means on communication graphs, with or without MPI.

The import is fast: each public name is loaded when it is first used.

>>> import p2pkm, topologies
>>> X, y = p2pkm.grid16(points=50, seed=0)
>>> device = p2pkm.partition.dirichlet(y, 16, alpha=0.3, seed=0)
>>> shards = p2pkm.Shards.deal(X, device, devices=16, labels=y)
>>> result = p2pkm.simulate(p2pkm.GTVMin(16), topologies.ring(16), shards)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p2pkm import viz as viz
    from p2pkm.channel.byzantine import Byzantine as Byzantine
    from p2pkm.channel.quantization import Quantization as Quantization
    from p2pkm.channel.sampled_faults import Faults as Faults
    from p2pkm.channel.stale_policy import StalePolicy as StalePolicy
    from p2pkm.core.cache import shared_cache as shared_cache
    from p2pkm.core.errors import DataError as DataError
    from p2pkm.core.errors import ExperimentError as ExperimentError
    from p2pkm.core.errors import NetworkError as NetworkError
    from p2pkm.core.errors import P2PKMError as P2PKMError
    from p2pkm.core.errors import TopologyError as TopologyError
    from p2pkm.core.errors import TrainingError as TrainingError
    from p2pkm.data import partition as partition
    from p2pkm.data.describe_table import describe_table as describe_table
    from p2pkm.data.readers.any_format import read_table as read_table
    from p2pkm.data.shards import Shards as Shards
    from p2pkm.data.sources import balls as balls
    from p2pkm.data.sources import blobs as blobs
    from p2pkm.data.sources import breast_cancer as breast_cancer
    from p2pkm.data.sources import digits as digits
    from p2pkm.data.sources import grid16 as grid16
    from p2pkm.data.sources import iris as iris
    from p2pkm.data.sources import slike as slike
    from p2pkm.data.sources import wine as wine
    from p2pkm.data.stream import DataStream as DataStream
    from p2pkm.data.synthetic_communities import communities as communities
    from p2pkm.data.synthetic_mixture import mixture as mixture
    from p2pkm.data.synthetic_shapes import shapes as shapes
    from p2pkm.deep.deep_table import DeepTable as DeepTable
    from p2pkm.deep.deepfeca import DeepFeCA as DeepFeCA
    from p2pkm.deep.deepgossip import DeepGossip as DeepGossip
    from p2pkm.deep.linear_probe import Probe as Probe
    from p2pkm.deep.linear_probe import linear_probe as linear_probe
    from p2pkm.deep.measure_table import deep_table as deep_table
    from p2pkm.experiments.bench.run_bench import Benchmark as Benchmark
    from p2pkm.experiments.bench.run_bench import bench as bench
    from p2pkm.experiments.checking.check_method import check_method as check_method
    from p2pkm.experiments.estimators.estimator import P2PKMeans as P2PKMeans
    from p2pkm.experiments.estimators.scaler import P2PStandardScaler as P2PStandardScaler
    from p2pkm.experiments.simulate import simulate as simulate
    from p2pkm.experiments.studies.compare import compare as compare
    from p2pkm.experiments.studies.coupling_path import coupling_path as coupling_path
    from p2pkm.experiments.studies.sweep import study as study
    from p2pkm.methods.init.value import Init as Init
    from p2pkm.methods.peer.admm import ADMM as ADMM
    from p2pkm.methods.peer.consensus import ConsensusLloyd as ConsensusLloyd
    from p2pkm.methods.peer.coreset import Coreset as Coreset
    from p2pkm.methods.peer.dgc import DGC as DGC
    from p2pkm.methods.peer.epidemic import Epidemic as Epidemic
    from p2pkm.methods.peer.gossip import GossipMatching as GossipMatching
    from p2pkm.methods.peer.gossip_sum import GossipSum as GossipSum
    from p2pkm.methods.peer.gtvmin import GTVMin as GTVMin
    from p2pkm.methods.peer.local_only import LocalOnly as LocalOnly
    from p2pkm.methods.peer.private import Private as Private
    from p2pkm.methods.peer.pushsum import PushSumLloyd as PushSumLloyd
    from p2pkm.methods.peer.tracking import TrackingLloyd as TrackingLloyd
    from p2pkm.methods.server.centralized import Central as Central
    from p2pkm.methods.server.dwfkm import DWFKM as DWFKM
    from p2pkm.methods.server.feca import FeCA as FeCA
    from p2pkm.methods.server.feddp import FedDPKMeans as FedDPKMeans
    from p2pkm.methods.server.fedlloyd import FedLloyd as FedLloyd
    from p2pkm.methods.server.ffcm import FFCM as FFCM
    from p2pkm.methods.server.fkm import FKM as FKM
    from p2pkm.methods.server.fkmeanscb import FKMeansCB as FKMeansCB
    from p2pkm.methods.server.kfed import KFED as KFED
    from p2pkm.methods.server.mavg import MAvg as MAvg
    from p2pkm.methods.server.mufc import MUFC as MUFC
    from p2pkm.methods.tree.treelloyd import TreeLloyd as TreeLloyd
    from p2pkm.metrics.result import Result as Result
    from p2pkm.network.graph import Topology as Topology
    from p2pkm.network.link_model import LinkModel as LinkModel
    from p2pkm.privacy.budget import PrivacyBudget as PrivacyBudget
    from p2pkm.privacy.budget import privacy_budget as privacy_budget
    from p2pkm.privacy.pair_leaks import PairLeaks as PairLeaks
    from p2pkm.privacy.pair_leaks import pair_leaks as pair_leaks
    from p2pkm.storage.load import load as load
    from p2pkm.storage.study_table import Study as Study
    from p2pkm.storage.study_table import load_study as load_study
    from p2pkm.viz.looks import style as style
    from p2pkm.viz.partition_report import partition_report as partition_report

from p2pkm.core.version import __version__ as __version__

_MODULES = {
    "ADMM": "p2pkm.methods.peer.admm",
    "LocalOnly": "p2pkm.methods.peer.local_only",
    "Central": "p2pkm.methods.server.centralized",
    "ConsensusLloyd": "p2pkm.methods.peer.consensus",
    "Coreset": "p2pkm.methods.peer.coreset",
    "DeepFeCA": "p2pkm.deep.deepfeca",
    "DeepGossip": "p2pkm.deep.deepgossip",
    "DWFKM": "p2pkm.methods.server.dwfkm",
    "DGC": "p2pkm.methods.peer.dgc",
    "Epidemic": "p2pkm.methods.peer.epidemic",
    "FeCA": "p2pkm.methods.server.feca",
    "FFCM": "p2pkm.methods.server.ffcm",
    "FedDPKMeans": "p2pkm.methods.server.feddp",
    "FedLloyd": "p2pkm.methods.server.fedlloyd",
    "FKM": "p2pkm.methods.server.fkm",
    "FKMeansCB": "p2pkm.methods.server.fkmeanscb",
    "GossipMatching": "p2pkm.methods.peer.gossip",
    "GossipSum": "p2pkm.methods.peer.gossip_sum",
    "GTVMin": "p2pkm.methods.peer.gtvmin",
    "Init": "p2pkm.methods.init.value",
    "LinkModel": "p2pkm.network.link_model",
    "StalePolicy": "p2pkm.channel.stale_policy",
    "Byzantine": "p2pkm.channel.byzantine",
    "Quantization": "p2pkm.channel.quantization",
    "Faults": "p2pkm.channel.sampled_faults",
    "KFED": "p2pkm.methods.server.kfed",
    "MAvg": "p2pkm.methods.server.mavg",
    "MUFC": "p2pkm.methods.server.mufc",
    "P2PKMeans": "p2pkm.experiments.estimators.estimator",
    "P2PStandardScaler": "p2pkm.experiments.estimators.scaler",
    "Private": "p2pkm.methods.peer.private",
    "PushSumLloyd": "p2pkm.methods.peer.pushsum",
    "TrackingLloyd": "p2pkm.methods.peer.tracking",
    "TreeLloyd": "p2pkm.methods.tree.treelloyd",
    "shared_cache": "p2pkm.core.cache",
    "communities": "p2pkm.data.synthetic_communities",
    "Shards": "p2pkm.data.shards",
    "DataStream": "p2pkm.data.stream",
    "Result": "p2pkm.metrics.result",
    "Topology": "p2pkm.network.graph",
    "Benchmark": "p2pkm.experiments.bench.run_bench",
    "bench": "p2pkm.experiments.bench.run_bench",
    "simulate": "p2pkm.experiments.simulate",
    "check_method": "p2pkm.experiments.checking.check_method",
    "study": "p2pkm.experiments.studies.sweep",
    "compare": "p2pkm.experiments.studies.compare",
    "coupling_path": "p2pkm.experiments.studies.coupling_path",
    "DeepTable": "p2pkm.deep.deep_table",
    "deep_table": "p2pkm.deep.measure_table",
    **dict.fromkeys(("Probe", "linear_probe"), "p2pkm.deep.linear_probe"),
    "PairLeaks": "p2pkm.privacy.pair_leaks",
    "pair_leaks": "p2pkm.privacy.pair_leaks",
    **dict.fromkeys(("PrivacyBudget", "privacy_budget"), "p2pkm.privacy.budget"),
    "load": "p2pkm.storage.load",
    "Study": "p2pkm.storage.study_table",
    "load_study": "p2pkm.storage.study_table",
    "read_table": "p2pkm.data.readers.any_format",
    "describe_table": "p2pkm.data.describe_table",
    "partition_report": "p2pkm.viz.partition_report",
    "style": "p2pkm.viz.looks",
    **dict.fromkeys(
        ("DataError", "ExperimentError", "NetworkError", "P2PKMError", "TopologyError", "TrainingError"),
        "p2pkm.core.errors",
    ),
    **dict.fromkeys(
        ("balls", "blobs", "breast_cancer", "digits", "grid16", "iris", "slike", "wine"), "p2pkm.data.sources"
    ),
    "mixture": "p2pkm.data.synthetic_mixture",
    "shapes": "p2pkm.data.synthetic_shapes",
}
_PACKAGES = {"partition": "p2pkm.data.partition", "viz": "p2pkm.viz"}
__all__ = [*sorted(_MODULES), *_PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(_PACKAGES[name])
    if name not in _MODULES:
        raise AttributeError(f"module 'p2pkm' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
