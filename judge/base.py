"""What all judges share: showing a trajectory, scores that need no judge, asking a model.

A trajectory is untrusted as a whole. Its stages are fenced and shortened to fit. A fence has a name
that its content cannot predict, chat markers are disarmed, and if a text must be shortened, tool
output is cut first.

Code finds the sentence nearest to a criterion for a judge: a hint where to look, not evidence.

A stage that the policy left out scores 0 and counts as missing. A stage that was cut off from
outside, has no criteria, or on which the judge failed is unscored, which is not 0. A judge of whole
answers reads the answer alone; the other stages then have no criteria and are left out of every
sum.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from rubricem.memory import text as texts
from rubricem.memory.errors import JudgeError, PolicyError
from rubricem.memory.language import language_with, sentences, words_in
from rubricem.memory.schema import (
    NO_CRITERIA,
    NO_USAGE,
    Author,
    Decoding,
    Judgement,
    Message,
    Segment,
    Stage,
    StageScore,
    Status,
    TokenReader,
    Trajectory,
    Usage,
)
from rubricem.memory.text import cut, fence

Done = TypeVar("Done")
CHARACTERS = 60_000
"""of runs or answers shown in one call to a model that tells no context, about 15,000 tokens"""
BYTES_A_TOKEN = 3
"""of UTF-8; most texts have more"""
SPARE_CONTEXT = 4
"""one part in so many of a context is left for the instructions and the reply"""
QUESTION_CHARACTERS = 20_000

LEAST_TOOL_CHARACTERS = 160
"""shown of each tool output, however little room there is"""


def sight_of(model: object, text: str = "") -> int:
    """Characters that the model can be shown in one call, of texts such as this one.

    They follow the context that it tells by `context_tokens`.
    """
    told: int | None = getattr(model, "context_tokens", None)
    if not told:
        return CHARACTERS
    whole = (told - told // SPARE_CONTEXT) * BYTES_A_TOKEN
    return whole * len(text) // max(len(text.encode(errors="replace")), 1) if text else whole


def stage_segments(trajectory: Trajectory, stage: Stage) -> list[Segment]:
    """The kept segments of a stage, in free decoding without the runner's notes."""
    forced = trajectory.decoding is Decoding.FORCED
    return [
        segment
        for segment in trajectory.segments
        if segment.kept
        and segment.stage is stage
        and (forced or segment.author is not Author.PROMPT)
    ]


def stage_text(trajectory: Trajectory, stage: Stage, tool_characters: int | None = None) -> str:
    """The text of a stage, with each tool output cut to `tool_characters`; None: uncut."""
    return "".join(
        cut(segment.text, tool_characters) if segment.author is Author.TOOL else segment.text
        for segment in stage_segments(trajectory, stage)
    ).strip()


def is_written(trajectory: Trajectory, stage: Stage) -> bool:
    """Whether the policy wrote anything in the stage."""
    return any(
        segment.author is Author.POLICY and segment.text.strip()
        for segment in stage_segments(trajectory, stage)
    )


def cut_off(trajectory: Trajectory, stage: Stage) -> str:
    """Why something other than the policy ended or prevented the stage; "" if nothing did.

    A failed run broke off in the last stage it wrote, unless its answer was complete. A forced
    answer without sources is not the policy's doing: the tool found nothing.
    """
    stages = list(Stage)
    cut = trajectory.cut_in
    if cut is not None and stages.index(stage) >= stages.index(cut):
        return f"the run was broken off: {trajectory.reason}"
    if trajectory.status is Status.FAILED:
        last = max((stages.index(s) for s in stages if is_written(trajectory, s)), default=0)
        complete = stage is Stage.ANSWER and "</answer>" in stage_text(trajectory, stage)
        if stages.index(stage) >= last and not complete:
            return f"the run broke off: {trajectory.reason}"
    forced = trajectory.decoding is Decoding.FORCED
    if forced and stage is Stage.ANSWER and not trajectory.sources:
        return f"there was nothing to answer from: {trajectory.reason}"
    return ""


def render_run(trajectory: Trajectory, characters: int) -> str:
    """All stages, each fenced under its name; at most `characters`, not counting the fences."""
    return fence({stage.value: text for stage, text in fit_stages(trajectory, Stage, characters)})


def render_stage(trajectory: Trajectory, stage: Stage, characters: int) -> str:
    """One stage in at most `characters`, without a fence."""
    return dict(fit_stages(trajectory, [stage], characters))[stage]


