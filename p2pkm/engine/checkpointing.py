"""Checkpoints of a run: saving between two rounds, and resuming on any number of ranks.

A checkpoint is a tree of states and plain values, see `p2pkm.engine.state_tree`. This module decides what the tree
contains. `p2pkm.storage.checkpoint` writes and reads the files.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from p2pkm.core.allocator import trim_if_large
from p2pkm.core.batch import Devices, Floats, Kernels
from p2pkm.core.states import Checkpointable, unnamed
from p2pkm.data.shards import Shards
from p2pkm.engine.active_links import ActiveLinks
from p2pkm.engine.loop import StageState
from p2pkm.engine.state_tree import fingerprint, gather
from p2pkm.metrics.monitor import Monitor


class CheckpointSink(Protocol):
    """Destination of checkpoints on rank 0; `p2pkm.storage.checkpoint` implements it with files in the run folder."""

    @property
    def is_enabled(self) -> bool:
        """Whether this run writes checkpoints at all."""

    def is_due(self, t: int) -> bool:
        """Check whether a checkpoint must be written after round t of a stage."""

    def start_timer(self) -> None:
        """Note the time at which the ranks begin to collect a checkpoint."""

    def report_unavailable(self, reason: str) -> None:
        """Tell the user why this run cannot write checkpoints."""

    def put(self, outline: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Write a checkpoint: the outline of its tree, and its arrays in device order."""


class Checkpointer:
    """Checkpoints of one run, the implementation of `p2pkm.engine.loop.SupportsCheckpoints`.

    Parameters
    ----------
    monitor : Monitor
    sink : CheckpointSink or None
        Destination of the checkpoints, on rank 0 only. All ranks take part in saving.
    shards : Shards
        The original points of this rank, before imputation and scaling.
    kernels : Kernels
    saved : dict or None
        This rank's part of the checkpoint to resume from.

    Attributes
    ----------
    scaling : tuple of (float64[n, d], float64[n, d]) or None
        Shift and span of each local device, once they are known.
    filling : float64[n, d] or None
        Replacement of missing values at each local device, once it is known.
    choice : dict or None
        Number of clusters that the devices chose, once it is known, see `p2pkm.engine.preliminaries.choose`.
    """

    def __init__(
        self,
        monitor: Monitor,
        sink: CheckpointSink | None,
        shards: Shards,
        kernels: Kernels,
        saved: dict[str, Any] | None,
    ) -> None:
        self._monitor = monitor
        self._sink = sink
        self._shards = shards
        self._kernels = kernels
        self._saved = saved
        self._is_finished = False
        # Fingerprint of the original points. Computed for the first checkpoint, since most runs do not write any.
        self._fingerprint: Any = None
        self._checkpointed: Mapping[str, Checkpointable] = {}
        scaling = saved and saved["scaling"]
        self.scaling: tuple[Floats, Floats] | None = (scaling["shift"], scaling["span"]) if scaling else None
        self.filling: Floats | None = saved["filling"] if saved else None
        self.choice: dict[str, Any] | None = saved["choice"] if saved else None
        if saved:
            monitor.restore(saved["monitor"])

    def watch(self, parts: Mapping[str, Checkpointable]) -> None:
        """Add objects, by name, whose snapshots belong to every checkpoint."""
        self._checkpointed = parts

    @property
    def is_enabled(self) -> bool:
        """Whether any checkpoint will be written from now on."""
        return self._sink is not None and self._sink.is_enabled and not self._is_finished

    def is_due(self, t: int) -> bool:
        """Check whether a checkpoint must be written after round t of a stage."""
        return self._sink is not None and not self._is_finished and self._sink.is_due(t)

    def save(self, stage_state: StageState, devices: Devices, links: ActiveLinks, *, last: bool) -> None:
        """Write a checkpoint; the last one of a run that is stopped prevents any other."""
        if self._is_finished:
            return
        self._is_finished = last
        # A state class of a plug-in that is not registered cannot be restored. All ranks find the same ones.
        unregistered = unnamed(stage_state.state)
        if unregistered:
            self._is_finished = True
            if self._sink is not None:
                self._sink.report_unavailable(
                    f"{', '.join(unregistered)} is not registered, see p2pkm.core.states.register"
                )
            return
        if self._sink is not None:
            self._sink.start_timer()
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self._shards, self._kernels)
        trim_if_large(len(devices))
        arrays: dict[str, Any] = {}
        outline = gather(self._build_tree(stage_state, devices, links), self._monitor.network, arrays)
        if self._sink is not None:
            self._sink.put(outline, arrays)

    def _build_tree(self, stage_state: StageState, devices: Devices, links: ActiveLinks) -> dict[str, Any]:
        """Collect the state of the run on this rank; the keys are part of the file format."""
        network = self._monitor.network
        # Edges are saved on all ranks if any rank has an inactive one: `gather` needs the same tree everywhere.
        has_inactive_edges = network.total(np.array([not devices.active_edges.all()], np.int64))[0] > 0
        snapshots = {name: part.snapshot() for name, part in self._checkpointed.items()}
        position = {"stop": stage_state.stop, "round": stage_state.round, "turn": stage_state.turn}
        return {
            "marks": self._fingerprint,
            "scaling": None if self.scaling is None else dict(zip(("shift", "span"), self.scaling, strict=True)),
            "filling": self.filling,
            "choice": self.choice,
            "scene": position | {"state": stage_state.state},
            "edge_active": devices.active_edges if has_inactive_edges else None,
            "edge_degrees": devices.neighbor_degrees if has_inactive_edges else None,
            "network": network.snapshot(),
            "links": links.snapshot(),
            "monitor": self._monitor.snapshot(),
            "lasting": {name: snapshot for name, snapshot in snapshots.items() if snapshot},
        }

    def resume(self, devices: Devices) -> tuple[int, Devices] | None:
        """Return the number of the stage to resume, and the batch with its links; None for a new run.

        Preliminary stages (imputation, scaling, choice of k) are not counted: `p2pkm.engine.loop.run` does not run
        them.
        """
        saved = self._saved
        if saved is None:
            return None
        if saved["edge_active"] is not None:
            devices = devices.with_active_edges(saved["edge_active"], saved["edge_degrees"])
        preliminary = sum(result is not None for result in (self.filling, self.scaling, self.choice))
        return saved["network"]["stage"] - preliminary, devices

    def restore(self, links: ActiveLinks) -> StageState | None:
        """Restore the saved state of the run on the first call; None on later calls and for a new run."""
        saved, self._saved = self._saved, None
        if saved is None:
            return None
        for name, snapshot in saved["lasting"].items():
            self._checkpointed[name].restore(snapshot)
        links.restore(saved["links"])
        inbox = self._monitor.network.restore(saved["network"])
        position = saved["scene"]
        return StageState(position["state"], inbox, position["stop"], position["round"], position["turn"])
