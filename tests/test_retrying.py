from datetime import UTC, datetime

import pytest

from agent.servers.retrying import Retry, asked_wait, is_transient

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:59:00 GMT"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_wait(headers, NOW) == seconds


def test_waits_double_up_to_the_longest() -> None:
    retry = Retry(first=1.0, longest=5.0)
    assert [retry.wait(tried, None, chance=0.0) for tried in (1, 2, 3, 4)] == [0.5, 1, 2, 2.5]
    assert [retry.wait(tried, None, chance=1.0) for tried in (1, 2, 3, 4)] == [1, 2, 4, 5]


def test_a_wait_that_was_asked_for_is_never_shortened() -> None:
    assert Retry(longest=5.0).wait(1, 20.0, chance=0.0) == 20.0
    assert Retry(longest=5.0).wait(1, 20.0, chance=1.0) == 22.0


def test_only_passing_failures_are_tried_again() -> None:
    assert all(map(is_transient, (408, 409, 429, 500, 502, 503, 529)))
    assert not any(map(is_transient, (400, 401, 403, 404, 422)))
