"""Published values of method parameters, for the key ``defaults=paper`` of a method spec.

The defaults of p2pkm differ where measurements favored another value (docs/results/methods.md). The values here do not
change when a default changes.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from inspect import Parameter, Signature, signature
from typing import Any, Literal, NamedTuple, get_type_hints

KEY = "defaults"
CHOICES = ("ours", "paper")


class Published(NamedTuple):
    """Published values of the parameters of a method.

    Attributes
    ----------
    values : dict
        Value of each parameter that the source states or implies.
    source : str
        Where they are stated; numbers are those of the references of the method.
    excluded_by : dict, default={}
        For a parameter that another one excludes: the name of the other one, which removes it when it is given.
    """

    values: Mapping[str, Any]
    source: str
    excluded_by: Mapping[str, str] = {}


# Values that the papers leave open are those with which the method was first measured here.
_OPEN = "the paper leaves the numbers open; these are the first defaults of p2pkm"
_ON_AVERAGES = {"init": "global:candidates=1", "tol": 1e-5}
PUBLISHED: Mapping[str, Published] = {
    "gtvmin": Published(
        {"alpha": 1.0, "schedule": "jacobi", "relaxation": 1.0, "init": "local", "accept": False},
        "[1], Algorithm 1, with corrections; update=as-printed removes them",
        {"alpha": "coupling"},
    ),
    "consensus": Published({"gossips": 10} | _ON_AVERAGES, _OPEN),
    "pushsum": Published({"gossips": 10} | _ON_AVERAGES, _OPEN),
    "tracking": Published({"gossips": 3} | _ON_AVERAGES, _OPEN),
    "admm": Published({"eta": 5.0} | _ON_AVERAGES, _OPEN),
    "gossip": Published({"share": 0.04} | _ON_AVERAGES, _OPEN),
    "gossip-sum": Published({"sends": 20} | _ON_AVERAGES, _OPEN),
    "epidemic": Published({"cycles": 24} | _ON_AVERAGES, _OPEN),
    "coreset": Published(
        {"size": 200, "spread": "flood"}, "[1], Algorithms 1 and 2, on general graphs; the size is the first of p2pkm"
    ),
    "fkm": Published(
        {
            "seeding": "plusplus",
            "client_n_init": 1,
            "server_n_init": 10,
            "server_seeding": "unweighted",
            "local_steps": 1,
            "min_count": 2,
            "tol": 0.0,
        },
        "[1], Algorithm 1; the server runs the k-means of scikit-learn with 10 initializations",
    ),
    "kfed": Published(
        {"local_k": "sqrt", "seeding": "plain", "device": "random", "finish": "one", "labels": "nearest"},
        "[1], Algorithms 1 and 2",
    ),
    "fkmeanscb": Published(
        {"epsilon": 20.0, "client_n_init": 1, "server_n_init": 1}, "[1], Algorithm 1, and table 2 for epsilon"
    ),
    "feddp": Published({"steps": 1, "server_points": 20}, "the authors' configuration of their Gaussian mixtures"),
    "dwfkm": Published(
        {"local_steps": 5, "client_n_init": 5, "server_n_init": 5},
        "[1], and the authors' code for the numbers",
    ),
    "feca": Published(
        {"variant": "empirical", "prune": True, "pair": "merge", "seeding": "plusplus", "n_init": 1},
        "[1], Algorithms 1, 2 and 4",
    ),
    "ffcm1": Published({"fuzzifier": 2.0}, "[1]"),
    "ffcm2": Published({"fuzzifier": 2.0, "server_n_init": 10}, "[1], and the authors' code for the initializations"),
    "mavg": Published({"client_n_init": 1}, "[1], the baseline M-Avg"),
    "mufc": Published({"local_lloyd": False, "server_n_init": 10}, "[1]"),
}


@cache
def accept_key(name: str, kind: Callable[..., Any]) -> Callable[..., Any]:
    """Add the keyword `defaults` to the class of a method that has published values.

    Explicit parameters override the published values.
    """
    if name not in PUBLISHED:
        return kind
    values, _, excluded_by = PUBLISHED[name]

    def build(k: int, *, defaults: Literal["ours", "paper"] = "ours", **options: Any) -> Any:
        # Imported here, because it imports NumPy, which completion of names on the command line does without.
        from p2pkm.core.validation import check_choice, check_scalar

        check_choice(check_scalar(defaults, KEY), CHOICES, KEY)
        if defaults == "ours":
            return kind(k, **options)
        return kind(k, **{key: value for key, value in values.items() if excluded_by.get(key) not in options} | options)

    inner: Any = kind.func if isinstance(kind, partial) else kind
    fixed = kind.keywords if isinstance(kind, partial) else {}
    named = [item for item in signature(inner).parameters.values() if item.name not in fixed]
    extra = Parameter(KEY, Parameter.KEYWORD_ONLY, default=CHOICES[0])
    untyped: Any = build
    untyped.__signature__ = Signature([*named, extra])
    build.__annotations__ = get_type_hints(inner.__init__) | {KEY: Literal["ours", "paper"]}
    return build
