"""The policy seam: one transcript, as token ids for one kind of model, messages for the other.

Calls beside transcripts: finished ones are made once in a run, kept ones once for all.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.models.policy import (
    ChatWriter,
    JournaledCalls,
    JournaledChat,
    KeptCalls,
    TokenWriter,
    call_scope,
    journal_calls,
    name_of_call,
)
from rubricem.memory.asking import ask_json
from rubricem.memory.errors import JudgeError
from rubricem.memory.runs import Journal, ReplyStore
from rubricem.memory.schema import (
    NO_USAGE,
    Author,
    Completion,
    LocalModel,
    Message,
    Sampling,
    Segment,
    Stage,
)
from tests.memory.test_asking import GOOD, Items
from tests.support.values import GivenChat, GivenModel

TRANSCRIPT = [
    Segment(author=Author.PROMPT, text="Question", token_ids=(1, 2)),
    Segment(author=Author.PROMPT, stage=Stage.PLAN, text=" note", token_ids=(3,)),
    Segment(author=Author.POLICY, stage=Stage.PLAN, text="plan ", token_ids=(4, 5)),
    Segment(author=Author.POLICY, stage=Stage.RESEARCH, text="call", token_ids=(6,)),
    Segment(author=Author.TOOL, stage=Stage.RESEARCH, text="output", token_ids=(7, 8)),
]
SAMPLING = Sampling(max_tokens=5)


async def test_a_token_model_renders_system_prompt_and_question_and_continues_all_segments_ids():
    model = GivenModel(text="text")
    writer = TokenWriter(model)
    assert await writer.render("system", "question") == tuple(map(ord, "system\nquestion"))
    assert await writer.encode("ab") == (97, 98)
    written = await writer.write("system", TRANSCRIPT, SAMPLING, None, None)
    assert (model.read, written.text) == (["\1\2\3\4\5\6\7\x08"], "text")
    assert (writer.name, writer.version, writer.context_tokens) == ("given", "1", 8192)
    assert not writer.retokenised


async def test_a_chat_server_gets_one_message_a_side_and_its_ids_are_dropped():
    model = GivenChat(Completion("text", "eos", (9,), (-0.1,), (4,), reasoning="hm"))
    writer = ChatWriter(model)
    written = await writer.write("system", TRANSCRIPT, SAMPLING, None, None)
    assert model.asked == [
        [
            Message("system", "system"),
            Message("user", "Question note"),
            Message("assistant", "plan call"),
            Message("user", "<tool_response>\noutput\n</tool_response>"),
        ]
    ]
    assert (written.token_ids, written.logprobs, written.token_ends) == (None, None, None)
    assert (written.text, written.reasoning) == ("text", "hm")
    assert writer.retokenised and writer.context_tokens is None
    assert await writer.render("system", "question") is None
    assert await writer.encode("ab") is None


ASKED = [Message("user", "Which is better?")]


class Numbering:
    """A chat model and a reader whose every reply has a number."""

    name, version, context_tokens = "numbering", "1", 100

    def __init__(self) -> None:
        self.calls = 0

    async def chat(self, *call: object) -> Completion:
        self.calls += 1
        return Completion(text=f"reply {self.calls}", stop_reason="eos", logprobs=(-0.5,))

    async def complete(self, *call: object) -> Completion:
        return await self.chat()

    async def weigh(self, prefix: object, options: object) -> tuple[float, ...]:
        self.calls += 1
        return (1 / self.calls, 1 - 1 / self.calls)

    async def render(self, messages: object) -> tuple[int, ...]:
        return (1, 2)

    async def encode(self, text: str) -> tuple[int, ...]:
        return (3,)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@pytest.fixture
def calls(path: Path) -> Iterator[JournaledCalls]:
    journal = Journal(path)
    yield JournaledCalls(journal)
    journal.close()


def again(path: Path) -> JournaledCalls:
    """The calls of another process, which the journal already holds."""
    folder = path.parent / "again"
    folder.mkdir()
    (folder / path.name).write_bytes(path.read_bytes())
    return JournaledCalls(Journal(folder / path.name))


async def test_a_finished_call_is_not_made_again_by_another_process(
    calls: JournaledCalls, path: Path
):
    model = Numbering()
    with call_scope("group 1"):
        first = await JournaledChat(model, calls).chat(ASKED, Sampling())
    later = again(path)
    with call_scope("group 1"):
        second = await JournaledChat(model, later).chat(ASKED, Sampling())
    assert (first, model.calls) == (second, 1)
    assert first == Completion(text="reply 1", stop_reason="eos", logprobs=(-0.5,))


async def test_the_same_call_asked_twice_is_two_calls_in_their_order(
    calls: JournaledCalls, path: Path
):
    model = Numbering()
    for kept in (calls, again(path)):
        with call_scope("group 1"):
            chat = JournaledChat(model, kept)
            texts = [(await chat.chat(ASKED, Sampling())).text for _ in range(2)]
        assert texts[0] != texts[1]
    assert model.calls == 4, "the second process began before the first had asked"


async def test_calls_are_told_apart_by_scope_arguments_and_model_wherever_its_server_moved_to(
    calls: JournaledCalls,
):
    model = Numbering()
    for name, scope, seed, made in (
        ("qwen@one:1", "group 1", None, 1),
        ("qwen@two:2", "group 1", None, 1),
        ("llama@two:2", "group 1", None, 2),
        ("qwen", "group 1", None, 3),
        ("qwen", "group 1", 1, 4),
        ("qwen", "group 2", None, 5),
        ("qwen", "group 2", 1, 6),
    ):
        model.name = name
        with call_scope(scope):
            await JournaledChat(model, calls).chat(ASKED, Sampling(seed=seed))
        assert model.calls == made, (name, scope, seed)


@pytest.fixture
def store(tmp_path: Path) -> ReplyStore:
    return ReplyStore(tmp_path / "replies")


IT = [Message("user", "Judge it.")]
PLAIN = Sampling(temperature=0.0)


async def test_the_same_call_is_paid_for_once(store: ReplyStore):
    chat = JournaledChat(GivenChat("first"), KeptCalls(store))
    once, again = [await chat.chat(IT, PLAIN) for _ in range(2)]
    assert (once.text, again.text) == ("first", "first")
    assert (once.usage.calls, again.usage) == (1, NO_USAGE)


async def test_a_reply_that_could_not_be_used_is_forgotten(store: ReplyStore):
    model = GivenChat("no", "no", "no", GOOD)
    chat = JournaledChat(model, KeptCalls(store))
    with pytest.raises(JudgeError):
        await ask_json(chat, IT, Items)
    value, used = await ask_json(chat, IT, Items)
    _, kept_usage = await ask_json(chat, IT, Items)
    assert (value.items[0].name, used.calls, kept_usage.calls) == ("a", 1, 0)
    assert model.replies == []


async def test_a_reply_cut_off_by_its_length_is_not_kept(store: ReplyStore):
    chat = JournaledChat(GivenChat(Completion("half", "length"), "whole"), KeptCalls(store))
    assert [(await chat.chat(IT, PLAIN)).text for _ in range(2)] == ["half", "whole"]


@pytest.mark.parametrize("content", ["{", "[]", '{"text": 3}', "\x00"])
async def test_a_damaged_file_counts_as_not_there(store: ReplyStore, content: str):
    chat = JournaledChat(GivenChat("first", "second"), KeptCalls(store))
    await chat.chat(IT, PLAIN)
    (path,) = store.folder.rglob("*.json")
    path.write_text(content)
    assert (await chat.chat(IT, PLAIN)).text == "second"


async def test_probabilities_are_read_once_for_the_same_tokens_options_and_weights(
    store: ReplyStore,
):
    model = Numbering()
    local = journal_calls(model, KeptCalls(store))
    assert isinstance(local, LocalModel)
    assert [await local.weigh((1, 2), ("a", "b")) for _ in range(2)] == [(1.0, 0.0)] * 2
    assert model.calls == 1
    await local.weigh((1, 2), ("b", "a"))
    await local.weigh((1,), ("a", "b"))
    model.version = "2"
    await local.weigh((1, 2), ("a", "b"))
    assert model.calls == 4


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (("chat", "qwen@there:1", PLAIN, IT), f"chat\0qwen@\0{PLAIN}\0{IT}"),
        (("weigh", "m", "1", ["a"], [1, 2]), "weigh\0m\x001\0['a']\0[1, 2]"),
        (("complete", "m", "1", PLAIN, [1, 2]), f"complete\0m\x001\0{PLAIN}\0[1, 2]"),
        (("write", "m", "", PLAIN, "s", "q"), f"write\0m\0\0{PLAIN}\0s\0q"),
    ],
)
def test_a_journal_names_a_call_as_it_always_did(call: tuple[Any, ...], named: str):
    assert name_of_call(*call) == named
