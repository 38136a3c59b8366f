"""The ways to answer a question that an evaluation compares: its arms.

- stages: the product's own run;
- plain: the same model in a plain search loop, with the same source, limits and journal: it is
  shown passages for the question, then writes another query or its answer, as often as allowed;
- memory: the product's own run, given what earlier runs taught;
- closed: the same model without any search.

For an exact answer the runner begins the last line in every arm, and a model that weighs choices
points to a span of what it wrote, as a staged run does, so that the same is compared.
"""

import asyncio
import re
import uuid
from dataclasses import dataclass, replace

from rubricem.agent.research.reading import conclude
from rubricem.agent.research.recall import GivenRecall, Recaller
from rubricem.agent.research.researcher import Researcher, request_of
from rubricem.agent.research.run import Run
from rubricem.agent.transcript.question import Ask, Found, RunCut, reason_of, tool_output
from rubricem.agent.transcript.scaffold import EXACT_LINE, neutralise, template
from rubricem.memory.errors import RubricemError, SettingsError
from rubricem.memory.schema import AnswerFormat, Author, Sampling, Stage, Status, Trajectory

SEARCHES, PASSAGES = 3, 5
"""of the plain loop, and what each shows at least"""
TURN = Sampling(max_tokens=220, temperature=0.0)
BARE_ASKED = "The answer alone, in one to five words, without ids:"
BARE = Sampling(max_tokens=24, temperature=0.0)
_SEARCH = re.compile(r"\s*search:[ \t]*([^\n]*)", re.I)
_ANSWER = re.compile(r"\s*answer:\s*", re.I)
_NEXT = re.compile(r"\n[^\S\n]*(?:search:|question:|<tool_output)", re.I)
WAYS = ("stages", "plain", "closed")
MEMORY = "memory"
"""the name of the staged arm that is given what earlier runs taught"""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to answer, with or without what earlier runs taught."""

    way: str
    memory: bool = False

    @property
    def name(self) -> str:
        return f"{self.way}+memory" if self.memory else self.way

    @property
    def searches(self) -> bool:
        return self.way != "closed"

    async def ask(
        self, researcher: Researcher, recaller: Recaller | None, ask: Ask, thread: str
    ) -> Trajectory:
        """The run that answers in this arm; a failure is a FAILED trajectory."""
        if self.way == "closed":
            return await ask_closed(researcher, ask, thread)
        decoder = researcher.decoder
        if self.way == "plain":
            decoder, ask = PlainDecoder(), replace(ask, passages=max(PASSAGES, ask.passages))
        given = None
        if self.memory and recaller:  # an evaluation leaves the bank as it was
            given = GivenRecall(await recaller.recall(ask.question))
        return await replace(researcher, decoder=decoder, recaller=given).ask(ask, thread)

    @classmethod
    def parse(cls, named: str) -> tuple["Arm", ...]:
        """The arms of a list such as `stages,memory,plain`, each once.

        Raises SettingsError for an arm that there is not, and where none is named.
        """
        names = list(dict.fromkeys(filter(None, (name.strip() for name in named.split(",")))))
        for name in names or [""]:
            if name not in (*WAYS, MEMORY):
                raise SettingsError(
                    f"There is no arm {name!r}.", f"Arms are {', '.join((*WAYS, MEMORY))}."
                )
        return tuple(cls("stages", True) if name == MEMORY else cls(name) for name in names)


class PlainDecoder:
    """A `Decoder` without stages: search, read, search again or answer."""

    def system(self, run: Run) -> str:
        return template("plain")

    def message(self, run: Run) -> str:
        return f"Question: {neutralise(run.ask.question)}"

    async def plan(self, run: Run) -> str:
        await run.prompt(Stage.RESEARCH, f"Search: {neutralise(run.ask.question)}\n")
        return run.ask.question

    async def search(self, run: Run, query: str) -> Found:
        return await run.search(query)

    async def observe(self, run: Run, found: Found) -> None:
        await run.prompt(Stage.RESEARCH, tool_output(found, run.ask.passage_words), Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """One turn: another query, or the answer, which is then put into the answer's tags."""
        last = run.turn > min(SEARCHES, run.ask.tool_calls)
        if last:
            await run.prompt(Stage.RESEARCH, "Answer:")
        written = await run.write(Stage.RESEARCH, TURN, turn_end)
        query = None if last else query_of(written.text)
        if query is not None:
            await run.keep_edited(Stage.RESEARCH, f"Search: {neutralise(query)}\n", told=True)
            return query
        await keep_answer(run, written.text)
        return None

    async def review(self, run: Run) -> None:
        """The plain loop has no such stage."""

    async def answer(self, run: Run) -> None:
        """The last turn of the loop was the answer."""

    async def keep_cut(self, run: Run, cut: RunCut) -> None:
        """Nothing: an unfinished turn is no answer."""


