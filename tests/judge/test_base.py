"""Scores as models write them.

Replies kept on disk: paid for once, never in place of another, and forgotten when useless.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rubricem.judge.base import Raw, id_fault, in_unit_range, plain_id, raw_score
from rubricem.judge.build import KeptChat, KeptLocal, LocalModel, kept
from rubricem.memory.asking import ask_json
from rubricem.memory.errors import JudgeError
from rubricem.memory.interfaces import Message, Sampling
from rubricem.memory.runs import ReplyStore
from rubricem.memory.schema import NO_USAGE
from tests.memory.test_asking import GOOD, Items
from tests.support.policies import client
from tests.support.scripted_server import Reply, ScriptedServer


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ((0.2, 1), [0.2, 1]),
        ((1.05, -0.2), [1, 0]),
        ((8, 4), [0.8, 0.4]),
        ((90, 30), [0.9, 0.3]),
        ((10, 0), [1, 0]),
        (("8/10", "40%"), [0.8, 0.4]),
        (("0.5", "1"), [0.5, 1]),
        (("7 out of 10", 0.3), [0.7, 0.3]),
        ((0, 0), [0, 0]),
        ((".5", "+0.5"), [0.5, 0.5]),
    ],
)
def test_a_group_is_brought_to_one_scale(written: tuple[Any, ...], read: list[float]):
    assert in_unit_range([raw_score(value) for value in written]) == pytest.approx(read)


@pytest.mark.parametrize("written", [(0.9, 8), (101, 50), (250,)])
def test_scales_that_cannot_be_told_are_refused(written: tuple[float, ...]):
    with pytest.raises(ValueError, match="from 0 to 1"):
        in_unit_range([Raw(value) for value in written])


@pytest.mark.parametrize(
    "value", [True, None, float("nan"), float("inf"), "nan", "high", "1e999", "3/0", [1], ""]
)
def test_what_is_no_number_is_refused(value: Any):
    with pytest.raises(ValueError, match=r"score"):
        raw_score(value)


@pytest.mark.parametrize("written", [2, "2", " 2 ", "Attempt 2", "trajectory_2", "#2", "02"])
def test_an_id_is_read_however_it_is_written(written: Any):
    assert plain_id(written) == "2"


def test_other_ids_stay_what_they_are():
    assert plain_id("B") == "B"


def test_the_fault_of_ids_names_each_of_them():
    assert id_fault(["2", "1"], ["1", "2"]) == ""
    fault = id_fault(["1", "1", "7"], ["1", "2", "3"])
    assert "missing: 2, 3" in fault and "more than once: 1" in fault and "unknown: 7" in fault
    assert "exactly 3 entries" in id_fault(["1"], ["1", "2", "3"])


ASKED = [Message("user", "Judge \ud83d it, gerecht.")]
PLAIN = Sampling(temperature=0.0)


@pytest.fixture
def store(tmp_path: Path) -> ReplyStore:
    return ReplyStore(tmp_path / "replies")


async def test_the_same_call_is_paid_for_once(store: ReplyStore):
    asked = [Message("user", "Judge it.")]
    with ScriptedServer(["first", "second"]) as server:
        async with client(server.base_url) as chat:
            once = await KeptChat(chat, store).chat(asked, PLAIN)
            again = await KeptChat(chat, store).chat(asked, PLAIN)
    assert (once.text, again.text, len(server.requests)) == ("first", "first", 1)
    assert (once.usage.calls, again.usage) == (1, NO_USAGE)


@pytest.mark.parametrize(
    ("messages", "sampling"),
    [
        ([Message("user", "Judge it!")], PLAIN),
        ([Message("system", "Judge it.")], PLAIN),
        ([Message("user", "Judge it.")], Sampling(temperature=0.0, seed=1)),
        ([Message("user", "Judge it.")], Sampling(temperature=0.1)),
    ],
)
async def test_another_call_is_asked(
    store: ReplyStore, messages: Sequence[Message], sampling: Sampling
):
    with ScriptedServer(["first", "second"]) as server:
        async with client(server.base_url) as chat:
            await KeptChat(chat, store).chat([Message("user", "Judge it.")], PLAIN)
            reply = await KeptChat(chat, store).chat(messages, sampling)
    assert reply.text == "second"


async def test_another_model_is_asked(store: ReplyStore):
    with ScriptedServer(["first"]) as one, ScriptedServer(["second"]) as two:
        async with client(one.base_url) as chat:
            await KeptChat(chat, store).chat([Message("user", "It.")], PLAIN)
        async with client(two.base_url) as chat:
            reply = await KeptChat(chat, store).chat([Message("user", "It.")], PLAIN)
    assert reply.text == "second"


async def test_a_reply_that_could_not_be_used_is_forgotten(store: ReplyStore):
    with ScriptedServer(["no", "no", "no", GOOD]) as server:
        async with client(server.base_url) as chat:
            model = KeptChat(chat, store)
            with pytest.raises(JudgeError):
                await ask_json(model, [Message("user", "It.")], Items)
            value, used = await ask_json(model, [Message("user", "It.")], Items)
            _, kept_usage = await ask_json(model, [Message("user", "It.")], Items)
    assert (value.items[0].name, used.calls, kept_usage.calls) == ("a", 1, 0)
    assert len(server.requests) == 4


async def test_a_reply_cut_off_by_its_length_is_not_kept(store: ReplyStore):
    with ScriptedServer([Reply("half", finish="length"), "whole"]) as server:
        async with client(server.base_url) as chat:
            await KeptChat(chat, store).chat([Message("user", "It.")], PLAIN)
            reply = await KeptChat(chat, store).chat([Message("user", "It.")], PLAIN)
    assert reply.text == "whole"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"text": 3}', "\x00"])
async def test_a_damaged_file_counts_as_not_there(store: ReplyStore, content: str):
    with ScriptedServer(["first", "second"]) as server:
        async with client(server.base_url) as chat:
            await KeptChat(chat, store).chat([Message("user", "It.")], PLAIN)
            (path,) = store.folder.rglob("*.json")
            path.write_text(content)
            reply = await KeptChat(chat, store).chat([Message("user", "It.")], PLAIN)
    assert reply.text == "second"


async def test_a_call_that_is_listened_to_passes_through(store: ReplyStore):
    heard: list[str] = []
    with ScriptedServer(["first", "second"]) as server:
        async with client(server.base_url) as chat:
            model = KeptChat(chat, store)
            for _ in range(2):
                await model.chat([Message("user", "It.")], PLAIN, None, heard.append)
    assert "".join(heard) == "firstsecond"


class Counted:
    """A `LocalModel` that counts its reads."""

    name, version, context_tokens = "local", "1", 1000

    def __init__(self) -> None:
        self.reads = 0

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return (1, 2)

    async def encode(self, text: str) -> tuple[int, ...]:
        return (3,)

    async def complete(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def weigh(self, prefix: Sequence[int], options: Sequence[str]) -> tuple[float, ...]:
        self.reads += 1
        return (0.25, 0.75)


async def test_probabilities_are_read_once_for_the_same_tokens_options_and_weights(
    store: ReplyStore,
):
    model = Counted()
    local = kept(model, store)
    assert isinstance(local, KeptLocal) and isinstance(local, LocalModel)
    assert await local.weigh((1, 2), ("a", "b")) == (0.25, 0.75)
    assert await local.weigh((1, 2), ("a", "b")) == (0.25, 0.75)
    assert model.reads == 1
    await local.weigh((1, 2), ("b", "a"))
    await local.weigh((1,), ("a", "b"))
    model.version = "2"
    await local.weigh((1, 2), ("a", "b"))
    assert model.reads == 4


async def test_kept_probabilities_that_cannot_be_any_are_read_again(store: ReplyStore):
    model = Counted()
    local = KeptLocal(model, store)
    await local.weigh((1, 2), ("a", "b"))
    (path,) = store.folder.rglob("*.json")
    path.write_text(json.dumps({"chances": [0.5, 2.0]}))
    assert await local.weigh((1, 2), ("a", "b")) == (0.25, 0.75)


def test_text_that_no_encoding_writes_still_names_a_reply(store: ReplyStore):
    asked = {"messages": [ASKED[0].content]}
    store.save(asked, {"text": "x \ud83d"})
    assert store.load(asked) == {"text": "x \ud83d"}
