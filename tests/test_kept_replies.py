"""Replies kept on disk: paid for once, never in place of another, and forgotten when useless."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judge.building import LocalModel
from judge.kept_replies import KeptChat, KeptLocal, kept
from memory.asking import ask_json
from memory.errors import JudgeError
from memory.interfaces import Message, Sampling
from memory.replies import ReplyStore
from memory.schema import NO_USAGE
from tests.chat_clients import client
from tests.scripted_server import Reply, ScriptedServer
from tests.test_asking import GOOD, Items

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