def query_of(text: str) -> str | None:
    """The query in a turn; None if it answers."""
    asked = _SEARCH.match(text)
    query = asked[1].strip() if asked else ""
    return query or None


def turn_end(text: str) -> int | None:
    """A query ends with its line, an answer where the model would begin another turn."""
    if asked := _SEARCH.match(text):
        return asked.end() if text[asked.end() :].startswith("\n") else None
    following = _NEXT.search(text)
    return following.start() if following else None


async def keep_answer(run: Run, written: str) -> None:
    """Put the text into the answer's tags; an exact answer ends with the bare answer alone."""
    await run.prompt(Stage.ANSWER, "\n<answer>")
    answer = neutralise(_ANSWER.sub("", written, count=1).strip())
    if answer:
        await run.keep_edited(Stage.ANSWER, answer, told=True)
    if run.ask.answer_format is AnswerFormat.EXACT:
        if run.policy.reader is None:
            await _write_bare(run)
        elif pointed := await conclude(run, answer):
            await run.prompt(Stage.ANSWER, f"\n{EXACT_LINE.strip()} ")
            await run.keep_edited(Stage.ANSWER, pointed.text.strip())
    await run.prompt(Stage.ANSWER, "</answer>\n")


async def _write_bare(run: Run) -> None:
    """The bare answer of a model on a server, which can only be asked for it."""
    await run.prompt(Stage.ANSWER, f"\n{BARE_ASKED}\n{EXACT_LINE.strip()}")
    bare = (await run.write(Stage.ANSWER, BARE, bare_end)).text.strip()
    line = neutralise(_ANSWER.sub("", bare, count=1).partition("\n")[0].strip())
    if line:
        await run.keep_edited(Stage.ANSWER, line, told=True)


def bare_end(text: str) -> int | None:
    """The end of the first non-empty line, or where a tag begins."""
    lead = len(text) - len(text.lstrip())
    found = [at for at in (text.find("\n", lead), text.find("<", lead)) if at >= 0]
    return min(found, default=None)


async def ask_closed(researcher: Researcher, ask: Ask, thread: str) -> Trajectory:
    """The answer from the model's own knowledge, in a run journaled and stored like others."""
    request = request_of(ask, researcher.choices)
    await asyncio.to_thread(researcher.store.create, thread, request)
    journal = await asyncio.to_thread(researcher.store.journal, thread)
    policy, tool = researcher.policy, researcher.search_tool
    run = Run(ask, thread, researcher.decoding, policy, tool, journal)
    try:
        await run.open(template("closed"), f"Question: {neutralise(ask.question)}")
        run.turn = 1
        written = await run.write(Stage.ANSWER, TURN, turn_end)
        await keep_answer(run, written.text)
    except RunCut as cut:
        run.end_early(reason_of(cut.by, ask.budgets), by=cut.by)
    except RubricemError as error:
        run.end_early(error.told(), Status.FAILED, by="failure")
    finally:
        journal.close()
    return await researcher.keep(run.trajectory(uuid.uuid4().hex))
