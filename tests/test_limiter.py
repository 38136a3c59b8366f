import asyncio
import time

import pytest

from agent.servers.limiter import Allowance, Limiter, Limiters, shared_limiters
from agent.servers.retrying import AttemptError
from tests.waiting import PATIENCE


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
    assert max(begun) < 30


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
            async with asyncio.timeout(PATIENCE), limiter.slot():
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


def refused() -> AttemptError:
    return AttemptError("no room", "wait", again=True, crowded=True)


async def fail(limiter: Limiter, error: Exception) -> None:
    with pytest.raises(type(error)):
        async with limiter.slot():
            await asyncio.sleep(0.001)
            raise error


async def test_a_refusal_halves_what_is_let_through_and_a_window_of_successes_adds_one() -> None:
    limiter = Limiter(8)
    await fail(limiter, refused())
    assert limiter.allowance.now == 4
    for _ in range(4):
        await enter(limiter)
    assert limiter.allowance.now == 5
    for _ in range(5 + 6 + 7):
        await enter(limiter)
    assert limiter.allowance.now == 8
    for _ in range(20):
        await enter(limiter)
    assert limiter.allowance.now == 8, "never above the limit"


async def test_calls_that_were_refused_together_halve_once_and_never_below_one() -> None:
    limiter = Limiter(8)
    await asyncio.gather(*(fail(limiter, refused()) for _ in range(8)))
    assert limiter.allowance.now == 4
    for _ in range(5):
        await fail(limiter, refused())
    assert limiter.allowance.now == 1


async def test_a_server_that_never_answers_halves_and_one_that_is_down_does_not() -> None:
    limiter = Limiter(8)
    await fail(limiter, AttemptError("nothing came", "", again=True, silent=True))
    assert limiter.allowance.now == 4
    await fail(limiter, AttemptError("nobody listens", "", again=True, away=True))
    assert limiter.allowance.now == 4


def test_no_more_are_let_through_while_calls_take_far_longer_than_they_once_did() -> None:
    allowance = Allowance(8)
    for _ in range(8):
        allowance.succeeded(time.monotonic(), 1.0)
    allowance.failed(before := time.monotonic())
    for _ in range(4):
        allowance.succeeded(before, 1.0)
    assert allowance.now == 4, "what began before the cut says nothing of what came after it"
    for seconds in [2.5] * 4 + [0.1] + [2.1] * 3:
        allowance.succeeded(time.monotonic(), seconds)
    assert allowance.now == 4, "both windows had a median above twice the best"
    for _ in range(4):
        allowance.succeeded(time.monotonic(), 2.0)
    assert allowance.now == 5


async def test_what_is_in_flight_shrinks_to_what_the_server_bears() -> None:
    limiter, running = Limiter(6), 0
    seen: list[tuple[int, int]] = []

    async def call(number: int) -> None:
        nonlocal running
        async with limiter.slot():
            running += 1
            seen.append((running, limiter.allowance.now))
            await asyncio.sleep(0.01)
            running -= 1
            if number == 0:
                raise refused()

    await asyncio.gather(*(call(n) for n in range(18)), return_exceptions=True)
    assert [running for running, _ in seen[:6]] == [1, 2, 3, 4, 5, 6]
    assert all(running <= allowed for running, allowed in seen)
    assert min(allowed for _, allowed in seen) == 3


async def test_a_caller_that_gives_up_waiting_leaves_its_place_to_the_next() -> None:
    limiter, let_go = Limiter(1), asyncio.Event()

    async def hold() -> None:
        async with limiter.slot():
            await let_go.wait()

    holding, impatient = asyncio.create_task(hold()), asyncio.create_task(enter(limiter))
    patient = asyncio.create_task(enter(limiter))
    await asyncio.sleep(0.01)
    impatient.cancel()
    let_go.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(holding, patient)
    with pytest.raises(asyncio.CancelledError):
        await impatient
    async with asyncio.timeout(PATIENCE), limiter.slot():
        pass
