"""What is told of a run."""

import pytest

from rubricem.agent.transcript import events


def test_rising_counts_are_told_once_and_then_once_a_minute(monkeypatch: pytest.MonkeyPatch):
    said, now = list[str](), [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    tell = events.once_each(said.append)
    for number in range(1, 131):
        now[0] += 1
        tell(f"reading document {number} of 900")
    tell("indexing")
    read = [f"reading document {number} of 900" for number in (1, 61, 121)]
    assert said == [*read, "indexing"]
