"""Forced decoding: the runner writes every tag, and a small model fills what is between them.

The transcript is valid by construction. Tags, queries and quotes are PROMPT text; what the model
wrote is POLICY text: the plan, in the transcript and by a grammar, and what it was asked beside the
transcript, where it is shown nothing but what that takes (`reading`). Rows of such runs can be used
for SFT, never for a policy-gradient ratio.

The question itself is searched first, before the plan, and what that finds is read for each of its
parts (`lookups`). A part that nothing answers is searched once more, with the model's own words
beside. An exact answer is read for the whole question from whatever its parts find, until it is
certain. The answer names what is not found, and marks what is not certain.

MCP tools are not called: a small model calls them when it should not, or calls whatever it is
offered. Free decoding calls them.
"""

from collections.abc import Sequence
from dataclasses import replace

from rubricem.agent.research.lookups import END, Finding, parts_grammar, read_parts
from rubricem.agent.research.reading import PassageReader, language_note
from rubricem.agent.research.run import Run
from rubricem.agent.research.tuned import TUNED
from rubricem.agent.transcript.events import SourceProgress
from rubricem.agent.transcript.question import Found, RunCut, tool_output
from rubricem.agent.transcript.scaffold import EXACT_LINE, neutralise, parse, template
from rubricem.agent.transcript.words import overlap
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import (
    AnswerFormat,
    Author,
    Embedder,
    Ending,
    Sampling,
    Source,
    Stage,
    Status,
)

PLAN = Sampling(temperature=0.0, max_tokens=220, grammar=parts_grammar(TUNED.parts))
QUESTION_SHARE = 1 / 12
"""of the context that a question may fill, since it is repeated; at three characters a token"""
NOT_FOUND = "not found"


