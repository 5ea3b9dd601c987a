"""Numbers that ranks draw as they become free."""

import json
from types import SimpleNamespace

import pytest

from p2pkm.network import dealing
from p2pkm.network.local import LocalWorld
from tests.support.programs import drawing
from tests.support.run_cli import ranks, there


def test_one_process_draws_all_numbers():
    assert list(LocalWorld().draw_numbers(3, print)) == [0, 1, 2]


@pytest.mark.mpi
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_number_is_drawn_once_and_nobody_waits_for_a_slow_rank(size):
    ending = there(*ranks(size), "-m", "tests.support.programs.drawing")
    assert ending.code == 0, ending.err
    cases = {name: (drawn, elsewhere) for name, drawn, elsewhere in map(json.loads, ending.out.splitlines())}
    assert list(cases) == list(drawing.CASES)
    for name, (drawn, elsewhere) in cases.items():
        together = sorted(number for numbers in drawn for number in numbers)
        assert len(drawn) == size and all(numbers == sorted(numbers) for numbers in drawn)
        if name == "rank 0 stops":
            assert len(drawn[0]) == 1 and together == list(range(len(together)))
            continue
        assert together == list(range(drawing.COUNT))
        given_up = drawn[1] if name == "rank 1 stops" and size > 1 else []
        assert elsewhere == [number for number in together if number not in (*drawn[0], *given_up)]
    if size > 1:
        assert len(cases["rank 0 is slow"][0][0]) < drawing.COUNT / 2
        assert len(cases["rank 1 is slow"][0][1]) < drawing.COUNT / 2
        assert len(cases["rank 1 stops"][0][1]) == 1


def test_without_threads_rank_0_hands_out_all_numbers():
    """A fake of MPI: two other ranks ask until there are no more numbers."""
    requests, answers = [(1, -1), (2, -1)], []

    def answer(number, rank, tag):
        answers.append((rank, int(number[0])))
        if number[0] >= 0:
            requests.append((rank, number[0]))

    def probe(source, tag, status):
        status.source = requests[0][0]
        return True

    def receive(message, source, tag):
        message[0] = requests.pop(0)[1]

    comm = SimpleNamespace(rank=0, size=3, Iprobe=probe, Recv=receive, Send=answer)
    mpi = SimpleNamespace(COMM_WORLD=comm, Status=SimpleNamespace, ANY_SOURCE=-1, THREAD_SERIALIZED=2,
                          Query_thread=lambda: 1)  # fmt: skip
    completed = []
    assert list(dealing.draw_numbers(mpi, 3, completed.append)) == []
    assert answers == [(1, 0), (2, 1), (1, 2), (2, -1), (1, -1)] and completed == [0, 1, 2]
