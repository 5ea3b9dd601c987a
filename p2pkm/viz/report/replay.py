"""The replay of a run: its frames as data for the script of the page, and the elements that the script moves."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.metrics.replay_frames import Frames
from p2pkm.metrics.result import Result
from p2pkm.viz.color_by import read_points
from p2pkm.viz.figures.bytes_per_device import sum_bytes
from p2pkm.viz.figures.convergence import line_up
from p2pkm.viz.graph_layout import place_devices
from p2pkm.viz.projection import choose_projection
from p2pkm.viz.report.encode_arrays import bounding_box, pack, round_singles, shrink_counts, to_steps
from p2pkm.viz.report.html import Html, embed_json, fold, section, tag
from p2pkm.viz.style import CATEGORIES, draw_sample

_FRAMES, _POINTS = 60, 3_000
_KEYS = """Move the slider or press play; with the focus here, the space bar plays and pauses, the arrow keys step, Home
and End jump. Point at a device or a centroid, or tap it, to see the device's figures; its number can be typed, too."""
_DEVICES = {"cost": "cost per point", "disagreement": "disagreement"}
_LINKS = {"sent": "bytes in this step", "gtv": "disagreement (GTV)"}
_FIXED = ("device", "edge_a", "edge_b")  # the same in all frames
_TOLD = ("stage", "round", "ratio_mean", "gtv", "objective", "messages", "bytes", "converged")


def show_replay(result: Result) -> tuple[Html, bool]:
    """Return the section of the replay, and whether there is anything to replay.

    Raises
    ------
    DataError
        If the frames do not belong together.
    """
    if result.frames is None:
        why = "There is none: this folder has no frames.npz. Runs keep one unless they are too large for it, or older."
        return section("Replay", tag("p", why, class_="note"), id="replay"), False
    _check(result.frames)
    frames, left_out = _thin(result.frames), len(result.frames.record) - _FRAMES
    content, notes = _describe(frames, result)
    if left_out > 0:
        notes.insert(0, f"{_FRAMES} of {_FRAMES + left_out} frames are shown.")
    data = embed_json(content, "replay-data")
    return section("Replay", *_lay_out(len(frames.record), notes), data, id="replay"), True


def _check(frames: Frames) -> None:
    """Refuse arrays of different shapes, such as those of a file that somebody has changed."""
    f, v = frames.centroids.shape[:2]
    links = len(frames.edge_a)
    shapes = {"record": (f,), "device": (v,), "cost": (f, v), "disagreement": (f, v), "edge_b": (links,),
              "gtv": (f, links), "bytes": (f, links)}  # fmt: skip
    wrong = [name for name, shape in shapes.items() if getattr(frames, name).shape != shape]
    if wrong:
        raise DataError(f"frames.npz: {', '.join(wrong)} does not match the shape of the centroids")


def _thin(frames: Frames) -> Frames:
    """Return at most 60 frames, evenly spread, the first and the last among them."""
    count = len(frames.record)
    kept = np.unique(np.linspace(0, count - 1, min(count, _FRAMES)).round().astype(np.int64))
    every = {name: array[kept] for name, array in frames._asdict().items() if name not in _FIXED}
    return frames._replace(**every)


def _describe(frames: Frames, result: Result) -> tuple[dict[str, Any], list[str]]:
    """Return what the script draws, and notes on what it does not."""
    topology, census, device = result.topology, result.census, frames.device
    nodes = np.append(device, topology.hub) if topology.hub >= 0 else device
    cloud, arrays, outside = _map_cloud(frames, result)
    places = place_devices(topology)[nodes]
    box = bounding_box(places, places)
    ends = [np.searchsorted(device, end) for end in (frames.edge_a, frames.edge_b)]  # the hub comes last
    arrays |= {
        "places": box.place(places)[0],
        "edgeA": ends[0].astype(np.int32),
        "edgeB": ends[1].astype(np.int32),
        "device": nodes.astype(np.uint32),
        "size": census.sizes[device].astype(np.uint32),
        "degree": topology.degrees[nodes].astype(np.uint32),
        "total": shrink_counts(np.sum(sum_bytes(result), axis=0)[nodes]),
        "cost": round_singles(frames.cost),
        "disagreement": round_singles(frames.disagreement),
        "gtv": round_singles(frames.gtv),
        "sent": shrink_counts(np.diff(frames.bytes, axis=0, prepend=0)),
    }
    whole = len(device) == topology.clients and len(frames.edge_a) == len(topology.indices) // 2
    content = {
        "frames": [_tell_frame(result.rounds[int(number)]) for number in frames.record],
        "at": line_up(result.rounds)[0][frames.record].tolist(),
        "names": None if topology.names is None else [topology.names[i] for i in device],
        "all": topology.n, "devices": len(device), "hub": topology.hub >= 0,
        "links": len(frames.edge_a), "whole": whole,
        "k": frames.centroids.shape[2], "cloud": cloud, "graph": box.to_json(), "classes": list(CATEGORIES),
        **pack(arrays),
    }  # fmt: skip
    return content, _note(content, result, outside)


