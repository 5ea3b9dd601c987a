"""All of scikit-learn's own checks of the estimator and the scaler, but two of the estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import p2pkm

WHY = "a row of weight 2 goes to one device, two rows may go to two: as with KMeans, draws depend on the rows"
FAILING = {
    "check_sample_weight_equivalence_on_dense_data": WHY,
    "check_sample_weight_equivalence_on_sparse_data": WHY,
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:y is ignored:UserWarning")  # the checks give classes, which devices might be
@parametrize_with_checks([p2pkm.P2PKMeans(n_devices=2)], expected_failed_checks=lambda estimator: FAILING)
@pytest.mark.sample(5)
def test_scikit_learn_finds_nothing_to_object_to(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:y is ignored:UserWarning")
@parametrize_with_checks([p2pkm.P2PKMeans()], expected_failed_checks=lambda estimator: FAILING)
def test_nor_with_the_default_parameters(estimator, check):
    check(estimator)


@parametrize_with_checks([p2pkm.P2PStandardScaler()])
@pytest.mark.sample(5)
def test_nor_to_the_scaler(estimator, check):
    check(estimator)
