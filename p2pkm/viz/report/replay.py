"""Replay of a run: its frames as data for the script of the page, and the elements that the script updates."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.metrics.replay_frames import Frames
from p2pkm.metrics.result import Result
from p2pkm.viz.color_by import read_points
from p2pkm.viz.figures.bytes_per_device import sum_bytes
from p2pkm.viz.figures.convergence import place_rounds
from p2pkm.viz.graph_layout import place_devices
from p2pkm.viz.projection import choose_projection
from p2pkm.viz.report.encode_arrays import bounding_box, pack, round_singles, shrink_counts, to_steps
from p2pkm.viz.report.html import Html, embed_json, fold, section, tag
from p2pkm.viz.style import CATEGORIES, draw_sample

_FRAMES = 60  # most frames
_POINTS = 3_000  # most points
_KEYS = """Move the slider or press play. With the focus on the replay, the space bar plays and pauses, the arrow keys
move by one frame, and Home and End jump to the ends. Point at a device or a centroid, or tap it, to show the values of
the device, or type its number."""
_DEVICES = {"cost": "cost per point", "disagreement": "total variation"}
_LINKS = {"sent": "plain bytes since the last frame", "gtv": "total variation"}
_CONSTANT = ("device", "edge_a", "edge_b")  # fields of `Frames` that do not depend on the frame
_SHOWN = ("stage", "round", "ratio_mean", "test_ratio_common", "gtv", "objective", "messages", "bytes", "converged")


def show_replay(result: Result) -> tuple[Html, bool]:
    """Build the section of the replay, and return whether it has frames.

    Raises
    ------
    DataError
        If the shapes of the arrays of frames do not match.
    """
    if result.frames is None:
        reason = (
            "Not available: the run folder does not contain frames.npz. Large runs, and runs of earlier versions, do "
            "not have this file."
        )
        return section("Replay", tag("p", reason, class_="note"), id="replay"), False
    _check(result.frames)
    frames = _thin(result.frames)
    left_out = len(result.frames.record) - _FRAMES
    content, notes = _describe(frames, result)
    if left_out > 0:
        notes.insert(0, f"{_FRAMES} of {_FRAMES + left_out} frames are shown.")
    data = embed_json(content, "replay-data")
    return section("Replay", *_lay_out(len(frames.record), notes), data, id="replay"), True


def _check(frames: Frames) -> None:
    """Check that the shapes of arrays match, because the file may have been changed."""
    f, v = frames.centroids.shape[:2]
    links = len(frames.edge_a)
    shapes = {"record": (f,), "device": (v,), "cost": (f, v), "disagreement": (f, v), "edge_b": (links,),
              "gtv": (f, links), "bytes": (f, links)}  # fmt: skip
    wrong = [name for name, shape in shapes.items() if getattr(frames, name).shape != shape]
    if wrong:
        raise DataError(
            f"frames.npz: the shape of {', '.join(wrong)} does not match the centroids. Restore the file, or delete it "
            "to write a report without a replay"
        )


def _thin(frames: Frames) -> Frames:
    """Select at most 60 evenly spaced frames, with the first and the last."""
    count = len(frames.record)
    selected = np.unique(np.linspace(0, count - 1, min(count, _FRAMES)).round().astype(np.int64))
    arrays = {name: array[selected] for name, array in frames._asdict().items() if name not in _CONSTANT}
    return frames._replace(**arrays)


def _describe(frames: Frames, result: Result) -> tuple[dict[str, Any], list[str]]:
    """Return the data for the script, and notes on omitted parts."""
    topology = result.topology
    census = result.census
    device = frames.device
    nodes = np.append(device, topology.hub) if topology.hub >= 0 else device
    cloud, arrays, outside = _map_cloud(frames, result)
    places = place_devices(topology)[nodes]
    box = bounding_box(places, places)
    # A server has the highest number, so its index is the length of `device`, as in `nodes`.
    ends = [np.searchsorted(device, end) for end in (frames.edge_a, frames.edge_b)]
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
    complete = len(device) == topology.clients and len(frames.edge_a) == len(topology.indices) // 2
    content = {
        "frames": [_select_values(result.rounds[int(number)]) for number in frames.record],
        "at": place_rounds(result.rounds)[0][frames.record].tolist(),
        "names": None if topology.names is None else [topology.names[i] for i in device],
        "all": topology.n, "devices": len(device), "hub": topology.hub >= 0,
        "links": len(frames.edge_a), "whole": complete,
        "k": frames.centroids.shape[2], "cloud": cloud, "graph": box.to_json(), "classes": list(CATEGORIES),
        **pack(arrays),
    }  # fmt: skip
    return content, _note(content, result, outside)


def _map_cloud(frames: Frames, result: Result) -> tuple[dict[str, Any], dict[str, NDArray[Any]], int]:
    """Project points and centroids; return the axes, the arrays, and the number of centroids outside the box."""
    census = result.census
    projection = choose_projection(result)
    drawn = draw_sample(len(census.sample), _POINTS)
    owner = census.sample_device[drawn]
    colored = read_points(result)
    points = projection.place(census.sample[drawn])
    centroids = projection.place(frames.centroids.astype(np.float64))
    names = projection.names
    line = frames.centroids.shape[3] == 1
    # With one feature, each device has a line; its number is the second coordinate.
    if line:
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
        "pointClass": colored.kinds[drawn].astype(np.int16),
        "pointDevice": shown.astype(np.int32),
    }
    return (
        {**box.to_json(), "names": names, "note": projection.note, "line": line, "colored": colored.label},
        arrays,
        outside,
    )


def _select_values(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record.get(name) for name in _SHOWN}


def _note(content: dict[str, Any], result: Result, outside: int) -> list[str]:
    """List notes on the parts that the replay omits."""
    notes = []
    if not content["whole"]:
        links = len(result.topology.indices) // 2
        notes.append(
            f"{content['devices']:,} of {result.topology.clients:,} devices and {content['links']:,} of {links:,} "
            "links are shown; cumulative plain bytes are those of the links shown."
        )
    if result.scaling is not None:
        notes.append("Points and centroids are shown in scaled units.")
    if content["cloud"]["note"]:
        notes.append(f"The points are projected to {content['cloud']['note']}.")
    if len(result.census.sample) > _POINTS:
        notes.append(f"A sample of {_POINTS:,} points is drawn.")
    if outside:
        notes.append(f"{outside:,} centroids are too far from the points to be drawn.")
    return notes


def _lay_out(count: int, notes: list[str]) -> list[Html]:
    """Build the elements that replay.js updates."""
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
    views = tag("div", _view("graph", "Communication graph"), _view("cloud", "Points and centroids"), class_="views")
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