def _map_cloud(frames: Frames, result: Result) -> tuple[dict[str, Any], dict[str, NDArray[Any]], int]:
    """Return the plane of the points, points and centroids on it, and how many centroids lie too far out."""
    census, flat = result.census, choose_projection(result)
    kept = draw_sample(len(census.sample), _POINTS)
    owner, colored = census.sample_device[kept], read_points(result)
    points, centroids = flat.place(census.sample[kept]), flat.place(frames.centroids.astype(np.float64))
    names, line = flat.names, frames.centroids.shape[3] == 1
    if line:  # every device has its own
        names = (names[0], "device")
        points[:, 1] = owner
        centroids[..., 1] = np.where(np.isnan(centroids[..., 0]), np.nan, frames.device[:, None])
    box = bounding_box(points, centroids.reshape(-1, 2))
    steps, outside = box.place(centroids)
    place = np.minimum(np.searchsorted(frames.device, owner), len(frames.device) - 1)
    shown = np.where(frames.device[place] == owner, place, -1)
    arrays: dict[str, NDArray[Any]] = {
        "centroids": to_steps(steps),
        "points": box.place(points)[0],
        "pointClass": colored.kinds[kept].astype(np.int16),
        "pointDevice": shown.astype(np.int32),
    }
    return {**box.to_json(), "names": names, "note": flat.note, "line": line, "colored": colored.label}, arrays, outside


def _tell_frame(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record.get(name) for name in _TOLD}


def _note(content: dict[str, Any], result: Result, outside: int) -> list[str]:
    """State what the replay leaves out."""
    notes = []
    if not content["whole"]:
        links = len(result.topology.indices) // 2
        notes.append(
            f"Thinned: {content['devices']:,} of {result.topology.clients:,} devices and {content['links']:,} of "
            f"{links:,} links are shown; bytes so far are those of the links shown."
        )
    if result.scaling is not None:
        notes.append("Points and centroids are shown in scaled units.")
    if content["cloud"]["note"]:
        notes.append(f"The points are seen along {content['cloud']['note']}.")
    if len(result.census.sample) > _POINTS:
        notes.append(f"Of the points a sample of {_POINTS:,} is drawn.")
    if outside:
        notes.append(f"{outside:,} centroids lie too far from the points to be drawn.")
    return notes


def _lay_out(count: int, notes: list[str]) -> list[Html]:
    """Return the elements that replay.js moves."""
    play = tag("button", "▶", type="button", id="replay-play", aria_label="Play")
    slider = tag(
        "input", type="range", id="replay-slider", min=0, max=count - 1, value=count - 1, step=1, aria_label="Frame"
    )
    controls = tag(
        "div",
        play,
        tag(
            "div",
            tag("canvas", id="replay-strip", aria_hidden="true"),
            slider,
            tag("p", "", id="replay-strip-key", class_="note"),
            class_="track",
        ),
        class_="controls",
    )
    choices = tag(
        "div",
        tag("label", "Devices: ", _choose("replay-devices", _DEVICES)),
        tag("label", "Links: ", _choose("replay-links", _LINKS)),
        tag("label", "Device: ", tag("input", type="number", id="replay-device", min=0, placeholder="none")),
        class_="choices",
    )  # fmt: skip
    views = tag("div", _view("graph", "The graph"), _view("cloud", "Points and centroids"), class_="views")
    tip = tag("div", id="replay-tip", role="status", hidden=True)
    return [
        tag("p", "", id="replay-now", role="status"), controls, choices, tag("div", views, tip, class_="stage"),
        *(tag("p", note, class_="note") for note in notes), fold("How to use it", tag("p", _KEYS)),
        tag("noscript", tag("p", "The replay needs JavaScript; everything else on this page does not.")),
    ]  # fmt: skip


def _choose(id: str, options: dict[str, str]) -> Html:
    return tag("select", *(tag("option", text, value=value) for value, text in options.items()), id=id)


def _view(name: str, title: str) -> Html:
    canvas = tag("canvas", id=f"replay-{name}", tabindex=0, role="img", aria_label=title)
    return tag("figure", tag("figcaption", title), canvas, tag("div", id=f"replay-{name}-key", class_="key"))
