"""GTVMin on cases with known numbers, both forms of the kernels; and what its parameters refuse."""

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.engine.loop import Start
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from tests.support.each import each
from tests.support.play_rounds import arrange, last, loss, objective, play, points_of, variation
from tests.support.sampling import thin

PAIR = [(0, 1)]


@pytest.fixture(params=[pytest.param(plain, marks=pytest.mark.slow), compiled], ids=["plain", "compiled"])
def form(request):
    return request.param


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def column(*rows):
    """Return a table of one feature."""
    return np.array(rows, float)[:, None]


def jacobi(k, alpha, **options):
    return p2pkm.GTVMin(k, **{"alpha": alpha, "schedule": "jacobi", "relaxation": 1.0, "tol": 0.0} | options)


def colored(k, alpha, **options):
    return p2pkm.GTVMin(k, **{"alpha": alpha, "schedule": "colored", "relaxation": 1.0, "tol": 0.0} | options)


def variations(table, centroids):
    """Return (4) of every directed edge, at the lower end."""
    own = table.devices
    return own.kernels.gtv(np.asarray(centroids, float), own.ids, own.indptr, own.indices, own.indices)


def local_objective(algorithm, table, centroids, i, theirs=None):
    """Return (8) of device i: its loss and its links; theirs: the centroids of its neighbors."""
    own, theirs = table.devices, centroids if theirs is None else theirs
    links = range(own.indptr[i], own.indptr[i + 1])
    alpha = algorithm.objective.link_alpha(own)
    return loss(points_of(own, i), centroids[i]) + sum(
        alpha[e] * variation(centroids[i], theirs[own.indices[e]]) for e in links
    )


# 01: two devices, one cluster: (n_i + 2 alpha d_i) w_i - 2 alpha sum w_j = s_i
TWO = [column(0, 2), column(10)]


@pytest.mark.parametrize(
    ("alpha", "exact"),
    thin([(0.0, (1, 10)), (0.25, (16 / 7, 52 / 7)), (1.0, (13 / 4, 11 / 2)), (4.0, (49 / 13, 58 / 13))], 2),
)
def test_two_devices_reach_the_fixed_point(form, alpha, exact):
    table = arrange(TWO, PAIR, kernels=form)
    for algorithm in (jacobi(1, alpha), colored(1, alpha)):
        close(last(algorithm, table, np.zeros((2, 1, 1)), 300).ravel(), exact)


def test_two_devices_at_a_huge_alpha_stay_at_the_fixed_point(form):
    table = arrange(TWO, PAIR, kernels=form)
    fixed = np.array([12000001 / 3000001, 12000010 / 3000001]).reshape(2, 1, 1)
    close(last(jacobi(1, 1e6), table, fixed, 1), fixed)
    close(last(colored(1, 1e6), table, fixed, 1), fixed)
    away = np.array([0.0, 1e-3]).reshape(2, 1, 1)
    assert abs(last(jacobi(1, 1e6), table, fixed + away, 1) - fixed).max() > 1e-4


def test_two_devices_first_sweeps_losses_and_objective(form):
    table = arrange(TWO, PAIR, kernels=form)
    history, _ = play(jacobi(1, 1.0), table, np.zeros((2, 1, 1)), 2)
    close(history[1:, :, 0, 0], [[0.5, 10 / 3], [13 / 6, 11 / 3]])
    fixed = np.array([3.25, 5.5]).reshape(2, 1, 1)
    own = table.devices
    close(form.losses(own.points, own.point_weights, own.offsets, fixed)[0], [12.125, 20.25])
    close(variations(table, fixed), [10.125, 0.0])
    graph, shards = nx.path_graph(2), p2pkm.Shards.from_list(TWO)
    result = p2pkm.simulate(jacobi(1, 1.0), graph, shards, rounds=200, start=np.zeros((2, 1, 1)), baselines=False)
    close(result.centroids, fixed)
    close([result.summary["objective"], result.summary["gtv"]], [42.5, 10.125])


