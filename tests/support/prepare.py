"""Preparation of a run on rank 0."""

from p2pkm.experiments.config import parse_specs
from p2pkm.experiments.config import prepare as prepare_specs


def prepare(options, ranks=None):
    """Check the options of a run and prepare it."""
    return prepare_specs(parse_specs(options), ranks)
