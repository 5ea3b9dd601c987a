"""Figures of deep clustering: what is drawn is what was measured."""

import numpy as np

from p2pkm.deep.deep_table import DeepTable
from p2pkm.viz import plot_accuracy, plot_features, plot_nearest
from tests.deep.test_deep_table import row


def test_accuracy_stands_at_its_bytes_and_what_sends_nothing_is_a_line():
    table = DeepTable((
        *(row("untrained body", seed, 0.5) for seed in range(2)),
        *(row("FeCA", seed, 0.6 + 0.1 * seed, 4000) for seed in range(2)),
        *(row("ring", seed, 0.6, 1000) for seed in range(2)),
    ))  # fmt: skip
    ax = plot_accuracy(table, against="bytes_busiest").axes[0]
    (line,) = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
    assert line.get_ydata()[0] == 0.5 and "sends nothing" in line.get_label()
    points = [container[0].get_xydata()[0].tolist() for container in ax.containers]
    np.testing.assert_allclose(points, [[4000, 0.65], [1000, 0.6]])
    assert ax.get_title(loc="left") == "Linear probe: mean over 2 seeds, 95 % intervals"
    assert "busiest" in ax.get_xlabel() and ax.get_xscale() == "log"
    assert plot_accuracy(DeepTable(table.rows[:2])).axes[0].get_xscale() == "linear"


def test_the_sheet_shows_the_nearest_images_of_present_centroids():
    images = np.repeat([0.2, 0.4, 0.6, 0.8], 4).reshape(4, 4)
    features = np.array([[0.0], [1.0], [2.0], [3.0]])
    ax = plot_nearest(images, features, [[0.9], [np.inf], [3.0]], per_centroid=2).axes[0]
    sheet = ax.get_images()[0].get_array()
    assert sheet.shape == (6, 6)  # two rows of two images of 2 x 2, with a gap of one
    assert [sheet[0, 0], sheet[0, 3], sheet[3, 0], sheet[3, 3]] == [0.4, 0.2, 0.8, 0.6]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "2"]
    own = plot_nearest(images, features, [[0.9], [3.0]], per_centroid=2, labels=[1, 0, 1, 1]).axes[0].get_images()[0]
    assert [own.get_array()[0, 0], own.get_array()[0, 3]] == [0.4, 1.0]  # one member alone; the rest stays white
    colored = (
        plot_nearest(np.tile([1.0, 0.0, 0.0], (2, 4)), features[:2], [[0.0]], shape="2x2x3").axes[0].get_images()[0]
    )
    np.testing.assert_array_equal(colored.get_array()[0, 0], [1.0, 0.0, 0.0])


def test_features_are_drawn_by_class():
    features = np.random.default_rng(0).standard_normal((30, 5))
    ax = plot_features(features, np.arange(30) % 3, centroids=features[:2], names=["bar", "ring", "disc"]).axes[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["bar", "ring", "disc", "centroids"]
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 >= ax.bbox.x1  # beside, not on the features
    assert sum(len(part.get_offsets()) for part in ax.collections) == 32
    assert plot_features(features).axes[0].get_legend() is None
