"""The judge on the embedded model: scores read from probabilities, not from what it writes.

A small model's letters are worth little, but the probability it gives to "Yes" ranks answers
(0.5B: 8 to 9 of 10 hand-made pairs in order). The question and the trajectory are one prefix
that stays in the model's cache; each criterion is then one short read after it, together with the
sentence of the stage that shares most words with it. The points are twice the probability of
"Yes", or on request the expected value over the tokens 0, 1 and 2, which put 9 of the pairs in
order with the 1.5B where Yes put 9 to 10. The model gives no reasons: the justification is that
sentence, labelled as code's.
"""

import asyncio
from collections.abc import Sequence

from judge.prompting import prompt
from judge.scoring import Scored, Standard
from judge.spans import cites_of, closest_span
from judge.transcripts import shown, stage_text
from memory.errors import JudgeError
from memory.interfaces import ChoiceReader, Message
from memory.schema import NO_USAGE, Criterion, Stage, Trajectory, Usage, Verdict
from memory.text import cut, fenced, without_markers

OPTIONS = ("Yes", "yes", "No", "no")
POINTS = ("0", "1", "2")
ITEM_TOKENS = 400
"""left free for the longest criterion and the answer"""
STATEMENT_CHARACTERS = 600
CHARACTERS_PER_TOKEN = 4
SHRINK = 0.85
TASKS = {
    Stage.PLAN: "understanding the question and laying out the work",
    Stage.RESEARCH: "searching well and adapting to what was found",
    Stage.REVIEW: "checking honestly what the evidence holds",
    Stage.ANSWER: "answering the question",
}


class ChoiceScorer:
    """A `Scorer` over a `ChoiceReader`. `at_once`: trajectories that keep a cache of their own.

    `graded` asks for points instead of Yes or No, and takes their expected value.
    """

    def __init__(self, reader: ChoiceReader, at_once: int = 1, *, graded: bool = False) -> None:
        self._reader = reader
        self._graded = graded
        # Items of two trajectories in turns would have each prefix read again for every item.
        self._places = asyncio.Semaphore(at_once)

    @property
    def name(self) -> str:
        return self._reader.name

    async def score(self, trajectory: Trajectory, standard: Standard) -> Scored:
        async with self._places:
            before = await fitted(self._reader, trajectory)
            usage, verdicts = NO_USAGE, {}
            for stage, criteria in standard.items():
                read = [await self._verdict(before, trajectory, stage, c) for c in criteria]
                usage = sum((used for _, used in read), usage)
                verdicts[stage] = tuple(verdict for verdict, _ in read)
        return Scored(verdicts, usage)

    async def _verdict(
        self, before: str, trajectory: Trajectory, stage: Stage, criterion: Criterion
    ) -> tuple[Verdict, Usage]:
        statement = cut(criterion.description or criterion.title, STATEMENT_CHARACTERS)
        span = closest_span(statement, stage_text(trajectory, stage))
        seen = _seen(trajectory, stage, span)
        text = f"{before}\n\n{asked(stage, statement, seen, graded=self._graded)}"
        prompt_name = "choice_points" if self._graded else "choice"
        prefix = await self._reader.render(_messages(text, prompt_name))
        points = await self._points(prefix)
        verdict = Verdict(
            criterion=criterion, points=points, justification=span, justified_by="code"
        )
        return verdict, Usage(prompt_tokens=len(prefix), cost=0.0, calls=1)

    async def _points(self, prefix: Sequence[int]) -> float:
        """Twice the chance of a Yes, or the expected points."""
        if self._graded:
            return min(expected(await self._reader.weigh(prefix, POINTS)), 2.0)
        upper, lower, *_ = await self._reader.weigh(prefix, OPTIONS)
        return min(2 * (upper + lower), 2.0)


async def fitted(reader: ChoiceReader, trajectory: Trajectory) -> str:
    """Question and trajectory as one text that leaves `ITEM_TOKENS` of the context free.

    Raises JudgeError where not even the question fits.
    """
    most = reader.context_tokens - ITEM_TOKENS
    characters = most * CHARACTERS_PER_TOKEN
    while characters > 200:
        text = f"{fenced({'question': trajectory.question})}\n{shown(trajectory, characters)}"
        tokens = len(await reader.render(_messages(text)))
        if tokens <= most:
            return text
        characters = int(characters * min(SHRINK, most / tokens))
    raise JudgeError(
        "the question alone fills the judge's context",
        "Raise context_tokens, or judge with a server's model.",
    )


def expected(chances: Sequence[float]) -> float:
    """The mean of 0, 1, 2, ... under the given probabilities."""
    return sum(value * chance for value, chance in enumerate(chances))


def asked(stage: Stage, statement: str, seen: str, *, graded: bool = False) -> str:
    """The short question that follows the trajectory; `seen`: what code found in the stage."""
    form = (
        "How far does the statement hold of what the agent wrote in the "
        f"{stage} stage? 0 for not, 1 for partly, 2 for fully."
        if graded
        else f"Does the statement hold of what the agent wrote in the {stage} stage? Yes or No?"
    )
    return without_markers(
        f"Look at the {stage} stage ({TASKS[stage]}).\nStatement: {statement}\n{seen}\n{form}"
    )


def _seen(trajectory: Trajectory, stage: Stage, span: str) -> str:
    """The sentence that comes closest, and what an answer cites.

    With the sentence the 0.5B put all of ten hand-made pairs in order, by 0.10 of probability on
    average; without it nine, by 0.03. Whether an answer cites anything the 1.5B did not see by
    itself. Told, it gave criteria that ask for citations 0.4 to 0.8 points less where the citations
    had been taken out, in six of six hand-written runs; other criteria moved by 0.01 to 0.08.
    """
    closest = f'"{span}"' if span else "(no sentence speaks of it)"
    said = f"The closest sentence there: {closest}"
    if stage is not Stage.ANSWER:
        return said
    known = {source.id for source in trajectory.sources}
    return f"{said}\nSources it cites: {cites_of(stage_text(trajectory, stage), known)}."


def _messages(text: str, name: str = "choice") -> Sequence[Message]:
    return [Message("system", prompt(name)), Message("user", text)]
