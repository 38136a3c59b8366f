"""Several servers behind one policy: who is asked, who is left out, who is taken back."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.models import opening
from rubricem.agent.models.opening import ServerChoice
from rubricem.memory.errors import PolicyError, SettingsError
from rubricem.memory.schema import Sampling
from tests.support.token_servers import CHAT, Engine
from tests.support.waiting import PATIENCE, wait_for

SAMPLING = Sampling(max_tokens=16, seed=1)
LONG = 2 * opening.BLOCK


@pytest.fixture
def three() -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Engine("vllm-lora")) for _ in range(3)]


def choice_of(engines: list[Engine], model: str = "base") -> ServerChoice:
    first, *others = (one.base_url for one in engines)
    return ServerChoice(model, first, dialect="auto", more=tuple(others), timeout=5.0)


def prefix_of(number: int) -> tuple[int, ...]:
    return tuple(ord("a") + number for _ in range(LONG))


async def test_calls_are_shared_and_go_where_their_beginning_was_read(three: list[Engine]):
    choice = choice_of(three)
    assert choice.at_once == 3 * choice.concurrency
    async with choice.open_policy() as policy:
        assert (policy.name, policy.version) == ("base", "org/base"), "whoever of them is there"
        assert policy.context_tokens == 65_536
        assert (await policy.encode("ab")) == (ord("a"), ord("b"))
    async with choice.open_tokens() as pool:
        assert await pool.render(CHAT)
        for number in (0, 1, 2):
            await asyncio.gather(
                *(pool.complete(prefix_of(number), SAMPLING) for _ in range(opening.SLACK))
            )
        homes = [len(one.bodies("POST /v1/completions")) for one in three]
        assert sorted(homes)[-1] >= opening.SLACK
        before = Counter(one.port for one in three for _ in one.bodies("POST /v1/completions"))
        prompts = {
            one.port: {body["prompt"][0] for body in one.bodies("POST /v1/completions")}
            for one in three
        }
        assert all(len(begun) <= 3 for begun in prompts.values()) and before.total() == 12
        many = [pool.complete(prefix_of(0), SAMPLING) for _ in range(60)]
        await asyncio.gather(*many)
    counts = [len(one.bodies("POST /v1/completions")) for one in three]
    assert sum(counts) == 72 and min(counts) >= 10, "the load goes before the beginning"


async def test_one_that_is_away_is_left_out_and_taken_back(
    three: list[Engine], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(opening, "ASKED_AGAIN", 0.05)
    told: list[str] = []
    async with choice_of(three).open_tokens(told.append) as pool:
        away = {"GET /v1/models", "POST /v1/completions"}
        three[1].failing = away
        await asyncio.to_thread(wait_for, lambda: any("left out" in line for line in told))
        for _ in range(9):
            assert (await pool.complete(prefix_of(1), SAMPLING)).text == "one two"
        assert not three[1].sampled
        three[1].failing = set()
        await asyncio.to_thread(wait_for, lambda: any("taken back" in line for line in told))
        await asyncio.gather(*(pool.complete(prefix_of(n), SAMPLING) for n in range(30)))
        assert three[1].sampled
        for one in three:
            one.failing = away
        with pytest.raises(PolicyError) as error:
            await pool.complete(prefix_of(1), SAMPLING)
        assert error.value.away, "the run waits until one is back"
        three[2].failing = set()
        await asyncio.to_thread(wait_for, lambda: not three[2].failing)
        for _ in range(40):
            try:
                await pool.complete(prefix_of(1), SAMPLING)
                break
            except PolicyError:
                await asyncio.sleep(0.05)
        else:
            raise AssertionError("one is back")


async def test_a_call_that_fails_on_the_way_is_made_again_on_another(three: list[Engine]):
    told: list[str] = []
    async with choice_of(three).open_tokens(told.append) as pool:
        three[0].failing = {"GET /v1/models", "POST /v1/completions"}
        said = await asyncio.gather(*(pool.complete(prefix_of(n), SAMPLING) for n in range(12)))
    assert all(one.text == "one two" for one in said)
    assert sum("left out" in line for line in told) == 1, "told once"


async def test_none_serves_another_version_unnoticed(
    three: list[Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(opening, "ASKED_AGAIN", 0.05)
    (tmp_path / "adapter_config.json").write_text("{}")
    for one in three:
        one.adapters["mine"] = str(tmp_path)
    three[2].adapters["mine"] = str(tmp_path / "older")
    told: list[str] = []
    async with choice_of(three, "mine").open_tokens(told.append) as pool:
        assert pool.version == str(tmp_path) and pool.context_tokens == 65_536
        assert any(f"it serves {tmp_path / 'older'}, and not" in line for line in told)
        three[1].restarted()
        await asyncio.gather(*(pool.complete(prefix_of(n), SAMPLING) for n in range(12)))
        assert {model for model, _ in three[0].sampled} == {"mine"}
        assert not three[1].sampled and not three[2].sampled
        three[2].adapters["mine"] = str(tmp_path)
        await asyncio.to_thread(wait_for, lambda: any("taken back" in line for line in told))


@pytest.mark.parametrize("kind", ["vllm-weights", "sglang-weights"])
async def test_weights_that_were_updated_have_a_version_of_their_own(kind: str):
    with Engine(kind) as server:
        choice = ServerChoice("base", server.base_url, dialect="auto", timeout=5.0)
        server.weights, server.version = "/checkpoints/3", "ss-grpo-3-ab"
        async with choice.open_tokens() as served:
            assert served.version == "/checkpoints/3@ss-grpo-3-ab"


async def test_an_adapter_of_sglang_is_asked_for_by_its_name_and_missed_where_it_is_not():
    with Engine("sglang-lora") as server:
        choice = ServerChoice("base:mine", server.base_url, dialect="auto", timeout=5.0)
        async with choice.open_tokens() as served:
            assert served.version == "org/base@default:"
            server.adapters["mine"] = "/somewhere"
            assert await served.serves() == "org/base@default:mine"
            assert served._dialect.body((1,), SAMPLING)["lora_path"] == "mine"


async def test_no_call_waits_for_a_place_where_another_server_has_one(three: list[Engine]):
    at_once, most, all_in = 2, Counter[int](), threading.Event()
    routes = [server.routes["POST /v1/completions"] for server in three]

    def held(number: int) -> Any:
        def answer(asked: Any) -> Any:
            most[number] += 1
            if most.total() == at_once * len(three):
                all_in.set()
            assert all_in.wait(PATIENCE), "a call waits while a server has a place for it"
            return routes[number](asked)

        return answer

    for number, server in enumerate(three):
        server.routes["POST /v1/completions"] = held(number)
    choice = replace(choice_of(three), concurrency=at_once)
    async with choice.open_tokens() as pool:
        # All begin alike, so that they would go to one server.
        calls = (pool.complete(prefix_of(1), SAMPLING) for _ in range(at_once * len(three)))
        await asyncio.gather(*calls)
    assert set(most.values()) == {at_once}


async def test_several_servers_of_messages_are_refused_and_none_that_answers_is_told(
    three: list[Engine],
):
    by_messages = ServerChoice("base", "http://a/v1", more=("http://b/v1",))
    with pytest.raises(SettingsError, match="share calls in token ids"):
        async with by_messages.open_policy():
            raise AssertionError("it is no pool")
    nobody = ServerChoice("m", "http://127.0.0.1:9/v1", dialect="auto", more=("http://[::1]:9/v1",))
    with pytest.raises(PolicyError, match=r"no model server answers at http://127\.0\.0\.1:9"):
        async with nobody.open_tokens():
            raise AssertionError("nobody answers")
