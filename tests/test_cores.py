"""Threads for the embedded model: cores that others keep busy are not counted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cores import free_cores, physical_cores

needs_proc = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="reads /proc/stat")


def test_there_is_always_a_core():
    assert 1 <= free_cores(0.05) <= physical_cores() <= (os.cpu_count() or 1)


@needs_proc
def test_a_busy_machine_leaves_one_thread():
    spin = "while True: pass"
    count = os.cpu_count() or 1
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)]
    try:
        assert free_cores(1.0) == 1
    finally:
        for other in others:
            other.kill()
            other.wait()


@needs_proc
def test_the_work_of_this_process_does_not_count():
    code = (
        "import threading\nfrom agent.cores import free_cores, physical_cores\n"
        "def spin():\n    while True: sum(range(10000))\n"
        "threading.Thread(target=spin, daemon=True).start()\n"
        "print(free_cores(1.0), physical_cores())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    free, cores = map(int, done.stdout.split())
    assert 1 <= free <= cores
