"""Attack versions of `private` that are broken on purpose, and the right one: measured mu of each.

Run with::

    python -m tests.benchmarks.broken_private [--trials 10] [--attacks 50]
"""

import argparse

import pytest

from p2pkm.privacy.run_attack import AttackQuery, attack_private
from tests.privacy.test_private_attack import BROKEN, round_after_noise

VERSIONS = {"right": lambda patch: None, **BROKEN, "rounding after noise": round_after_noise}


def attack(trials):
    return attack_private(AttackQuery("ring", 16, trials=trials), "private:epsilon=2,radius=30", 16)


def write_mu(row):
    return "unbounded" if row["mu_measured"] is None else f"{row['mu_measured']:.3f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--attacks", type=int, default=50)
    options = parser.parse_args()
    for name, break_it in VERSIONS.items():
        with pytest.MonkeyPatch.context() as patch:
            break_it(patch)
            result = attack(options.trials)
        mus = ", ".join(f"{row['against']} {row['mu_claimed']:.3f} {write_mu(row)}" for row in result["rows"])
        failed = [check for check, part in result["checks"].items() if not part["holds"]]
        print(f"{name}: {'accepted' if result['holds'] else 'EXCEEDED'}; {mus}; {', '.join(failed)}", flush=True)
    accused = sum(not attack(4)["holds"] for _ in range(options.attacks))
    print(f"right version: accused in {accused} of {options.attacks} attacks")


if __name__ == "__main__":
    main()
