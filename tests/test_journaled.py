from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.journaled import Calls, JournaledChat, JournaledPolicy, JournaledReader
from agent.policy import Policy
from judge.building import LocalModel
from memory.interfaces import ChatModel, Completion, Message, Sampling
from memory.journal import Journal
from memory.schema import Author, Segment
from tests.fakes import ScriptedPolicy

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
def calls(path: Path) -> Iterator[Calls]:
    journal = Journal(path)
    yield Calls(journal)
    journal.close()


def again(path: Path) -> Calls:
    """The calls of another process, which the journal already holds."""
    folder = path.parent / "again"
    folder.mkdir()
    (folder / path.name).write_bytes(path.read_bytes())
    return Calls(Journal(folder / path.name))


async def test_a_finished_call_is_not_made_again_by_another_process(calls: Calls, path: Path):
    model = Numbering()
    with calls.scope("group 1"):
        first = await JournaledChat(model, calls).chat(ASKED, Sampling())
    later = again(path)
    with later.scope("group 1"):
        second = await JournaledChat(model, later).chat(ASKED, Sampling())
    assert (first, model.calls) == (second, 1)
    assert first == Completion(text="reply 1", stop_reason="eos", logprobs=(-0.5,))


async def test_the_same_call_asked_twice_is_two_calls_in_their_order(calls: Calls, path: Path):
    model = Numbering()
    for journaled in (calls, again(path)):
        with journaled.scope("group 1"):
            chat = JournaledChat(model, journaled)
            texts = [(await chat.chat(ASKED, Sampling())).text for _ in range(2)]
        assert texts[0] != texts[1]
    assert model.calls == 4, "the second process began before the first had asked"


async def test_scopes_and_arguments_are_told_apart(calls: Calls):
    model = Numbering()
    chat = JournaledChat(model, calls)
    for scope in ("group 1", "group 2"):
        with calls.scope(scope):
            await chat.chat(ASKED, Sampling())
            await chat.chat(ASKED, Sampling(seed=1))
    assert model.calls == 4


async def test_probabilities_come_back_as_they_were(calls: Calls, path: Path):
    model, later = Numbering(), None
    with calls.scope("a"):
        reader = JournaledReader(model, model, calls)
        read = [await reader.weigh((1, 2), ("Yes", "No")) for _ in range(2)]
        written = await reader.complete((1, 2), Sampling())
    later = again(path)
    with later.scope("a"):
        reader = JournaledReader(model, model, later)
        assert [await reader.weigh((1, 2), ("Yes", "No")) for _ in range(2)] == read
        assert await reader.complete((1, 2), Sampling()) == written
    assert (read, model.calls) == ([(1.0, 0.0), (0.5, 0.5)], 3)


async def test_a_policy_is_the_same_behind_the_journal(calls: Calls, path: Path):
    policy = ScriptedPolicy(["first", "second"], context_tokens=50)
    prompt = Segment(author=Author.PROMPT, text="Reflect.")
    for journaled in (calls, None):
        journaled = journaled or again(path)
        with journaled.scope("a"):
            wrapped = JournaledPolicy(policy, journaled)
            written = await wrapped.write("s", [prompt], Sampling(), None, None)
        assert written.text == "first"
        assert (wrapped.name, wrapped.context_tokens, wrapped.retokenised) == (
            "scripted",
            50,
            False,
        )
        assert await wrapped.encode("ab") == (97, 98)


def test_what_is_wrapped_is_taken_for_the_kind_of_model_it_is(calls: Calls):
    model = Numbering()
    reader: LocalModel = JournaledReader(model, model, calls)
    chat: ChatModel = JournaledChat(model, calls)
    policy: Policy = JournaledPolicy(ScriptedPolicy([]), calls)
    assert isinstance(reader, LocalModel)
    assert not isinstance(chat, LocalModel) and not isinstance(policy, LocalModel)


async def test_a_call_is_found_where_its_server_moved_to_and_of_no_other_model(calls: Calls):
    model = Numbering()
    for name, made in (("qwen@one:1", 1), ("qwen@two:2", 1), ("llama@two:2", 2), ("qwen", 3)):
        model.name = name
        with calls.scope("group 1"):
            await JournaledChat(model, calls).chat(ASKED, Sampling())
        assert model.calls == made, name