def test_path_of_three_with_link_weights(form):
    data = [[[0, 0], [2, 4]], [[6, 0]], [[12, 3], [12, 9], [9, 9]]]
    table = arrange(data, [(0, 1, 0.5), (1, 2, 2.0)], kernels=form)
    fixed = np.array([[[226, 188]], [[536, 280]], [[641, 373]]]) / 71
    for algorithm in (jacobi(1, 1.0), colored(1, 1.0), colored(1, 1.0, relaxation=1.3)):
        found = last(algorithm, table, np.zeros((3, 1, 2)), 300)
        close(found, fixed)
        close(objective(algorithm, table, found), 125.49295774647887)
    close(last(colored(1, 4.0), arrange(data, [(0, 1, 0.125), (1, 2, 0.5)], kernels=form), np.zeros((3, 1, 2)), 300),
          fixed)  # fmt: skip


def test_rows_held_in_another_order_are_matched(form):
    table = arrange([column(0, 1, 10), column(11, 13, 2)], PAIR, kernels=form)
    start = [column(0, 10), column(12, 2)]
    for algorithm in (jacobi(2, 0.5), colored(2, 0.5)):
        found = last(algorithm, table, start, 100)
        close(found[:, :, 0], [[0.8, 10.8], [11.6, 1.4]])
        close(objective(algorithm, table, found), 5.0)
        close(variations(table, found)[0], 2.0)
    close(last(colored(2, 0.0), table, start, 5)[:, :, 0], [[0.5, 10.0], [12.0, 2.0]])
    errors = [abs(np.sort(last(colored(2, alpha), table, found, 1000)[:, :, 0]) - [1.0, 34 / 3]) for alpha in (25, 100)]
    assert errors[1].max() < 0.02
    assert_allclose(errors[0] / errors[1], 4.0, rtol=0.1)


@pytest.mark.parametrize(
    ("alpha", "printed"),
    [(0.1, (2.5, 2.0)), (0.25, (2.0, 2.0)), (1.0, (1.0, 1.0)), (4.0, (1 / 3, 0.25)), (100.0, (3 / 201, 0.01))],
)
def test_the_m_step_is_the_minimizer_and_the_printed_one_is_not(form, alpha, printed):
    table = arrange([column(1), np.zeros((0, 1))], PAIR, kernels=form)
    start = np.ones((2, 1, 1))
    close(last(jacobi(1, alpha), table, start, 1).ravel(), [1.0, 1.0])
    close(last(jacobi(1, alpha, update="as-printed"), table, start, 1).ravel(), printed)


def test_a_centroid_without_weight_stays_and_the_printed_one_goes_to_the_origin(form):
    table = arrange([column(7)], [], kernels=form)
    assert_array_equal(last(jacobi(2, 1.0), table, [column(7, 50)], 1), [column(7, 50)])
    assert_array_equal(last(jacobi(2, 1.0, update="as-printed"), table, [column(7, 50)], 1), [column(7, 0)])


def test_undamped_jacobi_swaps_for_ever_without_points(form):
    table = arrange([[], [], column(5)], PAIR, kernels=form)  # an isolated device has the only point
    start = [column(0), column(1), column(5)]
    for rounds, expected in ((1, [1, 0, 5]), (2, [0, 1, 5]), (7, [1, 0, 5])):
        found = last(jacobi(1, 3.0), table, start, rounds)
        close(found.ravel(), expected)
        close(objective(jacobi(1, 3.0), table, found), 6.0)
    for algorithm, expected in ((jacobi(1, 3.0, relaxation=0.5), [0.5, 0.5, 5]), (colored(1, 3.0), [1, 1, 5])):
        found = last(algorithm, table, start, 1)
        close(found.ravel(), expected)
        close(objective(algorithm, table, found), 0.0)


def test_undamped_jacobi_swaps_a_pair_that_no_point_takes(form):
    table = arrange([column(0), column(0)], PAIR, kernels=form)
    found = last(jacobi(2, 3.0), table, [column(0, 100), column(0, 104)], 1)
    close(found[:, :, 0], [[0, 104], [0, 100]])
    close(objective(jacobi(2, 3.0), table, found), 96.0)


def test_a_swap_for_ever_is_called_oscillating():
    graph = nx.empty_graph(3)
    graph.add_edge(0, 1)
    shards = p2pkm.Shards.from_list([np.zeros((0, 1)), np.zeros((0, 1)), column(5, 6)])
    given = {"rounds": 50, "start": [column(0), column(1), column(5)], "baselines": False, "allow_disconnected": True}
    result = p2pkm.simulate(p2pkm.GTVMin(1, alpha=3.0, schedule="jacobi"), graph, shards, **given)
    assert result.summary["termination"] == "oscillating"
    assert result.summary["rounds"] == 3  # the first round that returns, and one more to be sure
    assert result.summary["descent"] == "certified"
    for other in ({"schedule": "jacobi", "relaxation": 0.5}, {"relaxation": 1.0}, {"schedule": "async"}):
        method = p2pkm.GTVMin(1, alpha=3.0, **other)
        assert p2pkm.simulate(method, graph, shards, **given).summary["termination"] == "converged"


