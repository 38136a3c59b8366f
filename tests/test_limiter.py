import asyncio
import time

import pytest

from agent.servers.limiter import Limiter, Limiters, shared_limiters


async def test_no_more_than_the_limit_are_in_flight() -> None:
    limiter = Limiter(2)
    now = most = 0

    async def call() -> None:
        nonlocal now, most
        async with limiter.slot():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.01)
            now -= 1

    await asyncio.gather(*(call() for _ in range(7)))
    assert most == 2


async def test_a_pause_holds_back_every_call_and_then_lets_all_go() -> None:
    limiter = Limiter(4)
    limiter.pause(0.2)
    start = time.monotonic()

    async def call() -> float:
        async with limiter.slot():
            return time.monotonic() - start

    begun = await asyncio.gather(*(call() for _ in range(6)))
    assert min(begun) >= 0.2
    assert max(begun) < 1


async def test_a_pause_is_prolonged_but_never_shortened() -> None:
    limiter = Limiter(1)
    limiter.pause(0.2)
    limiter.pause(0.01)
    start = time.monotonic()
    waiting = asyncio.create_task(enter(limiter))
    await asyncio.sleep(0.05)
    limiter.pause(0.3)
    await waiting
    assert time.monotonic() - start >= 0.35


async def enter(limiter: Limiter) -> None:
    async with limiter.slot():
        pass


async def test_a_call_that_fails_gives_its_place_back() -> None:
    limiter = Limiter(1)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            async with asyncio.timeout(1), limiter.slot():
                raise RuntimeError


def test_a_server_has_one_limiter_however_its_address_is_written() -> None:
    limiters = Limiters()
    one = limiters.of("http://localhost:8080/v1")
    assert limiters.of("http://LOCALHOST:8080/v1/") is one
    assert limiters.of("http://ann:secret@localhost:8080/v1") is one
    assert limiters.of("http://localhost:8081/v1") is not one
    assert Limiters().of("http://localhost:8080/v1") is not one


async def test_policy_and_judge_of_one_process_share_the_limiter_of_their_server() -> None:
    one = shared_limiters().of("http://localhost:8080/v1", 4)
    assert shared_limiters().of("http://localhost:8080/v1", 8) is one


def test_every_event_loop_has_limiters_of_its_own() -> None:
    async def held() -> Limiters:
        return shared_limiters()

    assert asyncio.run(held()) is not asyncio.run(held())


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="lets none through"):
        Limiter(0)
