"""Accepted trajectories as rows to imitate: forced traces re-cast, free ones as they were written.

A small model hardly keeps to the scaffold by itself, so it is first shown its own forced traces
in the form of free mode: the free system prompt, the tags as its own words, each turn as one
piece. What differs is adapted here: the question that the runner repeats after a tool output is
left out, each later turn begins with a thought (which sources are new), and the mark before an
exact answer goes. A trace whose turns free mode would still refuse is dropped with the reason.

A teacher is any model that answers better than the one to be trained: its free rollouts are
collected like others, marked as its own, and good for imitation alone.

Loss stands on everything the free policy has to write, tags included, and on no tool output.
The ids are a tokeniser's own, so no policy-gradient ratio is ever formed of these rows. Rejection
rules are the same for every form of imitation: the first four always, the others where named.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import groupby

from rubricem.agent.research.free import system_prompt, user_message
from rubricem.agent.research.scaffold import (
    EXACT_LINE,
    Cite,
    Rejection,
    Rule,
    rejected,
    stage_spans,
    tool_error,
    turn_faults,
)
from rubricem.agent.verify.rules import Pair, lexical_finding
from rubricem.memory.errors import SettingsError
from rubricem.memory.interfaces import Message
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Decoding,
    Stage,
    Status,
    Trajectory,
)
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import Tokeniser, retokenised, stage_number, token_sequence

Broken = Callable[[Trajectory], Rejection | None]
"""the rejection rule that a trajectory breaks, if any"""
SWITCHED = (Rule.CITATION, Rule.SUPPORT)
"""the rules that are off until they are named"""


def breaking(rules: Collection[Rule]) -> Broken:
    """The first four rules, and those named of `SWITCHED`."""

    def first(trajectory: Trajectory) -> Rejection | None:
        return rejected(
            trajectory,
            citations=Rule.CITATION in rules,
            supported=_supported(trajectory) if Rule.SUPPORT in rules else None,
        )

    return first


def rules_named(names: object) -> frozenset[Rule]:
    """The rules of a configuration's list. Raises SettingsError for any other name."""
    if not isinstance(names, list) or not set(map(str, names)) <= set(SWITCHED):
        raise SettingsError(
            f"There are no rejection rules {names!r} to switch on.",
            f"Give a list of {', '.join(SWITCHED)}; the first four always hold.",
        )
    return frozenset(map(Rule, names))


def _supported(trajectory: Trajectory) -> Callable[[Cite], bool]:
    """Whether a passage that a cite names holds its claim, by the lexical rules."""
    known = {source.id: source for source in trajectory.sources}

    def held(cite: Cite) -> bool:
        named = [known[name] for name in cite.ids if name in known]
        pairs = (Pair(cite.claim, s, tuple(o for o in named if o is not s)) for s in named)
        return any(lexical_finding(pair).verdict == "supported" for pair in pairs)

    return held


_EVALUATION = "<state_evaluation>"
_NEW_SOURCE = re.compile(r"^(S\d+ \([^\n]*\)) says", re.M)


@dataclass(frozen=True, slots=True)
class RecastTurn:
    """What the policy writes in one turn, and the tool output that answers it ("": none)."""

    text: str
    tool_output: str = ""


def free_turns(trajectory: Trajectory) -> list[RecastTurn]:
    """The turns of a forced trace as free mode writes them."""
    exact = trajectory.answer_format is AnswerFormat.EXACT
    turns: list[RecastTurn] = []
    body = (s for s in trajectory.segments if s.kept and s.stage is not None)
    for _, group in groupby(body, key=lambda segment: segment.turn):
        segments = list(group)
        written = "".join(s.text for s in segments if s.author is not Author.TOOL).strip()
        before = turns[-1].tool_output if turns else ""
        text = _with_thought(written, before) if turns else written
        if exact:
            text = text.replace(f"\n{EXACT_LINE}", "\n")
        output = "".join(s.text for s in segments if s.author is Author.TOOL)
        turns.append(RecastTurn(text, f"\n{output}" if output else ""))
    return turns


def faults(turns: Iterable[RecastTurn]) -> list[str]:
    """What free mode would say of these turns; [] if it takes them all."""
    return [
        f"turn {number}: {fault}"
        for number, turn in enumerate(turns, start=1)
        for fault in turn_faults(turn.text, number)
    ]