def fit_stages(
    trajectory: Trajectory, stages: Iterable[Stage], characters: int
) -> list[tuple[Stage, str]]:
    """The texts of the stages: tool outputs are cut first, to the room left; then everything."""
    chosen = list(stages)
    whole = [(stage, stage_text(trajectory, stage)) for stage in chosen]
    if sum(len(text) for _, text in whole) <= characters:
        return whole
    segments = [s for stage in chosen for s in stage_segments(trajectory, stage)]
    outputs = sum(s.author is Author.TOOL for s in segments)
    own = sum(len(s.text) for s in segments if s.author is not Author.TOOL)
    each = max((characters - own) // max(outputs, 1), LEAST_TOOL_CHARACTERS)
    texts = [(stage, stage_text(trajectory, stage, each)) for stage in chosen]
    scale = min(1.0, characters / max(sum(len(text) for _, text in texts), 1))
    return [(stage, cut(text, int(len(text) * scale))) for stage, text in texts]


TAG = re.compile(r"</?[a-z_]+(?:\s[^<>]*)?>")
SPAN_CHARACTERS = 300


def closest_span(criterion: str, text: str) -> str:
    """The sentence that shares most words with a criterion, the shorter of equals; "" if none.

    Words are split by the language of the criterion, or else of the text.
    """
    said = TAG.sub("\n\n", text)
    language = language_with(criterion, said)
    words, best, rank = words_in(criterion, language), "", (0, 0)
    for sentence in sentences(said.replace("\n", "\n\n")):
        shared = len(words & words_in(sentence, language))
        if shared and (shared, -len(sentence)) > rank:
            best, rank = sentence, (shared, -len(sentence))
    return best[:SPAN_CHARACTERS]


def unread(trajectory: Trajectory, stage: Stage) -> StageScore | None:
    """The score of a stage that needs no judge; None if it has to be judged.

    The stage is unscored if it was cut off, and 0 if the policy ended without it.
    """
    if reason := cut_off(trajectory, stage):
        return StageScore(stage=stage, unscored_reason=reason)
    if not is_written(trajectory, stage):
        said = "The policy ended without this stage."
        return StageScore(stage=stage, score=0.0, missing=True, justification=said)
    return None


def answer_text(trajectory: Trajectory) -> str:
    return stage_text(trajectory, Stage.ANSWER)


def no_score(reason: str) -> StageScore:
    return StageScore(stage=Stage.ANSWER, unscored_reason=reason)


def answer_judgement(
    trajectory: Trajectory,
    judge: str,
    answer: StageScore,
    version: str = "",
    usage: Usage = NO_USAGE,
) -> Judgement:
    """A judgement in which only the answer is scored."""
    others = (StageScore(stage=s, unscored_reason=NO_CRITERIA) for s in Stage)
    return Judgement(
        trajectory_id=trajectory.id,
        judge=judge,
        rubric_version=version,
        stages=tuple(answer if s.stage is Stage.ANSWER else s for s in others),
        usage=usage,
    )


def failed_score(fault: str, stage: Stage = Stage.ANSWER) -> StageScore:
    """The judge failed on the stage: it is unscored, with the fault."""
    return StageScore(stage=stage, failed=True, unscored_reason=f"the judge failed: {fault}")


def failure_notes(judgements: Iterable[Judgement]) -> list[str]:
    """A sentence for each trajectory on which the judge failed."""
    first = ((j.trajectory_id, next((s for s in j.stages if s.failed), None)) for j in judgements)
    return [f"{name}: {score.unscored_reason}" for name, score in first if score]


async def outcome(work: Awaitable[Done]) -> Done | JudgeError | PolicyError:
    """The result of asking a model, or the error that it raised."""
    try:
        return await work
    except (JudgeError, PolicyError) as error:
        return error


prompt = partial(texts.prompt, "judge")
"""the text of the prompt with this name in `judge/prompts`"""


def instruct(name: str, *asked: str) -> list[Message]:
    """The prompt of that name, then the parts of what is asked; empty ones are left out."""
    return [Message("system", prompt(name)), Message("user", "\n\n".join(filter(None, asked)))]


async def fit_messages(
    reader: TokenReader,
    messages_of: Callable[[int], Sequence[Message]],
    spare: int,
    what: str = "the question alone fills",
) -> tuple[int, tuple[int, ...]]:
    """The most characters for which the messages leave `spare` tokens, and the messages' ids.

    `messages_of` makes messages with so many characters of what may be cut. Raises JudgeError,
    beginning with `what`, if what may not be cut does not fit.
    """
    most = reader.context_tokens - spare
    return await texts.fit(
        lambda characters: reader.render(messages_of(characters)),
        most,
        most * 4,
        JudgeError(
            f"{what} the judge's context", "Raise context_tokens, or judge with a server's model."
        ),
    )
