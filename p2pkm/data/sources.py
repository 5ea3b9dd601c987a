"""Data sources: generators, small data sets of scikit-learn, and files."""

import inspect
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.fixed_order import diagonalize, multiply
from p2pkm.core.sorting import blocks, narrow
from p2pkm.core.spec import Spec, parameters, parse
from p2pkm.core.validation import LARGEST, check_integer, check_positive, order_features
from p2pkm.data.random import draw_separated, generator
from p2pkm.data.readers.anndata import split_part
from p2pkm.data.readers.folder import format_of
from p2pkm.data.readers.intake import TIDY, ColumnOptions
from p2pkm.data.synthetic_communities import tabulate as communities
from p2pkm.data.synthetic_device_clusters import tabulate as device_clusters
from p2pkm.data.synthetic_mixture import mixture
from p2pkm.data.synthetic_shapes import shapes
from p2pkm.data.table import Table

# Width given to `blocks` per feature: blocks of points that stay in the second-level cache.
_BLOCK_WIDTH = 64
# Points of a run that names none. Clusters differ along the graph; at this amplitude one clustering for all and each
# device alone cost about the same on test points, so that neither is the obvious answer.
DEVICES_DIFFER = "device-clusters:amplitude=0.6"
# Points of a run that names none and cannot use these: they are dealt, change, or are the same on several graphs.
DEVICES_ALIKE = "grid16"
Points = NDArray[np.float64]
Data = tuple[NDArray[np.float64], NDArray[np.int64]]


def grid16(*, points: int = 200, sd: float = 1.0, seed: int = 0) -> Data:
    """Draw 16 Gaussians on the grid {-7.5, -2.5, 2.5, 7.5} x {-7.5, -2.5, 2.5, 7.5}.

    Parameters
    ----------
    points : int
        Points per cluster.
    sd : float
        Standard deviation of each coordinate, at least 0.
    seed : int
        Whole number from 0.

    Returns
    -------
    X : float64[16 * points, 2]
        Points, sorted by cluster; the means are in row-major order. All generators sort by cluster.
    y : int64[16 * points]
        Cluster of each point.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.grid16(points=50)
    >>> X.shape, len(set(y.tolist()))
    ((800, 2), 16)
    """
    ticks = [-7.5, -2.5, 2.5, 7.5]
    means = np.array([(x, y) for x in ticks for y in ticks])
    return _gaussians(generator(seed, "grid16"), means, points, sd)


def blobs(
    *, clusters: int = 8, points: int = 200, features: int = 2, sd: float = 1.0, box: float = 10.0, seed: int = 0
) -> Data:
    """Draw Gaussians with means uniform in [-box, box] in every feature.

    Parameters
    ----------
    clusters, points, features : int
        Number of clusters, of points per cluster, and of features.
    sd : float
        Standard deviation of each coordinate, at least 0.
    box : float
        Half the side of the box that contains the means, above 0.
    seed : int
        Whole number from 0.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=10, features=5, seed=1)
    >>> X.shape, sorted(set(y.tolist()))
    ((30, 5), [0, 1, 2])
    """
    rng = generator(seed, "blobs")
    half = check_positive(box, "box", most=LARGEST)
    shape = (check_integer(clusters, 1, "clusters"), check_integer(features, 1, "features"))
    return _gaussians(rng, rng.uniform(-half, half, shape), points, sd)


def slike(*, points: int = 100, seed: int = 0) -> Data:
    """Draw 15 unit Gaussians like the S-sets, with means uniform in a square of side 23.5 and at least 4.5 apart.

    Parameters
    ----------
    points : int
        Points per cluster.
    seed : int
        Whole number from 0.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.slike(points=20)
    >>> X.shape, len(set(y.tolist()))
    ((300, 2), 15)
    """
    rng = generator(seed, "slike")
    return _gaussians(rng, draw_separated(rng, 15, 2, side=23.5, separation=4.5), points, 1.0)


