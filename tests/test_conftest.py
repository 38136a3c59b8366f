"""The guards that the other tests rely on do guard."""

import os
import socket
from pathlib import Path

import platformdirs
import pytest


def test_an_address_beyond_loopback_cannot_be_reached(forbidden_attempts: list[str]):
    with socket.socket() as outward, pytest.raises(RuntimeError, match=r"192\.0\.2\.1"):
        outward.connect(("192.0.2.1", 80))
    with pytest.raises(RuntimeError, match=r"example\.org"):
        socket.getaddrinfo("example.org", 80)
    assert len(forbidden_attempts) == 2
    forbidden_attempts.clear()


def test_tests_live_in_a_home_of_their_own(home: Path):
    assert platformdirs.user_data_path("rubricem").is_relative_to(home)
    assert platformdirs.user_cache_path("rubricem").is_relative_to(home)
    assert not [name for name in os.environ if name.startswith(("RUBRICEM_", "OPENAI_"))]
