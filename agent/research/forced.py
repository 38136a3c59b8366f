"""Forced decoding: the runner writes every tag, and a small model fills what is between them.

The transcript is valid by construction. Tags, queries and quotes are PROMPT text; what the model
wrote is POLICY text: the plan, in the transcript and by a grammar, and what it was asked beside the
transcript, where it is shown nothing but what that takes (`reading`). Rows of such runs can be used
for SFT, never for a policy-gradient ratio.

The question itself is searched first, before the plan, and what that finds is read for the whole of
it: for its parts where they are to be answered in words, else for an answer that the plan must
better. The plan is a list of look-ups (`plans`), which code follows: each is searched in its own
words, answered by a span of a passage, and put into those that refer to it. One that finds nothing
is searched once more, with the model's own words beside. What is not found or not certain is data
(`Lookups.past`), and the answer marks it.

MCP tools are not called: a small model calls them when it should not, or calls whatever it is
offered. Free decoding calls them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from rubricem.agent.research.lookups import Finding
from rubricem.agent.research.plans import Lookup, PlanOperation, plan_grammar, read_plan
from rubricem.agent.research.reading import PassageReader, conclude, mean_logprob
from rubricem.agent.research.run import Run
from rubricem.agent.research.tuned import TUNED
from rubricem.agent.transcript.events import SourceProgress
from rubricem.agent.transcript.question import Found, RunCut, tool_output
from rubricem.agent.transcript.scaffold import EXACT_LINE, neutralise, parse, template
from rubricem.agent.transcript.words import overlap
from rubricem.memory.errors import SettingsError
from rubricem.memory.language import NAMES, is_foreign, language_of
from rubricem.memory.schema import (
    AnswerFormat,
    AnswerKind,
    Author,
    Certainty,
    Embedder,
    Ending,
    Sampling,
    Source,
    Stage,
    Status,
)

PLAN = Sampling(temperature=0.0, max_tokens=220, grammar=plan_grammar(TUNED.lookups))
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
        asked = f"Question: {question}"
        if is_foreign(question):
            asked += f"\nWrite in {NAMES[language_of(question)]}, the language of the question."
        return asked

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
        drafted = neutralise(written.text.rstrip())
        await run.keep_edited(Stage.PLAN, drafted)
        plan = read_plan(f"1.{drafted}", run.alone)
        needed = (step for step in plan.steps if step.number in plan.needed)
        items = "".join(f"\n- Answers: {neutralise(step.text)}" for step in needed)
        told = f"\n<deep_analysis>Look-ups: {len(plan.steps)}.</deep_analysis>"
        told += f"\n<rubric>{items}\n</rubric>"
        steps = f"\n<research_plan>\n{neutralise(plan.text())}\n</research_plan>"
        text = f"\n</think>\n<structured_plan>{told}{steps}\n</structured_plan>\n"
        await run.prompt(Stage.PLAN, text)
        self._follow(run)
        await run.prompt(Stage.RESEARCH, f'<call_tool name="search">{question}</call_tool>\n')
        return question

    def _follow(self, run: Run) -> None:
        """Take up the plan as it stands in the transcript last: a person may have changed it."""
        text = parse(run.text).last("research_plan")
        plan = read_plan(text, run.alone)
        if plan != run.lookups.plan:
            run.lookups.begin(plan)

    def _question(self, run: Run, step: Lookup) -> str:
        """What a look-up asks; the only one of a plan asks what the person asked."""
        if len(run.lookups.plan.steps) == 1:
            return _one_line(run.alone)
        return run.lookups.resolve(step) or step.text

    def _in_context(self, run: Run, step: Lookup, asked: str) -> str:
        """What a look-up asks, with all that the person asked where it is a part in words.

        Such parts name their subject once: "How does the cache evict, and what does maxsize do?"
        """
        if step.kind is not AnswerKind.WORDS or len(run.lookups.plan.steps) == 1:
            return asked
        return f"{_one_line(run.alone)} Answer only this part: {asked}"

    async def search(self, run: Run, query: str) -> Found:
        """Passages that were read for another look-up may answer this one, too."""
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
            asked = self._question(run, lookups.plan.step(lookups.at))
        # What the conversation before quoted is never found anew, but it may answer.
        quoted = (i for i in run.sources if i in run.evidence.background.by_id)
        lookups.show([*(source.id for source in found.sources), *quoted])
        about = dict.fromkeys(found.new, asked)
        text = tool_output(found, run.ask.passage_words, about)
        await run.prompt(Stage.RESEARCH, text, Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """Read what was found; return the next query, or None to go on."""
        lookups, plan = run.lookups, run.lookups.plan
        sources = [run.sources[identifier] for identifier in lookups.shown]
        await run.prompt(Stage.RESEARCH, "<state_evaluation>")
        if lookups.at:
            await self._read(run, plan.step(lookups.at), sources)
        elif plan.apart:
            for step in plan.steps:
                lookups.queries.setdefault(step.number, [_one_line(run.alone)])
                await self._read(run, step, sources[: TUNED.read])
        else:
            lookups.whole = await self._read_whole(run, sources)
            await self._tell(run, 0, _one_line(run.alone), lookups.whole)
        left = (s.number for s in lookups.open() if s.number in plan.needed)
        told = ", ".join(f"[{number}]" for number in left) or "nothing"
        await run.prompt(Stage.RESEARCH, f"\nOpen: {told}\n</state_evaluation>\n")
        following = None if lookups.settled else lookups.next()
        if following and run.turn > run.ask.tool_calls:
            run.ended_by = run.ended_by or "tool_calls"
            return None
        if not following or await run.runs_low():
            return None
        lookups.at = following.number
        return await self._call(run, following)

    async def _read_whole(self, run: Run, sources: Sequence[Source]) -> Finding | None:
        """What the question's own passages answer: a span for an exact answer, else a sentence."""
        question, first = _one_line(run.alone), sources[: TUNED.read]
        if run.ask.answer_format is not AnswerFormat.EXACT:
            return await self._reader.read(run, first, question, AnswerKind.WORDS)
        compares = run.lookups.plan.operation is not PlanOperation.NONE
        return await self._reader.read_whole(run, sources, question, decides=compares)

    async def _read(self, run: Run, step: Lookup, sources: Sequence[Source]) -> None:
        """Read a look-up out of passages, and say what was found."""
        lookups, asked = run.lookups, self._question(run, step)
        read = lookups.read.setdefault(step.number, set())
        read |= {source.id for source in sources}
        part = self._in_context(run, step, asked)
        finding = await self._reader.read(run, sources, part, step.kind)
        worded = step.kind is AnswerKind.WORDS or run.ask.answer_format is AnswerFormat.EXACT
        doubted = finding is None or finding.chance < TUNED.certain
        if doubted and lookups.plan.apart and not worded:
            # Small models mistake the kind, and a sentence need not be of any.
            finding = await self._reader.read(run, sources, part, AnswerKind.WORDS) or finding
        if finding is None and lookups.plan.apart and not lookups.left(step.number):
            near = [source for source in run.sources.values() if source.id in read]
            finding = await self._reader.nearest(run, near, part)
        if finding:
            lookups.found[step.number] = finding
        await self._tell(run, step.number, asked, finding)

    async def _tell(self, run: Run, number: int, asked: str, finding: Finding | None) -> None:
        await run.prompt(Stage.RESEARCH, f"\n[{number}] {asked}")
        if finding:
            await run.keep_edited(Stage.RESEARCH, f" {finding.text}")
        told = f"({finding.source})" if finding else NOT_FOUND
        await run.prompt(Stage.RESEARCH, f" {told}")

    async def _call(self, run: Run, step: Lookup) -> str:
        """A search in the words of a look-up, and after its first those of the model beside them.

        An answer in words has the model's at once: a page seldom puts it as a person asks.
        """
        query, tried = self._question(run, step), run.lookups.queries.setdefault(step.number, [])
        await run.prompt(Stage.RESEARCH, f'<call_tool name="search">{query}')
        if tried or step.kind is AnswerKind.WORDS:
            words = await self._reader.reword(run, self._in_context(run, step, query))
            await run.keep_edited(Stage.RESEARCH, f" {words}")
            query = f"{query} {words}".rstrip()
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        tried.append(query)
        return query

    async def review(self, run: Run) -> str | None:
        """Hold every item of the rubric, which is a look-up, against what was found."""
        lookups = run.lookups
        marks = ""
        for step in (step for step in lookups.plan.steps if step.number in lookups.plan.needed):
            met = lookups.found.get(step.number) or (lookups.whole if lookups.settled else None)
            told = f"met: {met.source}" if met else "missing"
            marks += f"\n- Answers: {neutralise(step.text)} [{told}]"
        found = ", ".join(f"[{n}] from {f.source}" for n, f in lookups.found.items())
        await run.prompt(
            Stage.REVIEW,
            f"<review>\n<rubric_review>{marks}\n</rubric_review>\n"
            f"<writing_plan>{found or 'What was not found'}.</writing_plan>\n</review>\n",
        )
        return None

    async def answer(self, run: Run) -> None:
        """A cited claim for each look-up, what was not found, and the conclusion."""
        await run.prompt(Stage.ANSWER, "<answer>")
        lookups, exact = run.lookups, run.ask.answer_format is AnswerFormat.EXACT
        unmet = set() if lookups.settled else lookups.plan.needed - {*lookups.found}
        bare, chance, said = await self._claims(run, met=not unmet)
        if run.ended_by and not said:  # before anything was read
            first, question = [*run.sources.values()][: TUNED.read], _one_line(run.alone)
            for source, quote in await self._reader.nearest_in(first, question, most=TUNED.quoted):
                near = Finding(quote, source, quote, AnswerKind.WORDS, 0.0)
                await self._claim(run, near, said, sure=False)
        if not run.sources and run.search_error:
            await run.prompt(Stage.ANSWER, "\nThe search failed.")
        tried = {*lookups.queries} | lookups.plan.needed
        left = [s for s in lookups.open() if s.number in tried and not lookups.settled]
        missing = [asked for step in left if (asked := lookups.resolve(step))]
        for asked in missing:
            await run.prompt(Stage.ANSWER, f"\n\nNot found: {neutralise(asked)}")
        if chance < lookups.threshold(*lookups.plan.ends) and not run.search_error:
            status = Status.PARTIAL if said else Status.NO_EVIDENCE
            about = [*missing, _one_line(run.ask.question)][0]
            by: Ending = "not_found" if unmet and not bare else "uncertain"
            run.end_early(about, status, by=run.ended_by or by)
        if exact:
            told = "" if bare else f" {NOT_FOUND}"
            await run.prompt(Stage.ANSWER, f"\n{EXACT_LINE.strip()}{told}")
        elif bare and len(lookups.found) > 1:
            await run.prompt(Stage.ANSWER, "\n\nIn short:")
        else:
            bare = ""
        if bare:
            await run.keep_edited(Stage.ANSWER, f" {bare}")
        await run.prompt(Stage.ANSWER, "\n</answer>\n")

    async def _claims(self, run: Run, *, met: bool) -> tuple[str, float, set[str]]:
        """State what was found; return the bare answer, its chance to be right, and what was said.

        What the question's passages say comes first, in words; as an exact answer it stands where
        the look-ups did not better it, and alone it is not certain. `met`: all needed were found.
        """
        lookups, exact = run.lookups, run.ask.answer_format is AnswerFormat.EXACT
        whole, said = lookups.whole, set[str]()
        bare, chance = await self._bare(run)
        chance = chance if met else 0.0
        if whole and not exact:
            await self._claim(run, whole, said, sure=whole.chance >= TUNED.supported)
            chance = whole.chance if lookups.settled else chance
        for number, finding in lookups.found.items():
            sure = lookups.certainty(number) is Certainty.CERTAIN
            await self._claim(run, finding, said, sure=sure)
        if whole and exact and (whole.text == bare or whole.chance > chance):
            sure = whole.text == bare and max(whole.chance, chance) >= TUNED.certain
            bare, chance = whole.text, max(whole.chance, chance) if sure else 0.0
            await self._claim(run, whole, said, sure=sure)
        return bare, chance, said

    async def _claim(self, run: Run, finding: Finding, said: set[str], *, sure: bool) -> None:
        """What a source says, by its own sentence, and before it what was drafted from it.

        Nothing is `said` twice: a draft that has the sentence's words gives way to it.
        """
        mark = "" if sure else f' certainty="{Certainty.UNCERTAIN}"'
        cite = f'\n\n<cite id="{finding.source}"{mark}>'
        drafted = finding.text if finding.kind is AnswerKind.WORDS else ""
        if drafted and drafted not in said and overlap(drafted, finding.quote) < TUNED.same:
            await run.prompt(Stage.ANSWER, cite)
            await run.keep_edited(Stage.ANSWER, drafted)
            await run.prompt(Stage.ANSWER, "</cite>")
        for source, quote in ((finding.source, finding.quote), *finding.near):
            if quote and quote not in said:
                cite = f'\n\n<cite id="{source}"{mark}>'
                await run.prompt(Stage.ANSWER, f"{cite}{quote}</cite>")
                said.add(quote)
        said |= {drafted} - {""}

    async def _bare(self, run: Run) -> tuple[str, float]:
        """The bare answer, and how likely it is right: a span of what the plan led to.

        Of several ends that nothing is done with what was found of them; else nothing is concluded.
        """
        lookups, plan = run.lookups, run.lookups.plan
        ends = [n for n in plan.ends if n in lookups.found]
        if plan.operation is PlanOperation.NONE:
            ends = ends or [n for n in plan.leaves if n in lookups.found]
        compares = plan.operation is not PlanOperation.NONE
        if not ends or (compares and len(ends) < len(plan.ends)):
            return "", 0.0
        chance = math.prod(lookups.chance(number) for number in ends)
        found = [lookups.found[number] for number in ends]
        outcome = lookups.operate()
        if isinstance(outcome, bool):
            return ("yes" if outcome else "no"), chance
        if len(found) == 1 and found[0].kind is not AnswerKind.WORDS:
            return found[0].text, chance
        if run.ask.answer_format is not AnswerFormat.EXACT and not compares:
            # Each stands for itself, and nothing is concluded from them together.
            return "", min(lookups.chance(number) for number in ends)
        told = [
            f"[{n}] {neutralise(lookups.resolve(plan.step(n)) or '')} {lookups.found[n].text}"
            for n in lookups.found
        ]
        if outcome is not None:
            told.append(f"So [{outcome}] is the {plan.operation} one.")
        offered = [finding.text for finding in found]
        if compares:
            offered += [lookups.resolve(plan.step(number)) or "" for number in ends]
        written = await conclude(run, "\n".join(told), offered, decides=compares)
        if written is None:
            return "", 0.0
        return written.text.strip(), chance * math.exp(mean_logprob(written))

    async def keep_cut(self, run: Run, cut: RunCut) -> None:
        """Nothing: what is asked beside the transcript is in it whole or not at all."""


def _one_line(text: str) -> str:
    return neutralise(" ".join(text.split()))