def balls(*, clusters: int = 4, points: int = 100, features: int = 2, separation: float = 4.0, seed: int = 0) -> Data:
    """Draw points of the stochastic ball model: uniform in balls of radius 1.

    Parameters
    ----------
    clusters, points, features : int
        Number of balls, of points per ball, and of features.
    separation : float
        Smallest distance between two centers, above 0; the balls are disjoint from 2 on. The centers are uniform in a
        cube of side ``2 * separation * clusters ** (1 / features)``, subject to that distance.
    seed : int
        Whole number from 0.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.balls(clusters=3, points=10)
    >>> X.shape, y.shape
    ((30, 2), (30,))
    """
    rng = generator(seed, "balls")
    gap = check_positive(separation, "separation", most=LARGEST)
    k = check_integer(clusters, 1, "clusters")
    d = check_integer(features, 1, "features")
    y = np.repeat(np.arange(k, dtype=np.int64), check_integer(points, 1, "points"))
    means = draw_separated(rng, k, d, side=2 * gap * k ** (1 / d), separation=gap)
    directions = rng.standard_normal((len(y), d))
    directions /= np.sqrt((directions**2).sum(axis=1, keepdims=True))
    return means[y] + directions * rng.random((len(y), 1)) ** (1 / d), y


def iris() -> Data:
    """Return Fisher's iris data: float64[150, 4], three classes.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.iris()
    >>> X.shape, y[:3].tolist()
    ((150, 4), [0, 0, 0])
    """
    from sklearn.datasets import load_iris

    return _loaded(load_iris)


def wine() -> Data:
    """Return the wine data: float64[178, 13], three classes.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.wine()
    >>> X.shape, y[:3].tolist()
    ((178, 13), [0, 0, 0])
    """
    from sklearn.datasets import load_wine

    return _loaded(load_wine)


def breast_cancer() -> Data:
    """Return the breast cancer data of Wisconsin: float64[569, 30], two classes.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.breast_cancer()
    >>> X.shape, sorted(set(y.tolist()))
    ((569, 30), [0, 1])
    """
    from sklearn.datasets import load_breast_cancer

    return _loaded(load_breast_cancer)


