"""Accepted trajectories as conversations, for imitation by any trainer that reads chats.

As it is trained in RubricEM (arXiv:2605.10899, appendix B.2): the system prompt, the question,
and one long turn of the assistant, of which the spans that it did not write itself (tool output,
notes of the runner) are to be left out of the loss. Trainers that take no spans read the same
as token rows with a mask. Forced traces are re-cast as free mode writes them.
"""

from collections.abc import Collection, Iterable, Iterator

from agent.free import system_prompt, user_message
from agent.rejection import Rule
from memory.schema import Author, Decoding, Trajectory, Value
from memory.versions import Versioned
from training.recasting import Turn, free_turns, unaccepted, unfit
from training.rejecting import breaking
from training.sequences import without_scaffold

Span = tuple[int, int]
"""(start, end) in characters, the end excluded"""


class ChatMessage(Value):
    role: str
    content: str


class Written(Value):
    """An assistant's turn, and which characters of it are not its own."""

    message: ChatMessage
    untrained: tuple[Span, ...]


class Conversation(Versioned):
    """One accepted trajectory."""

    id: str
    trajectory: str
    messages: tuple[ChatMessage, ...]
    """system, user, assistant"""
    untrained: tuple[Span, ...]
    """of the assistant's message: no loss stands on them"""
    decoding: Decoding
    policy: str
    policy_version: str


def conversation(
    trajectory: Trajectory, rules: Collection[Rule] = (), *, tool_calls: int = 10
) -> Conversation | str:
    """The conversation of a trajectory, or why it is not to be imitated.

    `rules` switches on those beyond the first four: `citation`, `support`. `tool_calls` is the
    limit that the system prompt of a re-cast trace names.
    """
    broken = breaking(rules)
    forced = trajectory.decoding is Decoding.FORCED
    turns = free_turns(trajectory) if forced else []
    if reason := unfit(trajectory, turns, broken) if forced else unaccepted(trajectory, broken):
        return reason
    written = _recast(turns) if forced else written_by(trajectory)
    opening = _recast_opening(trajectory, tool_calls) if forced else opening_of(trajectory)
    return Conversation(
        id=f"{trajectory.id}:conversation",
        trajectory=trajectory.id,
        messages=(*opening, written.message),
        untrained=written.untrained,
        decoding=trajectory.decoding,
        policy=trajectory.policy,
        policy_version=trajectory.policy_version,
    )


def opening_of(trajectory: Trajectory) -> tuple[ChatMessage, ...]:
    """What stands before the assistant's turn, without a scaffold."""
    bare = without_scaffold(trajectory)
    user = "".join(s.text for s in bare.segments if s.kept and s.stage is None)
    return ChatMessage(role="system", content=bare.system), ChatMessage(role="user", content=user)


def written_by(trajectory: Trajectory) -> Written:
    """The transcript as the assistant's turn."""
    kept = (s for s in trajectory.segments if s.kept and s.stage is not None)
    return _joined((segment.text, segment.author is Author.POLICY) for segment in kept)


def _joined(pieces: Iterable[tuple[str, bool]]) -> Written:
    """Pieces of text, each with whether the policy wrote it; neighbouring spans become one."""
    text, spans = "", list[Span]()
    for piece, own in pieces:
        start, text = len(text), text + piece
        if own or not piece:
            continue
        if spans and spans[-1][1] == start:
            start = spans.pop()[0]
        spans.append((start, len(text)))
    return Written(message=ChatMessage(role="assistant", content=text), untrained=tuple(spans))


def _recast(turns: Iterable[Turn]) -> Written:
    return _joined(_pieces(turns))


def _pieces(turns: Iterable[Turn]) -> Iterator[tuple[str, bool]]:
    for turn in turns:
        yield turn.text, True
        yield turn.tool_output, False


def _recast_opening(trajectory: Trajectory, tool_calls: int) -> tuple[ChatMessage, ...]:
    question = user_message(trajectory.question, trajectory.answer_format)
    return (
        ChatMessage(role="system", content=system_prompt(tool_calls)),
        ChatMessage(role="user", content=question),
    )
