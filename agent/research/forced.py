"""Forced decoding: the runner writes every tag, and a small model fills what is between them.

The transcript is valid by construction. Tags, queries and quotes are PROMPT text; what the model
wrote is POLICY text: the plan, in the transcript and by a grammar, and what it was asked beside the
transcript, where it is shown nothing but what that takes (`reading`). Rows of such runs can be used
for SFT, never for a policy-gradient ratio.

The plan is a list of look-ups (`plans`), which code follows: each is searched in its own words,
answered by a span of a passage, and put into those that refer to it. One that finds nothing is
searched once more, with the model's own words beside. What is not found or not certain is data
(`Lookups.past`), and the answer marks it.

MCP tools are not called: a small model calls them when it should not, or calls whatever it is
offered. Free decoding calls them.
"""

import math

from rubricem.agent.research.lookups import Finding, Lookups
from rubricem.agent.research.plans import Lookup, PlanOperation, plan_grammar, read_plan
from rubricem.agent.research.reading import PassageReader, conclude, mean_logprob
from rubricem.agent.research.run import Run
from rubricem.agent.research.tuned import TUNED
from rubricem.agent.transcript.events import SourceProgress
from rubricem.agent.transcript.question import Found, RunCut, tool_output
from rubricem.agent.transcript.scaffold import EXACT_LINE, neutralise, parse, template
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
        """Write the plan and return the query of its first look-up."""
        if run.equipped and run.equipped.offers:
            run.listener(SourceProgress("the embedded model calls no tools of MCP servers"))
        await run.prompt(Stage.PLAN, "<think>\n1.")
        written = await run.write(Stage.PLAN, PLAN, live=False, slot="think")
        drafted = neutralise(written.text.rstrip())
        await run.keep_edited(Stage.PLAN, drafted)
        plan = read_plan(f"1.{drafted}", run.alone)
        needed = (step for step in plan.steps if step.number in plan.needed)
        items = "".join(f"\n- Answers: {neutralise(step.text)}" for step in needed)
        told = f"\n<deep_analysis>{plan.outline()}</deep_analysis>\n<rubric>{items}\n</rubric>"
        steps = f"\n<research_plan>\n{neutralise(plan.text())}\n</research_plan>"
        text = f"\n</think>\n<structured_plan>{told}{steps}\n</structured_plan>\n"
        await run.prompt(Stage.PLAN, text)
        run.lookups = Lookups()
        self._follow(run)
        first = run.lookups.plan.step(run.lookups.at)
        return await self._call(run, self._question(run, first))

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
        lookups = run.lookups
        return await run.search(
            query, seen=lookups.read.get(lookups.at, set()), beside=lookups.beside
        )

    async def observe(self, run: Run, found: Found) -> None:
        if run.turn == 1:
            self._follow(run)
        lookups = run.lookups
        asked = self._question(run, lookups.plan.step(lookups.at))
        lookups.queries.setdefault(lookups.at, [asked])
        # What the conversation before quoted is never found anew, but it may answer.
        quoted = (i for i in run.sources if i in run.evidence.background.by_id)
        lookups.show([*(source.id for source in found.sources), *quoted])
        about = dict.fromkeys(found.new, asked)
        text = tool_output(found, run.ask.passage_words, about)
        await run.prompt(Stage.RESEARCH, text, Author.TOOL)

    async def research(self, run: Run) -> str | None:
        """Read what was found; return the next query, or None to go on."""
        lookups = run.lookups
        step = lookups.plan.step(lookups.at)
        asked = self._question(run, step)
        await run.prompt(Stage.RESEARCH, f"<state_evaluation>\n[{step.number}] {asked}")
        sources = [run.sources[identifier] for identifier in lookups.shown]
        part = self._in_context(run, step, asked)
        finding = await self._reader.read(run, sources, part, step.kind)
        if finding and finding.chance > lookups.chance_alone(step.number):
            lookups.found[step.number] = finding
        finding = lookups.found.get(step.number)
        if finding:
            await run.keep_edited(Stage.RESEARCH, f" {finding.text}")
        told = f"({finding.source})" if finding else NOT_FOUND
        await run.prompt(Stage.RESEARCH, f" {told}")
        left = (s.number for s in lookups.open() if s.number in lookups.plan.needed)
        told = ", ".join(f"[{number}]" for number in left) or "nothing"
        await run.prompt(Stage.RESEARCH, f"\nOpen: {told}\n</state_evaluation>\n")
        query = await self._next_query(run, step)
        if query and run.turn > run.ask.tool_calls:
            run.ended_by = run.ended_by or "tool_calls"
            return None
        if not query or await run.runs_low():
            return None
        return await self._call(run, query)

    async def _next_query(self, run: Run, step: Lookup) -> str:
        """What is to be searched next: the look-up in other words, or the next one; "": nothing."""
        lookups = run.lookups
        tried = len(lookups.queries[step.number])
        if step.number not in lookups.found and tried < TUNED.tries:
            return self._question(run, step)
        following = lookups.next()
        if following is None:
            return ""
        lookups.at = following.number
        return self._question(run, following)

    async def _call(self, run: Run, query: str) -> str:
        """A search in the words of a look-up, and beside them in those of the model.

        The model's own where an answer in words is asked for, which a page seldom puts as a person
        does, and where the look-up's words found nothing.
        """
        lookups = run.lookups
        asked = lookups.queries.setdefault(lookups.at, [])
        await run.prompt(Stage.RESEARCH, f'<call_tool name="search">{query}')
        lookups.beside = ""
        step = lookups.plan.step(lookups.at)
        if asked or step.kind is AnswerKind.WORDS:
            whole = self._in_context(run, step, query)
            words = await self._reader.reword(run, whole)
            if whole != query:  # the question itself is always searched, too
                lookups.beside = _one_line(run.alone)
                await run.prompt(Stage.RESEARCH, f" {lookups.beside}")
            await run.keep_edited(Stage.RESEARCH, f" {words}")
            lookups.beside = f"{lookups.beside} {words}".strip()
        await run.prompt(Stage.RESEARCH, "</call_tool>\n")
        asked.append(f"{query} {lookups.beside}".strip())
        return asked[-1]

    async def review(self, run: Run) -> str | None:
        """Hold every item of the rubric, which is a look-up, against what was found."""
        lookups = run.lookups
        marks = [
            f"\n- Answers: {neutralise(step.text)} "
            + (f"[met: {lookups.found[step.number].source}]" if step.number in lookups.found
               else "[missing]")
            for step in lookups.plan.steps
            if step.number in lookups.plan.needed
        ]  # fmt: skip
        found = ", ".join(f"[{n}] from {f.source}" for n, f in lookups.found.items())
        await run.prompt(
            Stage.REVIEW,
            f"<review>\n<rubric_review>{''.join(marks)}\n</rubric_review>\n"
            f"<writing_plan>{found or 'What was not found'}.</writing_plan>\n</review>\n",
        )
        return None

    async def answer(self, run: Run) -> None:
        """A cited claim for each look-up, what was not found, and the conclusion."""
        await run.prompt(Stage.ANSWER, "<answer>")
        lookups, exact = run.lookups, run.ask.answer_format is AnswerFormat.EXACT
        for number, finding in lookups.found.items():
            await self._claim(run, number, finding)
        if not run.sources and run.search_error:
            await run.prompt(Stage.ANSWER, "\nThe search failed.")
        tried = {*lookups.queries} | lookups.plan.needed
        left = (step for step in lookups.open() if step.number in tried)
        missing = [asked for step in left if (asked := lookups.resolve(step))]
        for asked in missing:
            await run.prompt(Stage.ANSWER, f"\n\nNot found: {neutralise(asked)}")
        unmet = lookups.plan.needed - {*lookups.found}
        bare, chance = await self._bare(run)
        chance = 0.0 if unmet else chance
        if chance < lookups.threshold(*lookups.plan.ends) and not run.search_error:
            status = Status.PARTIAL if lookups.found else Status.NO_EVIDENCE
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

    async def _claim(self, run: Run, number: int, finding: Finding) -> None:
        """What a source says, by its own sentence, and before it what was drafted from it."""
        sure = run.lookups.certainty(number) is Certainty.CERTAIN
        mark = "" if sure else f' certainty="{Certainty.UNCERTAIN}"'
        cite = f'\n\n<cite id="{finding.source}"{mark}>'
        if finding.kind is AnswerKind.WORDS and finding.text != finding.quote:
            await run.prompt(Stage.ANSWER, cite)
            await run.keep_edited(Stage.ANSWER, finding.text)
            await run.prompt(Stage.ANSWER, "</cite>")
        if finding.quote:
            await run.prompt(Stage.ANSWER, f"{cite}{finding.quote}</cite>")

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