class ForcedDecoder:
    """Leads an embedded model through the four stages."""

    def __init__(self, embedder: Embedder | None = None) -> None:
        """With an embedder the sentences that are quoted are those nearest in meaning."""
        self._reader = PassageReader(embedder)

    def system(self, run: Run) -> str:
        return template("forced")

    def message(self, run: Run) -> str:
        question = _one_line(run.ask.question)
        context = run.policy.context_tokens
        if context is not None and len(question) / 3 > context * QUESTION_SHARE:
            raise SettingsError(
                f"The question has {len(question):,} characters, too many for a context of "
                f"{context:,} tokens.",
                "Shorten it, put its material into a folder named by --source, or raise "
                "context_tokens.",
            )
        return f"Question: {question}{language_note(question)}"

    async def plan(self, run: Run) -> str:
        """Search the question, so that its passages are shown at once; then write the plan.

        The query returned is the question, whose passages are read first.
        """
        if run.equipped and run.equipped.offers:
            run.listener(SourceProgress("the embedded model calls no tools of MCP servers"))
        question = _one_line(run.alone)
        await self.search(run, question)
        await run.prompt(Stage.PLAN, "<think>\n1.")
        written = await run.write(Stage.PLAN, PLAN, live=False, slot="think")
        drafted = neutralise(written.text.rstrip().removesuffix(END).rstrip())
        await run.keep_edited(Stage.PLAN, drafted)
        parts = read_parts(f"1.{drafted}", question)
        parts = parts if len(parts) > 1 else (question,)
        items = "".join(f"\n- Answers: {neutralise(part)}" for part in parts)
        steps = "".join(f"\n{n}. {neutralise(part)}" for n, part in enumerate(parts, start=1))
        told = f"\n<deep_analysis>Look-ups: {len(parts)}.</deep_analysis>"
        told += f"\n<rubric>{items}\n</rubric>\n<research_plan>{steps}\n</research_plan>"
        text = f"\n</think>\n<structured_plan>{told}\n</structured_plan>\n"
        await run.prompt(Stage.PLAN, text)
        self._follow(run)
        await run.prompt(Stage.RESEARCH, f'<call_tool name="search">{question}</call_tool>\n')
        return question

    def _follow(self, run: Run) -> None:
        """Take up the plan as it stands in the transcript last: a person may have changed it."""
        question = _one_line(run.alone)
        parts = read_parts(parse(run.text).last("research_plan"), question)
        if parts != run.lookups.parts:
            run.lookups.begin(question, parts)

    def _part(self, run: Run, number: int) -> str:
        """What is asked for a part, with all that the person asked, which may name its subject."""
        part = run.lookups.parts[number - 1]
        if len(run.lookups.parts) == 1:
            return part
        return f"{run.lookups.question} Answer only this part: {part}"

    async def search(self, run: Run, query: str) -> Found:
        """Passages that were read for another part may answer this one, too."""
        at = run.lookups.at
        least = 0 if at else TUNED.read_first
        return await run.search(query, seen=run.lookups.read.get(at, set()), least=least)

    async def observe(self, run: Run, found: Found) -> None:
        lookups, asked = run.lookups, _one_line(run.alone)
        if run.turn == 1:
            self._follow(run)
            # It was searched before the plan, and nothing of it stands in the transcript yet.
            new = {source.id for source in found.sources} - run.evidence.background.by_id.keys()
            found = replace(found, new=frozenset(new))
        else:
            asked = lookups.parts[lookups.at - 1]
        # What the conversation before quoted is never found anew, but it may answer.
        quoted = (i for i in run.sources if i in run.evidence.background.by_id)
        lookups.show([*(source.id for source in found.sources), *quoted])
        about = dict.fromkeys(found.new, asked)
        text = tool_output(found, run.ask.passage_words, about)
        await run.prompt(Stage.RESEARCH, text, Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """Read what was found; return the next query, or None to go on."""
        lookups = run.lookups
        sources = [run.sources[identifier] for identifier in lookups.shown]
        await run.prompt(Stage.RESEARCH, "<state_evaluation>")
        if run.ask.answer_format is AnswerFormat.EXACT:
            await self._read_whole(run, sources)
        else:
            for number in [lookups.at] if lookups.at else lookups.numbers:
                await self._read(run, number, sources[: TUNED.read])
        told = ", ".join(f"[{number}]" for number in lookups.open) or "nothing"
        await run.prompt(Stage.RESEARCH, f"\nOpen: {told}\n</state_evaluation>\n")
        following = lookups.next()
        if following and run.turn > run.ask.tool_calls:
            run.ended_by = run.ended_by or "tool_calls"
            return None
        if not following or await run.runs_low():
            return None
        lookups.at = following
        return await self._call(run, following)

    async def _read_whole(self, run: Run, sources: Sequence[Source]) -> None:
        """Read an exact answer from what was found last and before; the likelier one stands."""
        lookups = run.lookups
        known = [lookups.whole.source] if lookups.whole else []
        held = dict.fromkeys([*(source.id for source in sources), *known])
        read = [run.sources[identifier] for identifier in held]
        new = await self._reader.read_whole(run, read, lookups.question) if sources else None
        if new and (lookups.whole is None or new.chance >= lookups.whole.chance):
            lookups.whole = new
        await self._tell(run, lookups.at, lookups.question, lookups.whole)

    async def _read(self, run: Run, number: int, sources: Sequence[Source]) -> None:
        """Read a part out of passages, and say what was found."""
        lookups, asked = run.lookups, self._part(run, number)
        read = lookups.read.setdefault(number, set())
        read |= {source.id for source in sources}
        finding = await self._reader.read(run, sources, asked)
        if finding is None and not lookups.left(number):
            near = [source for source in run.sources.values() if source.id in read]
            finding = await self._reader.nearest(run, near, asked)
        if finding:
            lookups.found[number] = finding
        await self._tell(run, number, lookups.parts[number - 1], finding)

    async def _tell(self, run: Run, number: int, asked: str, finding: Finding | None) -> None:
        await run.prompt(Stage.RESEARCH, f"\n[{number}] {asked}")
        if finding:
            await run.keep_edited(Stage.RESEARCH, f" {finding.text}")
        told = f"({finding.source})" if finding else NOT_FOUND
        await run.prompt(Stage.RESEARCH, f" {told}")

    async def _call(self, run: Run, number: int) -> str:
        """A search in the words of a part and the model's own: a page seldom puts it as people do.

        The part is written down before the model is asked, and its words behind it.
        """
        query = run.lookups.parts[number - 1]
        await run.prompt(Stage.RESEARCH, f'<call_tool name="search">{query}')
        words = await self._reader.reword(run, self._part(run, number))
        await run.keep_edited(Stage.RESEARCH, f" {words}")
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        run.lookups.searched.add(number)
        return f"{query} {words}".rstrip()

    async def review(self, run: Run) -> str | None:
        """Hold every item of the rubric, which is a part, against what was found."""
        lookups = run.lookups
        marks, found = "", list[str]()
        for number in lookups.numbers:
            met = lookups.found.get(number) or lookups.whole
            told = f"met: {met.source}" if met else "missing"
            marks += f"\n- Answers: {neutralise(lookups.parts[number - 1])} [{told}]"
            found += [f"[{number}] from {met.source}"] if met else []
        plan = f"<writing_plan>{', '.join(found) or 'What was not found'}.</writing_plan>"
        told = f"<review>\n<rubric_review>{marks}\n</rubric_review>\n{plan}\n</review>\n"
        await run.prompt(Stage.REVIEW, told)
        return None

    async def answer(self, run: Run) -> None:
        """A cited claim for each part, what was not found, and an exact answer."""
        await run.prompt(Stage.ANSWER, "<answer>")
        lookups, exact = run.lookups, run.ask.answer_format is AnswerFormat.EXACT
        whole = lookups.whole
        found, said = [whole] if whole else [*lookups.found.values()], set[str]()
        for finding in found:
            await self._claim(run, finding, said, sure=lookups.certain(finding))
        if run.ended_by and not said:  # before anything was read
            first, question = [*run.sources.values()][: TUNED.read], _one_line(run.alone)
            for source, quote in await self._reader.nearest_in(first, question, most=TUNED.quoted):
                await self._claim(run, Finding(quote, source, quote, 0.0), said, sure=False)
        if not run.sources and run.search_error:
            await run.prompt(Stage.ANSWER, "\nThe search failed.")
        missing = [] if exact else [lookups.parts[number - 1] for number in lookups.open]
        for asked in missing:
            await run.prompt(Stage.ANSWER, f"\n\nNot found: {neutralise(asked)}")
        self._mark(run, found, missing, said=bool(said))
        if exact:
            told = "" if whole else f" {NOT_FOUND}"
            await run.prompt(Stage.ANSWER, f"\n{EXACT_LINE.strip()}{told}")
            if whole:
                await run.keep_edited(Stage.ANSWER, f" {whole.text}")
        await run.prompt(Stage.ANSWER, "\n</answer>\n")

    def _mark(
        self, run: Run, found: Sequence[Finding], missing: Sequence[str], *, said: bool
    ) -> None:
        """Record where an answer is not certain, or lacks something."""
        certain = found and not missing and all(map(run.lookups.certain, found))
        if not certain and not run.search_error:
            by: Ending = "not_found" if missing or not found else "uncertain"
            about = [*missing, _one_line(run.ask.question)][0]
            status = Status.PARTIAL if said else Status.NO_EVIDENCE
            run.end_early(about, status, by=run.ended_by or by)

    async def _claim(self, run: Run, finding: Finding, said: set[str], *, sure: bool) -> None:
        """What was drafted from a source or, where that is not `sure` or has hardly another word,
        the source's own sentence; nothing is `said` twice.
        """
        mark = "" if sure else ' certainty="uncertain"'
        exact = run.ask.answer_format is AnswerFormat.EXACT
        quoted = exact or overlap(finding.text, finding.quote) >= TUNED.same
        if not quoted and finding.text and finding.text not in said:
            await run.prompt(Stage.ANSWER, f'\n\n<cite id="{finding.source}"{mark}>')
            await run.keep_edited(Stage.ANSWER, finding.text)
            await run.prompt(Stage.ANSWER, "</cite>")
            said.add(finding.text)
        if sure and not quoted:
            return
        for source, quote in ((finding.source, finding.quote), *finding.near):
            if quote and quote not in said:
                await run.prompt(Stage.ANSWER, f'\n\n<cite id="{source}"{mark}>{quote}</cite>')
                said.add(quote)

    async def keep_cut(self, run: Run, cut: RunCut) -> None:
        """Nothing: what is asked beside the transcript is in it whole or not at all."""


def _one_line(text: str) -> str:
    return neutralise(" ".join(text.split()))
