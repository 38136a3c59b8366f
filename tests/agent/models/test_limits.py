import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rubricem.agent.models.limits import (
    PAYER,
    PERSON,
    AttemptError,
    Endpoint,
    Limiter,
    Places,
    Price,
    Retry,
    Tries,
    cost,
    parse_wait,
    shared_limiter,
)
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.schema import Usage


async def test_a_pause_holds_back_every_call_and_is_prolonged_but_never_shortened() -> None:
    limiter = Limiter(4)
    limiter.pause(0.2)
    limiter.pause(0.01)
    start = time.monotonic()

    async def call() -> float:
        async with limiter.slot():
            return time.monotonic() - start

    calls = asyncio.gather(*(call() for _ in range(6)))
    await asyncio.sleep(0.05)
    limiter.pause(0.3)
    begun = await calls
    assert min(begun) >= 0.35
    assert max(begun) < 30


async def test_a_server_has_one_limiter_in_a_process_however_its_address_is_written() -> None:
    one = shared_limiter("http://localhost:8080/v1", 4)
    assert shared_limiter("http://localhost:8080/v1", 8) is one
    assert shared_limiter("http://LOCALHOST:8080/v1/") is one
    assert shared_limiter("http://ann:secret@localhost:8080/v1") is one
    assert shared_limiter("http://localhost:8081/v1") is not one


@pytest.mark.parametrize(
    ("address", "url", "host", "loopback"),
    [
        ("http://localhost:8080/v1", "http://localhost:8080/v1", "localhost:8080", True),
        ("https://API.example.com/v1/", "https://api.example.com/v1", "api.example.com", False),
        ("http://ann:pw@a.b:1/v1?key=secret#x", "http://a.b:1/v1", "a.b:1", False),
        ("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080", True),
        ("http://127.0.0.9/v1", "http://127.0.0.9/v1", "127.0.0.9", True),
        ("http://10.0.0.1/v1", "http://10.0.0.1/v1", "10.0.0.1", False),
    ],
)
def test_an_address_is_shown_without_credentials_and_this_machines_own_are_known(
    address: str, url: str, host: str, loopback: bool
) -> None:
    endpoint = Endpoint.parse(address)
    assert (endpoint.url, endpoint.host, endpoint.loopback) == (url, host, loopback)


@pytest.mark.parametrize("address", ["localhost:8080", "ftp://host/v1", "http://", "http://h:x/"])
def test_what_is_no_http_address_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Endpoint.parse(address)
    assert address not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_wait(headers) == seconds


def test_waits_double_up_to_the_longest_and_one_that_was_asked_for_is_never_shortened() -> None:
    retry = Retry(first=1.0, longest=5.0)
    assert [retry.wait(tried, None, chance=0.0) for tried in (1, 2, 3, 4)] == [0.5, 1, 2, 2.5]
    assert [retry.wait(tried, None, chance=1.0) for tried in (1, 2, 3, 4)] == [1, 2, 4, 5]
    assert [retry.wait(1, 20.0, chance) for chance in (0.0, 1.0)] == [20.0, 22.0]


USAGE = Usage(prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=200_000, calls=1)


def test_cached_tokens_cost_their_own_price_and_no_price_is_no_cost_rather_than_zero() -> None:
    # 0.6 million at 2, 0.4 million at 0.5, 0.2 million at 8
    assert cost(USAGE, Price(2.0, 0.5, 8.0)) == pytest.approx(1.2 + 0.2 + 1.6)
    assert cost(USAGE, Price(0.0, 0.0, 0.0)) == 0.0
    assert cost(USAGE, None) is None


async def test_places_go_in_turns_by_person_and_no_user_has_more_than_half() -> None:
    places, got = Places(4), list[str]()

    async def work(person: str) -> None:
        PERSON.set(person)
        await places.acquire()
        got.append(person)
        await asyncio.sleep(0.01)
        places.release(person)

    eve = [asyncio.create_task(work("eve")) for _ in range(6)]
    await asyncio.sleep(0)
    assert got == ["eve"] * 2
    others = [asyncio.create_task(work(name)) for name in ("", "", "ann")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    eve[3].cancel()
    await asyncio.gather(*eve, *others, return_exceptions=True)
    assert got[2:4] == ["", ""] and got[4] == "ann" and got.count("eve") == 5
    PERSON.set("eve")
    assert [await places.acquire() for _ in range(2)] == ["eve"] * 2
    waits = asyncio.create_task(places.acquire())
    await asyncio.sleep(0)
    places.release("eve")
    waits.cancel()  # in the moment in which it is given
    with pytest.raises(asyncio.CancelledError):
        await waits
    async with asyncio.timeout(1):
        await places.acquire()


async def test_what_failed_tries_cost_is_told_where_nothing_is_left_for_another() -> None:
    async def fail() -> None:
        failed = AttemptError("broken")
        failed.again, failed.usage = True, USAGE
        raise failed

    class Broke:
        left = 1

        @asynccontextmanager
        async def call(self, most: Usage) -> AsyncIterator[None]:
            self.left -= 1
            if self.left < 0:
                raise PolicyError("nothing is left")
            yield

        def pay(self, usage: Usage) -> None: ...

    token = PAYER.set(Broke())
    with pytest.raises(PolicyError, match="nothing is left") as end:
        await Tries(Limiter(1), Retry(first=0.0)).call(fail, USAGE)
    PAYER.reset(token)
    assert end.value.usage == USAGE
