"""Program on ranks: numbers are drawn while one rank computes for long, and after ranks have stopped early.

Prints, for each case, the numbers that each rank has drawn and those that rank 0 knows to be completed elsewhere.
"""

import json
import time
from contextlib import closing

import numpy as np

from p2pkm.network.world import connect

COUNT = 30
# Rank that computes for long, and rank that stops after its first number, by the name of the case.
CASES = {"all": (None, None), "rank 0 is slow": (0, None), "rank 1 is slow": (1, None),
         "rank 1 stops": (None, 1), "rank 0 stops": (None, 0)}  # fmt: skip


def main():
    world = connect()
    for name, (slow, stops) in CASES.items():
        drawn, elsewhere = [], []
        with closing(world.draw_numbers(COUNT if world.rank == 0 else 0, elsewhere.append)) as numbers:
            for number in numbers:
                drawn.append(number)
                if world.rank == stops:
                    break
                time.sleep(1.0 if world.rank == slow else 0.01)
        parts = world.gather(np.array(drawn, np.int64).view(np.uint8))
        if parts is not None:
            print(json.dumps([name, [part.view(np.int64).tolist() for part in parts], sorted(elsewhere)]), flush=True)


if __name__ == "__main__":
    main()
