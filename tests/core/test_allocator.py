"""What becomes of memory that arrays have left, in processes of their own: the settings stay until a process ends."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc")
_BEGIN = """
from p2pkm.core import allocator

def megabytes():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024
"""


def _run(program: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + program], capture_output=True, text=True, timeout=60, check=True
    )
    return float(done.stdout)


@pytest.mark.parametrize("size", [16, 48])  # megabytes; glibc lets those of 32 have pages of their own for good
def test_what_an_array_has_left_is_kept(size):
    made = f"array = b'x' * ({size} << 20)\nheld = megabytes()\ndel array\nprint(held - megabytes())"
    assert _run(made) > 0.9 * size  # else there is nothing to keep
    assert _run(f"allocator.retain_freed_memory()\n{made}") < 0.1 * size


def test_what_arrays_have_left_between_others_is_given_back():
    given = _run("""
allocator.retain_freed_memory()
held = [b"x" * (1 << 20) for _ in range(32)]
del held[::2]
before = megabytes()
allocator.trim_heap()
print(before - megabytes())
""")
    assert given > 12  # of 16; pages at both ends of a hole are in use
