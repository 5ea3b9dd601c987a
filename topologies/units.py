"""Units of link and device attributes: ``5ms``, ``10Mbit``, ``2 GB/s``, ``10 Gflops``."""

import re

# Seconds of each unit of time.
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9, "min": 60.0}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12,
             "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}  # fmt: skip
_QUANTITY = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*")
# b, bit: bits; B, byte: bytes; per second.
_RATE = re.compile(r"([kKmMgGtT]i?)?(?:(b|[bB]its?)|(B|[bB]ytes?))(?:/s|/sec|ps)?")
_FLOPS = re.compile(r"([kKmMgGtT]?)(?:flops|flop/s)", re.IGNORECASE)
EXAMPLES = {"latency": "5ms", "bandwidth": "10Mbit", "access": "2MB/s", "speed": "10Gflops"}


def parse_quantity(text: str, attribute: str) -> float | None:
    """Convert text to seconds, bytes per second or operations per second; None if it is not a number with a unit.

    Parameters
    ----------
    text : str
        Number with an optional unit. `latency`: s, ms, us, ns, min. `bandwidth` and `access`: bit or b (bits), byte or
        B (bytes), per second, with a decimal or binary prefix. `speed`: flops, flop/s. Without a unit: seconds, bytes
        per second, operations per second.
    attribute : {"latency", "bandwidth", "access", "speed"}

    Examples
    --------
    >>> from topologies.units import parse_quantity
    >>> parse_quantity("5ms", "latency"), parse_quantity("10 Mbit/s", "bandwidth"), parse_quantity("2GB", "access")
    (0.005, 1250000.0, 2000000000.0)
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, unit = float(match[1]), match[2]
    if attribute == "latency":
        return _scale(number, _SECONDS.get(unit))
    if not unit:
        return number
    if attribute == "speed":
        flops = _FLOPS.fullmatch(unit)
        return _scale(number, flops and _PREFIXES[flops[1].lower()])
    rate = _RATE.fullmatch(unit)
    return _scale(number, rate and _PREFIXES[(rate[1] or "").lower()] / (8 if rate[2] else 1))


def _scale(number: float, factor: float | None) -> float | None:
    # Division by a power of ten is exact more often than the product with its inverse: 5 ms is 0.005 s.
    if factor is None:
        return None
    return number / round(1 / factor) if factor < 1 else number * factor
