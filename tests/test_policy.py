"""The policy seam: one transcript, as token ids for one kind of model, messages for the other."""

from collections.abc import Sequence

from agent.policy import ChatWriter, TokenWriter, as_messages
from memory.interfaces import Completion, Message, OnText, Sampling, StopPredicate
from memory.schema import Author, Segment, Stage

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
