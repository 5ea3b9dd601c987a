"""A sample of tests/fuzz/soak.py: the ranks are seen, and hold no more files than before."""

import pytest

from tests.fuzz.soak import growth, soak

pytestmark = pytest.mark.slow


@pytest.mark.mpi
@pytest.mark.timeout(200)
def test_ranks_under_faults_keep_their_files(tmp_path):
    looks = soak(3_000, 2, tmp_path)
    assert len(looks) >= 2
    assert all(len(look.memory) == 2 and look.files == looks[0].files for look in looks)
    assert growth(looks[0].memory, looks[-1].memory) < 0.2
