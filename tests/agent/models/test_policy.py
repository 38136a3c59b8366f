"""The policy seam: one transcript, as token ids for one kind of model, messages for the other."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rubricem.agent.models.policy import (
    ChatWriter,
    JournaledCalls,
    JournaledChat,
    JournaledPolicy,
    JournaledReader,
    Policy,
    TokenWriter,
    as_messages,
)
from rubricem.judge.build import LocalModel
from rubricem.memory.interfaces import (
    ChatModel,
    Completion,
    Message,
    OnText,
    Sampling,
    StopPredicate,
)
from rubricem.memory.journal import Journal
from rubricem.memory.schema import Author, Segment, Stage
from tests.support.policies import ScriptedPolicy

TRANSCRIPT = [
    Segment(author=Author.PROMPT, text="Question", token_ids=(1, 2)),
    Segment(author=Author.PROMPT, stage=Stage.PLAN, text=" note", token_ids=(3,)),
    Segment(author=Author.POLICY, stage=Stage.PLAN, text="plan ", token_ids=(4, 5)),
    Segment(author=Author.POLICY, stage=Stage.RESEARCH, text="call", token_ids=(6,)),
    Segment(author=Author.TOOL, stage=Stage.RESEARCH, text="output", token_ids=(7, 8)),
]
SAMPLING = Sampling(max_tokens=5)


class Recording:
    """A model behind either seam that remembers what it was given."""

    name = "recording"
    version = "7"
    context_tokens = 99

    def __init__(self) -> None:
        self.given: list[object] = []

    async def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        self.given.append(list(messages))
        return (1, 2)

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    async def complete(
        self,
        prefix: Sequence[int],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.given.append(tuple(prefix))
        return Completion("text", "eos", (9,), (-0.1,), (4,))

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.given.append(list(messages))
        return Completion("text", "eos", (9,), (-0.1,), (4,), reasoning="hm")


def test_neighbours_of_one_side_are_one_message():
    assert as_messages(TRANSCRIPT) == [
        Message("user", "Question note"),
        Message("assistant", "plan call"),
        Message("user", "output"),
    ]


async def test_a_token_model_continues_the_ids_of_all_segments():
    model = Recording()
    writer = TokenWriter(model)
    written = await writer.write("system", TRANSCRIPT, SAMPLING, None, None)
    assert model.given == [(1, 2, 3, 4, 5, 6, 7, 8)]
    assert written.token_ids == (9,)
    assert (writer.name, writer.version, writer.context_tokens) == ("recording", "7", 99)
    assert not writer.retokenised


async def test_a_token_model_renders_the_system_prompt_and_the_question():
    model = Recording()
    assert await TokenWriter(model).open("system", "question") == (1, 2)
    assert model.given == [[Message("system", "system"), Message("user", "question")]]
    assert await TokenWriter(model).encode("ab") == (97, 98)


async def test_ids_of_a_chat_server_are_dropped_since_its_prefix_is_its_own():
    model = Recording()
    writer = ChatWriter(model)
    written = await writer.write("system", TRANSCRIPT, SAMPLING, None, None)
    assert model.given == [[Message("system", "system"), *as_messages(TRANSCRIPT)]]
    assert (written.token_ids, written.logprobs, written.token_ends) == (None, None, None)
    assert (written.text, written.reasoning) == ("text", "hm")
    assert writer.retokenised and writer.context_tokens is None
    assert await writer.open("system", "question") is None
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
    with calls.scope("group 1"):
        first = await JournaledChat(model, calls).chat(ASKED, Sampling())
    later = again(path)
    with later.scope("group 1"):
        second = await JournaledChat(model, later).chat(ASKED, Sampling())
    assert (first, model.calls) == (second, 1)
    assert first == Completion(text="reply 1", stop_reason="eos", logprobs=(-0.5,))


async def test_the_same_call_asked_twice_is_two_calls_in_their_order(
    calls: JournaledCalls, path: Path
):
    model = Numbering()
    for journaled in (calls, again(path)):
        with journaled.scope("group 1"):
            chat = JournaledChat(model, journaled)
            texts = [(await chat.chat(ASKED, Sampling())).text for _ in range(2)]
        assert texts[0] != texts[1]
    assert model.calls == 4, "the second process began before the first had asked"


async def test_scopes_and_arguments_are_told_apart(calls: JournaledCalls):
    model = Numbering()
    chat = JournaledChat(model, calls)
    for scope in ("group 1", "group 2"):
        with calls.scope(scope):
            await chat.chat(ASKED, Sampling())
            await chat.chat(ASKED, Sampling(seed=1))
    assert model.calls == 4


async def test_probabilities_come_back_as_they_were(calls: JournaledCalls, path: Path):
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


async def test_a_policy_is_the_same_behind_the_journal(calls: JournaledCalls, path: Path):
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


def test_what_is_wrapped_is_taken_for_the_kind_of_model_it_is(calls: JournaledCalls):
    model = Numbering()
    reader: LocalModel = JournaledReader(model, model, calls)
    chat: ChatModel = JournaledChat(model, calls)
    policy: Policy = JournaledPolicy(ScriptedPolicy([]), calls)
    assert isinstance(reader, LocalModel)
    assert not isinstance(chat, LocalModel) and not isinstance(policy, LocalModel)


async def test_a_call_is_found_where_its_server_moved_to_and_of_no_other_model(
    calls: JournaledCalls,
):
    model = Numbering()
    for name, made in (("qwen@one:1", 1), ("qwen@two:2", 1), ("llama@two:2", 2), ("qwen", 3)):
        model.name = name
        with calls.scope("group 1"):
            await JournaledChat(model, calls).chat(ASKED, Sampling())
        assert model.calls == made, name
