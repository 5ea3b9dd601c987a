"""Table of deep clustering systems over seeds: means, standard deviations and paired differences."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from p2pkm.analysis.paired_tests import estimate_mean
from p2pkm.core.brief import short_repr
from p2pkm.core.validation import check_choice

Row = dict[str, Any]

# Control that the others are compared with.
UNTRAINED = "untrained body"
# Scores of the cluster labels against the classes.
SCORES = ("nmi", "ari", "purity")
_COLUMNS = ("accuracy", "accuracy_few", *SCORES, "bytes", "bytes_busiest")


@dataclass(frozen=True)
class DeepTable:
    """Measurements of `deep_table`.

    Attributes
    ----------
    rows : tuple of dict
        One per system and seed; undefined values are None.

        * ``name``, ``seed``.
        * ``accuracy``, ``accuracy_few``: see `p2pkm.linear_probe`; mean of up to three devices if their bodies differ.
        * ``nmi``, ``ari``, ``purity``: last labels of the training images against the classes.
        * ``by_round``: dict of the same scores for each clustering.
        * ``bytes``, ``bytes_busiest``.

    Examples
    --------
    >>> import p2pkm
    >>> rows = [{"name": name, "seed": seed, "accuracy": 0.9 + 0.01 * seed} for name in ("a", "b") for seed in (0, 1)]
    >>> table = p2pkm.DeepTable(tuple(rows))
    >>> table.names, round(table.mean("a"), 3)
    (['a', 'b'], 0.905)
    """

    rows: tuple[Row, ...]

    @property
    def names(self) -> list[str]:
        """Names of the systems in the order of the table."""
        return list(dict.fromkeys(row["name"] for row in self.rows))

    def mean(self, name: str, figure: str = "accuracy") -> float | None:
        """Compute the mean of a metric over the seeds; None if it is undefined for a run."""
        values = [row[figure] for row in self._of(name).values()]
        return None if None in values else float(np.mean(values))

    def gap(self, name: str, reference: str = UNTRAINED, figure: str = "accuracy") -> Row | None:
        """Compute the mean paired difference of a metric to a reference system, with its 95 % interval by Student's t.

        Returns
        -------
        dict or None
            ``mean``, ``low``, ``high`` and ``differs`` (whether the interval excludes 0; None with one seed). None
            without a common seed, or if the metric is undefined for a run.
        """
        rows, reference_rows = self._of(name), self._of(reference)
        pairs: list[tuple[Any, Any]] = [
            (rows[seed].get(figure), reference_rows[seed].get(figure))
            for seed in sorted(rows.keys() & reference_rows.keys())
        ]
        if not pairs or None in (value for pair in pairs for value in pair):
            return None
        gaps = [a - b for a, b in pairs]
        mean, low, high = estimate_mean(gaps)
        differs = not low <= 0.0 <= high if len(gaps) > 1 else None
        return {"mean": mean, "low": low, "high": high, "differs": differs}

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        """Format the table: means, standard deviations, and paired differences to the untrained body.

        With one seed, standard deviations and intervals are omitted.
        """
        titles = f"{'all labels':>15}{'few':>15}{'NMI':>7}{'ARI':>7}{'purity':>8}"
        head = f"{'':<24}{titles}{'kB plain':>10}{'kB plain, busiest':>19}"
        reference = UNTRAINED if UNTRAINED in self.names else self.names[0]
        lines = [f"{head}  all labels - {reference} [95 %]"]
        for name in self.names:
            spread = [
                f"{np.mean(values):.3f}" + (f" ({np.std(values, ddof=1):.3f})" if len(values) > 1 else "")
                for values in ([row[figure] for row in self._of(name).values()] for figure in _COLUMNS[:2])
            ]
            means = [self.mean(name, figure) for figure in _COLUMNS[2:]]
            scores = ["" if mean is None else f"{mean:.3f}" for mean in means[:3]]
            sent = ["" if mean is None else f"{mean / 1000:,.0f}" for mean in means[3:]]
            gap = self.gap(name, reference)
            difference = ""
            if gap and name != reference:
                gap_interval = "" if gap["differs"] is None else f" [{gap['low']:+.3f}, {gap['high']:+.3f}]"
                difference = f"{gap['mean']:+.3f}{gap_interval}"
            lines.append(
                f"{name:<24}{spread[0]:>15}{spread[1]:>15}{scores[0]:>7}{scores[1]:>7}{scores[2]:>8}"
                f"{sent[0]:>10}{sent[1]:>19}  {difference}"
            )
        return "\n".join(lines)

    def _of(self, name: str) -> dict[int, Row]:
        check_choice(name, self.names, "name")
        return {row["seed"]: row for row in self.rows if row["name"] == name}