@pytest.mark.parametrize("start", [(0, 100), pytest.param((0, 1), marks=pytest.mark.slow)])
def test_a_converging_alternation_is_not_a_stall(start):
    shards = p2pkm.Shards.from_list([column(0, 1), np.zeros((0, 1))])
    result = p2pkm.simulate(
        p2pkm.GTVMin(1, alpha=20.0, schedule="jacobi"), nx.path_graph(2), shards, rounds=2000,
        start=[column(one) for one in start], baselines=False,
    )  # fmt: skip
    assert result.summary["termination"] == "converged"
    assert result.summary["rounds"] > 10


def test_several_passes_of_jacobi_can_raise_the_objective(form):
    table = arrange([column(6), column(6)], PAIR, kernels=form)
    start = np.array([column(4, 7), column(5, 8)])
    many, one, turns = jacobi(2, 2.0, local_steps=50), jacobi(2, 2.0), colored(2, 2.0, local_steps=50)
    close(objective(many, table, start), 10.0)
    risen = last(many, table, start, 1)
    close(risen[:, :, 0], [[5.2, 8.0], [4.0, 6.8]])
    close(objective(many, table, risen), 12.8)
    close([local_objective(many, table, start, i) for i in (0, 1)], [9.0, 9.0])
    close([local_objective(many, table, risen, i, start) for i in (0, 1)], [0.8, 0.8])
    found = last(one, table, start, 1)
    close(found[:, :, 0], [[5.0, 7.6], [4.4, 7.0]])
    close(objective(one, table, found), 4.88)
    found = last(turns, table, start, 1)
    close(found[:, :, 0], [[5.2, 8.0], [5.36, 8.0]])
    close(objective(turns, table, found), 1.152)


def test_many_centroids_of_a_neighbor_may_match_one(form):
    table = arrange([column(0, 4), column(100)], PAIR, kernels=form)
    start = np.array([column(0, 50), column(1, 3)])
    algorithm = jacobi(2, 0.5)
    found = last(algorithm, table, start, 1)
    close(found[0], column(13 / 7, 3))
    close(variation(*start), 2220.0)
    close(local_objective(algorithm, table, start, 0), 1126.0)
    close(local_objective(algorithm, table, found, 0, start), 5.183673469387755)


def test_without_the_star_term_a_device_clusters_the_augmented_set(form):
    table = arrange([column(0, 1, 9), np.zeros((0, 1))], PAIR, kernels=form)
    algorithm = jacobi(2, 1.0, star_term=False)
    start = np.array([column(0, 9), column(2, 13)])
    own, network = table.devices, table.network
    state = algorithm.initial_state(own, Start(start, np.zeros(len(own), np.bool_)))
    inbox = network.exchange(algorithm.message(state, own))
    for t in range(1, 6):
        now = own.at_turn(t, 0, np.array([True, False]))
        state = algorithm.update(state, inbox, now)
        inbox = network.exchange(algorithm.message(state, now))
    close(state.centroids, [column(1, 11), column(2, 13)])
    augmented = np.concatenate((own.points, start[1]))
    close(loss(augmented, state.centroids[0]), 10.0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((0, 10), (1, 2), 70), ((0, 0, 5), (0, 5, 5), 0), ((3, 7), (7, 3), 0)],
)
def test_variation_of_a_link(form, first, second, expected):
    table = arrange([column(0), column(0)], PAIR, kernels=form)
    both = np.array([column(*first), column(*second)])
    assert_array_equal(variations(table, both), [expected, 0.0])
    assert_array_equal(variations(table, both[::-1].copy()), [expected, 0.0])


