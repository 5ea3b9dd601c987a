"""Keeping a run between two rounds, and taking it up again on any number of ranks."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from p2pkm.core.batch import Devices, Floats, Kernels
from p2pkm.core.states import Checkpointable, unnamed
from p2pkm.data.shards import Shards
from p2pkm.engine.active_links import ActiveLinks
from p2pkm.engine.loop import StageState
from p2pkm.engine.state_tree import fingerprint, gather
from p2pkm.metrics.monitor import Monitor


class CheckpointSink(Protocol):
    """Where rank 0 puts the checkpoints of a run, and when; `p2pkm.storage.checkpoint` writes them into a folder."""

    @property
    def open(self) -> bool:
        """Return whether there are ever any."""

    def due(self, t: int) -> bool:
        """Return whether it is time for one after round t of a stage."""

    def start_timer(self) -> None:
        """Take the time from which on a checkpoint is being made."""

    def report_unavailable(self, reason: str) -> None:
        """Report why there are none in this run."""

    def put(self, outline: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Write one: the outline of the tree, and its arrays in device order."""


class Checkpointer:
    """Checkpoints of one run; see `p2pkm.engine.loop.SupportsCheckpoints` for the meaning of each method.

    Parameters
    ----------
    monitor : Monitor
    vault : CheckpointSink or None
        Where checkpoints go; rank 0 alone may have one, and then all ranks take part.
    own : Shards
        The points of this rank as they came, before any scaling.
    kernels : Kernels
    saved : dict or None
        The tree that an earlier run was kept as.

    Attributes
    ----------
    scaling : tuple of (float64[n, d], float64[n, d]) or None
        Shift and span of the own devices, once they are known.
    filling : float64[n, d] or None
        What missing values of the own devices became, once that is known.
    choice : dict or None
        The number of clusters that was chosen and why, once it is known, see `p2pkm.engine.preliminaries`.
    """

    def __init__(
        self,
        monitor: Monitor,
        vault: CheckpointSink | None,
        own: Shards,
        kernels: Kernels,
        saved: dict[str, Any] | None,
    ) -> None:
        self._monitor, self._vault, self._own, self._kernels, self._saved = monitor, vault, own, kernels, saved
        self._done, self._marks = False, None
        self._lasting: Mapping[str, Checkpointable] = {}
        kept = saved and saved["scaling"]
        self.scaling: tuple[Floats, Floats] | None = (kept["shift"], kept["span"]) if kept else None
        self.filling: Floats | None = saved["filling"] if saved else None
        self.choice: dict[str, Any] | None = saved["choice"] if saved else None
        if saved:
            monitor.restore(saved["monitor"])

    def watch(self, lasting: Mapping[str, Checkpointable]) -> None:
        """Keep these from now on, too, each under its name."""
        self._lasting = lasting

    @property
    def open(self) -> bool:
        """Return whether anything will be kept from now on."""
        return self._vault is not None and self._vault.open and not self._done

    def due(self, t: int) -> bool:
        """Return whether it is time after round t of a stage."""
        return self._vault is not None and not self._done and self._vault.due(t)

    def keep(self, scene: StageState, devices: Devices, links: ActiveLinks, *, last: bool) -> None:
        """Keep a scene; a run that is asked to stop keeps one and no more."""
        if self._done:
            return
        self._done, network = last, self._monitor.network
        strange = unnamed(scene.state)  # of a plug-in; the same on all ranks
        if strange:
            self._done = True
            if self._vault is not None:
                self._vault.report_unavailable(
                    f"{', '.join(strange)} is not registered, see p2pkm.core.states.register"
                )
            return
        if self._vault is not None:
            self._vault.start_timer()
        if self._marks is None:
            self._marks = fingerprint(self._own, self._kernels)
        narrowed = network.total(np.array([not devices.active_edges.all()], np.int64))[0] > 0
        tree = {
            "marks": self._marks,
            "scaling": None if self.scaling is None else dict(zip(("shift", "span"), self.scaling, strict=True)),
            "filling": self.filling,
            "choice": self.choice,
            "scene": {"stop": scene.stop, "round": scene.round, "turn": scene.turn, "state": scene.state},
            "edge_active": devices.active_edges if narrowed else None,
            "edge_degrees": devices.neighbor_degrees if narrowed else None,
            "network": network.snapshot(), "links": links.snapshot(), "monitor": self._monitor.snapshot(),
            "lasting": {name: kept for name, one in self._lasting.items() if (kept := one.snapshot())},
        }  # fmt: skip
        arrays: dict[str, Any] = {}
        outline = gather(tree, network, arrays)
        if self._vault is not None:
            self._vault.put(outline, arrays)

    def resume(self, devices: Devices) -> tuple[int, Devices] | None:
        """Return in which stage a run is taken up, and with which links; those before the recipe do not count."""
        saved = self._saved
        if saved is None:
            return None
        if saved["edge_active"] is not None:
            devices = devices.with_active_edges(saved["edge_active"], saved["edge_degrees"])
        before = sum(one is not None for one in (self.filling, self.scaling, self.choice))
        return saved["network"]["stage"] - before, devices

    def restore(self, links: ActiveLinks) -> StageState | None:
        """Return the scene that a run is taken up from, once."""
        saved, self._saved = self._saved, None
        if saved is None:
            return None
        for name, kept in saved["lasting"].items():
            self._lasting[name].restore(kept)
        links.restore(saved["links"])
        inbox = self._monitor.network.restore(saved["network"])
        at = saved["scene"]
        return StageState(at["state"], inbox, at["stop"], at["round"], at["turn"])