def _with_thought(written: str, tool_output: str) -> str:
    """A later turn without the repeated question, begun by what the tool output changes."""
    _, tag, rest = written.partition(_EVALUATION)
    new = _NEW_SOURCE.findall(rest.partition("</state_evaluation>")[0])
    if new:
        thought = f"New evidence: {', '.join(new)}."
    elif tool_error(tool_output) is not None:
        thought = "The search failed."
    else:
        thought = "The search brought nothing new."
    return f"<think>{thought}</think>\n{tag}{rest}"


async def sft_row(
    trajectory: Trajectory,
    tokeniser: Tokeniser,
    tool_calls: int = 10,
    broken: Broken = rejected,
) -> TrainRow | str:
    """The row of a finished forced trace that breaks no rejection rule and can be re-cast, or why
    there is none. `tool_calls` is the limit that the free system prompt names.
    """
    turns = free_turns(trajectory)
    if reason := unfit(trajectory, turns, broken):
        return reason
    message = user_message(trajectory.question, trajectory.answer_format)
    opening = [Message("system", system_prompt(tool_calls)), Message("user", message)]
    ids = list(await tokeniser.render(opening))
    prompt = len(ids)
    mask, stages = [0] * len(ids), [stage_number(None)] * len(ids)
    spans = stage_spans("".join(turn.text + turn.tool_output for turn in turns))
    at = 0
    for turn in turns:
        written = await tokeniser.encode(turn.text)
        read = await tokeniser.encode(turn.tool_output) if turn.tool_output else ()
        ids += [*written, *read]
        mask += [1] * len(written) + [0] * len(read)
        stages += await _stages(turn.text, written, at, spans, tokeniser)
        stages += [stage_number(Stage.RESEARCH)] * len(read)
        at += len(turn.text) + len(turn.tool_output)
    return TrainRow.imitation(trajectory.id, trajectory.policy_version, ids, prompt, mask, stages)


def unfit(
    trajectory: Trajectory,
    turns: list[RecastTurn],
    broken: Broken = rejected,
) -> str:
    """Why a trace is not to be imitated; "" if it is."""
    if trajectory.decoding is not Decoding.FORCED:
        return "it is not a forced trace"
    if reason := unaccepted(trajectory, broken):
        return reason
    if found := faults(turns):
        return f"free mode refuses it: {found[0]}"
    return ""


def unaccepted(trajectory: Trajectory, broken: Broken = rejected) -> str:
    """Why a trajectory, forced or free, is not accepted; "" if it is."""
    if trajectory.status is not Status.FINISHED:
        return f"it is {trajectory.status}, not finished"
    rejection = broken(trajectory)
    return f"rejected by the rule {rejection.rule}" if rejection else ""


async def _stages(
    text: str,
    ids: tuple[int, ...],
    at: int,
    spans: dict[Stage, tuple[int, int]],
    tokeniser: Tokeniser,
) -> list[int]:
    """The stage of each token of a turn that begins at the offset `at` of the transcript.

    A boundary between stages is counted in tokens of the text before it; a token that a tag
    shares with its neighbour may fall on either side, which labels a metric and trains nothing.
    """
    found: list[int] = []
    for stage, (_, end) in spans.items():
        if end <= at or len(found) >= len(ids):
            continue
        inside = min(end - at, len(text))
        before = len(ids) if inside == len(text) else len(await tokeniser.encode(text[:inside]))
        found += [stage_number(stage)] * (min(before, len(ids)) - len(found))
    return found + [found[-1] if found else stage_number(None)] * (len(ids) - len(found))


NOTHING_WRITTEN = "nothing of it has ids"


async def imitation_row(
    trace: Trajectory, tokeniser: Tokeniser, broken: Broken = rejected
) -> TrainRow | str:
    """The row of a finished free trace that breaks no rejection rule, or why there is none.

    Loss stands on what the teacher wrote, on no tool output and no attempt that was refused.
    """
    if reason := unaccepted(trace, broken):
        return reason
    tokens = token_sequence((await retokenised(trace, tokeniser)).segments)
    if tokens is None or not any(tokens.written):
        return NOTHING_WRITTEN
    mask = tuple(map(int, tokens.written))
    return TrainRow.imitation(
        trace.id, trace.policy_version, tokens.ids, tokens.prompt, mask, tokens.stages
    )