def digits(*, components: int | None = None) -> Data:
    """Return the 8 x 8 digits: float64[1797, 64], ten classes.

    Parameters
    ----------
    components : int, optional
        Number of principal components to return instead of the pixels, 1 to 64. The entry of largest magnitude of each
        component is positive.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.digits(components=10)
    >>> X.shape, y[:3].tolist()
    ((1797, 10), [0, 1, 2])
    """
    from sklearn.datasets import load_digits

    pixels, y = _loaded(load_digits)
    if components is None:
        return pixels, y
    if check_integer(components, 1, "components") > pixels.shape[1]:
        raise ExperimentError(
            f"components is {components}; expected at most {pixels.shape[1]}, the number of features of digits"
        )
    # Pixels are integers, so these sums are exact: the axes do not depend on the summation order of a library.
    scatter = len(pixels) * multiply(pixels.T, pixels) - np.outer(pixels.sum(axis=0), pixels.sum(axis=0))
    axes = diagonalize(scatter)[1][:components]
    axes *= np.where(axes[np.arange(components), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    return multiply(pixels - pixels.mean(axis=0), axes.T), y


def _gaussians(rng: np.random.Generator, means: Points, points: int, sd: float) -> Data:
    count = check_integer(points, 1, "points")
    scale = check_positive(sd, "sd", zero=True, most=LARGEST)
    drawn = np.empty((len(means), count, means.shape[1]))
    for cluster, mean in zip(drawn, means, strict=True):
        for block in blocks(count, _BLOCK_WIDTH * len(mean)):
            part = cluster[block]
            rng.standard_normal(out=part)
            part *= scale
            part += mean
    return drawn.reshape(-1, means.shape[1]), np.repeat(np.arange(len(means), dtype=np.int64), count)


def _loaded(loader: Callable[..., Any]) -> Data:
    points, y = loader(return_X_y=True)
    return np.ascontiguousarray(points, dtype=np.float64), np.asarray(y, dtype=np.int64)


def _table(generate: Callable[..., Data], box: tuple[Points, Points] | None = None) -> Callable[..., Table]:
    """Convert a generator to a function with the same options that returns a `Table`."""

    @wraps(generate)
    def make(**options: Any) -> Table:
        points, y = generate(**options)
        classes = int(y.max()) + 1
        return Table(points, y.astype(narrow(classes)), classes, box=box)

    return make


def _file(*, path: str) -> Table:
    from p2pkm.data.readers.any_format import read_table

    return read_table(path)


SOURCES: dict[str, Callable[..., Table]] = {
    "grid16": _table(grid16, box=(np.full(2, -12.5), np.full(2, 12.5))),
    "blobs": _table(blobs),
    "slike": _table(slike),
    "balls": _table(balls),
    "mixture": _table(mixture),
    "communities": communities,
    "device-clusters": device_clusters,
    "shapes": _table(shapes),
    "iris": _table(iris),
    "wine": _table(wine),
    "breast-cancer": _table(breast_cancer),
    "digits": _table(digits),
    "file": _file,
}


def parse_source(text: str) -> Spec:
    """Parse the value of `--data`: a spec or a path.

    A text is a path if it contains a separator or has the suffix of a data file.

    Raises
    ------
    ExperimentError
        If the source or one of its keys is unknown.
    """
    path = text.strip()
    named = path.lower().startswith("file:")
    if not named and ("/" in path or os.sep in path or _is_data_file(path)):
        return Spec("file", {"path": path})
    try:
        return parse(text, SOURCES, "data")
    except ExperimentError as error:
        if path and os.path.isdir(path):
            raise ExperimentError(f"{error} To read the files in the folder {path!r}, use --data {path}/") from None
        if Path(path).suffix and ":" not in path:
            from p2pkm.data.readers.any_format import SUFFIXES

            what = "a file of unknown format" if os.path.isfile(path) else "which does not exist"
            raise ExperimentError(
                f"--data is {path!r}, {what} (searched in {Path.cwd()}); expected a source or a data file with one of "
                f"the suffixes {', '.join(SUFFIXES)}. Check the path, or use --data grid16"
            ) from None
        raise


def follows_graph(source: Spec) -> bool:
    """Return whether the points of a spec depend on a graph, by default the communication graph of the experiment."""
    return source.name in SOURCES and "graph" in parameters(SOURCES[source.name])


def _is_data_file(path: str) -> bool:
    """Return whether a name has the suffix of a data file; only a suffix imports the readers of all formats."""
    suffix = format_of(split_part(path)[0])
    # The digits of a number, as in blobs:sd=0.5, are not a suffix.
    if not suffix[1:2].isalpha():
        return False
    from p2pkm.data.readers.any_format import SUFFIXES

    return suffix in SUFFIXES


def load(
    spec: Spec, *, seed: int, label_column: str | int | None = None, device_column: str | int | None = None,
    intake: ColumnOptions = TIDY,
) -> Table:  # fmt: skip
    """Generate or read the data of a spec.

    Parameters
    ----------
    spec : Spec
        From `parse_source`.
    seed : int
        Seed of generated data, unless the spec contains a seed.
    label_column, device_column : str or int, optional
        Name or index of a column of a file.
    intake : ColumnOptions
        Options for the columns of a file.

    Raises
    ------
    DataError
        If the file cannot be used.
    ExperimentError
        If an option is out of range, or columns are named for generated data.
    """
    if spec.name == "file":
        from p2pkm.data.readers.any_format import read_table

        return read_table(spec.options["path"], label_column, device_column, **intake._asdict())
    if label_column is not None or device_column is not None or intake != TIDY:
        raise ExperimentError(
            f"--data {spec.name} cannot be combined with options for the columns of a file. Remove --label-column, "
            "--device-column, --columns, --drop, --encode, --missing and the other options of data files, or use "
            "--data PATH"
        )
    source = SOURCES[spec.name]
    options = dict(spec.options)
    if "seed" in inspect.signature(source).parameters:
        options.setdefault("seed", seed)
    return source(**options)


def load_centers(path: str, d: int, features: tuple[str, ...] | None = None) -> Any:
    """Read known centers from a file, float64[c, d]; columns are matched with the features by name."""
    table = load(Spec("file", {"path": path}), seed=0, label_column=None, device_column=None)
    if table.points.shape[1] != d:
        raise DataError(
            f"--true-centers {path} has {table.points.shape[1]} features, but the data have {d}; expected the same "
            "features in the same units"
        )
    order = order_features(table.features, features, f"centers {path}") if table.features and features else None
    return table.points if order is None else table.points[:, order]
