"""Memory that a process is given once is not given again, where the C library keeps it."""

import subprocess
import sys

import pytest

GIVEN_AGAIN = """
from workflow_scripts.lib.process_memory import given_pages, keep_freed_memory, touch_memory
keeps = keep_freed_memory()
if TOUCHED:
    touch_memory(2**26)
before = given_pages()
b"\\1" * 2**25
print(given_pages() - before if keeps else "gives back")
"""


@pytest.mark.parametrize("touched", [True, False])
def test_memory_that_was_touched_is_at_hand(touched):
    told = subprocess.run(
        [sys.executable, "-c", GIVEN_AGAIN.replace("TOUCHED", str(touched))], check=True, capture_output=True, text=True
    ).stdout.strip()
    if told == "gives back":
        pytest.skip("this C library gives back what is freed")
    assert (int(told) < 100) == touched  # 32 MiB are 8,192 pages of 4 KiB, 512 of 64 KiB