def test_coupling_is_dimensionless_and_alpha_is_raw():
    data = [np.zeros((0, 1)), column(1, 2, 3), column(4), column(5, 6)]
    links = [(0, 1, 1.0), (1, 2, 2.0), (1, 3, 1.0)]
    own = arrange(data, links).devices
    base = 3.0 * (6 / 4) / 2
    expected = base / np.sqrt(3) * np.array([1.0, 1.0, 2.0, 1.0, 2.0, 1.0])
    assert_allclose(p2pkm.GTVMin(2, coupling=3.0).objective.link_alpha(own), expected)
    alike = p2pkm.GTVMin(2, coupling=3.0, normalize_losses=True)  # where the losses of a device count as one point
    assert_allclose(alike.objective.link_alpha(own), expected / (6 / 4))
    assert_allclose(
        p2pkm.GTVMin(2, alpha=0.3).objective.link_alpha(own), 0.3 * np.array([1.0, 1.0, 2.0, 1.0, 2.0, 1.0])
    )
    assert_allclose(p2pkm.GTVMin(2).objective.link_alpha(own), expected * 10 / 3)
    default = p2pkm.GTVMin(2)
    found = [default.effective_coupling(n, hops) for n, hops in ((9, 7), (10, 1), (2, 8), (9, 8))]
    assert found == [10.0, 30.0, 30.0, 30.0]
    assert (default.effective_relaxation(), default.schedule, default.local_steps, default.tol) == (
        1.5,
        "colored",
        1,
        1e-3,
    )
    assert p2pkm.GTVMin(2, schedule="jacobi").effective_relaxation() == 1.0


@each(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"k": 2.5}, "clusters is 2.5"),
        ({"k": True}, "clusters is True"),
        ({"local_steps": 0}, "local_steps is 0; expected a whole number of at least 1"),
        ({"alpha": -0.1}, "alpha is -0.1; expected a finite number of at least 0"),
        ({"alpha": np.nan}, "alpha is nan"),
        ({"coupling": np.inf}, "coupling is inf; expected a finite number"),
        ({"alpha": 1.0, "coupling": 1.0}, "alpha=1.0 and coupling=1.0 cannot be combined"),
        ({"tol": -1.0}, "tol is -1.0"),
        ({"relaxation": 0.0}, "relaxation is 0.0; expected a number above 0 and below 2"),
        ({"relaxation": 2.0}, "relaxation is 2.0"),
        ({"relaxation": 1.1, "schedule": "jacobi"}, "relaxation is 1.1 with the jacobi schedule.*colored"),
        ({"schedule": "jacob"}, "unknown schedule 'jacob'. Did you mean 'jacobi'"),
        ({"update": "printed"}, "unknown update 'printed'. Did you mean 'as-printed'"),
        ({"init": "globl"}, "unknown init 'globl'. Did you mean 'global'"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        p2pkm.GTVMin(**{"k": 3} | options)


def test_what_is_certified():
    certified = [
        {},
        {"relaxation": 1.99, "local_steps": 3},
        {"schedule": "async", "local_steps": 2},
        {"schedule": "jacobi"},
        {"schedule": "jacobi", "local_steps": 2, "safeguard": True},
    ]
    not_claimed = [{"schedule": "jacobi", "local_steps": 2}, {"star_term": False}, {"update": "as-printed"}]
    assert not [options for options in certified if not p2pkm.GTVMin(3, **options).traits.guarantees_descent]
    assert not any(p2pkm.GTVMin(3, **options).traits.guarantees_descent for options in not_claimed)


def test_a_device_that_wakes_on_its_own_has_converged_after_two_calm_turns():
    table = arrange([column(0.0), column(0.0)], PAIR)
    for schedule, calm in (("colored", 1), ("async", 2)):
        method = p2pkm.GTVMin(1, alpha=1.0, schedule=schedule)
        table.network.open()
        state = method.initial_state(table.devices, Start(np.zeros((2, 1, 1)), np.ones(2, np.bool_)))
        inbox = table.network.exchange(method.message(state, table.devices))
        once = method.update(state, inbox, table.devices)
        twice = method.update(once, inbox, table.devices)
        assert [one.converged.all() for one in (once, twice)] == [calm == 1, True]


def test_a_safeguard_halves_the_relaxation_of_several_local_steps():
    for steps, wanted in ((1, 1.0), (2, 0.5)):
        method = p2pkm.GTVMin(2, schedule="jacobi", safeguard=True, local_steps=steps)
        assert method.effective_relaxation() == wanted
    assert [p2pkm.GTVMin(2, groups=groups).traits.follows_points for groups in (False, 2)] == [True, False]
