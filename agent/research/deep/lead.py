"""How a lead writes: its plan divides the question, its review outlines the report.

A lead is a policy that decodes freely and whose one tool is `investigate`. The graph has the
investigations of a turn answered at once (`parts`); their reports come back as tool output, their
sources as sources of the lead, under ids of its own. The answer is written by section and edited
once (`sections`), beside the transcript. What a cut leaves unwritten is told in the words of the
investigations.
"""

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import replace

from rubricem.agent.models.turns import as_function
from rubricem.agent.research.deep.parts import NUMBER, action_of, asked_in, reply_of_part
from rubricem.agent.research.deep.sections import ReportSection, edit, numbered, outline, text_of
from rubricem.agent.research.free import FreeDecoder, user_message
from rubricem.agent.research.run import Run
from rubricem.agent.sources.choice import about
from rubricem.agent.sources.index import of_kind
from rubricem.agent.transcript.events import SourceProgress
from rubricem.agent.transcript.question import (
    BREADTH,
    INVESTIGATE,
    KINDS,
    ROUNDS,
    Found,
    FoundClaim,
    RunCut,
    tool_output,
)
from rubricem.agent.transcript.scaffold import ToolCall, answer_text, neutralise, parse, template
from rubricem.memory.errors import PolicyError
from rubricem.memory.schema import AnswerFormat, Author, Message, Sampling, Stage
from rubricem.memory.text import fill, one_line

WHOLE = 10**6
"""words: of a source, all that there are"""
LEAST_OF_A_SECTION = 1000
"""characters"""
EDIT_TOKENS = 8000
WORDS_OF_A_SOURCE = 12
"""of an outline, that a source of a section is worth where the length is shared out"""
LONGEST_TOLD = 100
"""characters of an investigation's question, which the call above has whole"""
_TAKE_UP = "Take it up in one more round, and in the report."


class LeadDecoder(FreeDecoder):
    """Has the policy lead investigations, and write a report of sections from what they find."""

    no_search = "\n\nNo further investigation is possible. Now write the review.\n"
    review_note = "\n\nNow write the review with its writing_plan, the outline of the report.\n"

    @property
    def investigator(self) -> FreeDecoder:
        """Of the investigations."""
        return FreeDecoder(self.sampling, self.attempts)

    def system(self, run: Run) -> str:
        told = {
            "breadth": str(BREADTH),
            "calls": str(run.ask.calls),
            "rounds": str(ROUNDS),
            "usual": "3 to 6",
            "sources": "".join(f"- {line}\n" for line in about(run.search_tool)),
            "today": run.day,
        }
        told["sources"] = f"What is searched:\n{told['sources']}\n" if told["sources"] else ""
        if run.parts.mixed:
            kinds = {kind: f"\n  {kind}: {'; '.join(about(of_kind(run.search_tool, kind)))}"
                     for kind in KINDS}  # fmt: skip
            told["sources"] = fill(template("lead_kinds"), kinds) + "\n"
        return fill(template("lead"), told)

    def message(self, run: Run) -> str:
        return user_message(run.ask, told=True)

    def tools(self, run: Run) -> str:
        takes = {"question": "string", "items": "string", "after": "string"}
        takes |= {"kind": "string"} if run.parts.mixed else {}
        return json.dumps([as_function(INVESTIGATE, "As told above.", takes, ["question"])])

    def action(self, run: Run, call: ToolCall) -> str:
        """Whatever tool it names, its question is investigated."""
        kind = call.attributes.get("kind", "").strip().lower()
        kind = kind if run.parts.mixed and kind in KINDS else ""
        items, after = (call.attributes.get(name, "") for name in ("items", "after"))
        return action_of(call.query, items, kind, after)

    async def search(self, run: Run, query: str) -> Found:
        name = asked_in(query).name
        part = run.parts.by_name.get(name)

        async def hand_in() -> dict[str, object]:
            return reply_of_part(part) if part else {"passages": [], "error": "it was not begun"}

        found = await run.use(INVESTIGATE, name, "the investigation", hand_in)
        run.parts.take(name, found)
        return found

    async def observe(self, run: Run, found: Found) -> None:
        asked = asked_in(found.asked)
        if part := run.parts.by_name.get(asked.name):
            told = f"Investigation {part.number}, {asked.question}"
            found = replace(found, asked=one_line(told, LONGEST_TOLD))
        await run.respond(Stage.RESEARCH, f"\n{_output(found)}", Author.TOOL)

    async def research(self, run: Run) -> str | None:
        await self._hear(run, "remarks")
        return await super().research(run)

    async def review(self, run: Run) -> str | None:
        """What the person says until the report is begun sends the lead back to its research."""
        missing = await super().review(run)
        if missing is None and await self._hear(run, "late remarks"):
            run.turn += 1
            return await super().research(run) or await self.review(run)
        return missing

    async def _hear(self, run: Run, name: str) -> bool:
        """Tell the lead what the person said since; a resume tells it at the same place."""
        steering = run.parts.steering
        kept = await run.once(name, {"value": str(len(steering.remarks))})
        known = int(kept["value"])
        new = steering.remarks[steering.heard : known]
        run.outlet.say(*new)
        for remark in new:
            said = f"The person who asked adds: {neutralise(remark)}"
            await run.respond(Stage.RESEARCH, f"\n{said}\n{_TAKE_UP}\n")
        if new:
            steering.heard = known
            steering.tell()
        return bool(new)

    async def is_spent(self, run: Run) -> bool:
        more = min(run.parts.steering.heard, ROUNDS)
        return run.turn > ROUNDS + more or await super().is_spent(run)

    async def answer(self, run: Run) -> None:
        """Sections by the outline, edited; a short answer is written as any policy writes it."""
        if run.ask.answer_format is not AnswerFormat.LONG or self.has_answer(run):
            return await super().answer(run)
        document = parse(run.text)
        if plans := document.find("writing_plan"):
            told = NUMBER.findall(plans[-1].attributes.get("discard", ""))
            run.parts.discarded = frozenset(map(int, told))
        sections = outline(document.last("writing_plan"), list(run.sources)) if run.sources else []
        if not sections:
            return await super().answer(run)
        written = await asyncio.gather(
            *(self._written(run, sections, each) for each in sections), return_exceptions=True
        )
        texts = list[str]()
        cut: RunCut | None = None
        for section, text in zip(sections, written, strict=True):
            if isinstance(text, str) and text:
                texts.append(_headed(section, text))
            elif isinstance(text, str | RunCut | PolicyError):
                cut = text if isinstance(text, RunCut) else cut
                run.end_early(f"the section {section.title!r} was not written", by="failure")
                texts.append(_headed(section, _in_short(run, section.ids)))
            else:
                raise text
        report = "\n\n".join(texts)
        if cut is None:
            report = await self._edited(run, report)
        await run.keep_edited(Stage.ANSWER, f"\n<answer>\n{report}\n</answer>\n")
        if cut is not None:
            raise cut

    async def _written(
        self, run: Run, sections: Sequence[ReportSection], section: ReportSection
    ) -> str:
        """A section's text. Raises PolicyError or RunCut where it cannot be had."""
        share = _weight(section) / sum(map(_weight, sections))
        length = max(round(run.ask.length * share / 100) * 100, LEAST_OF_A_SECTION)
        system = fill(template("section"), {"length": f"{length:,}"})
        ids = section.ids
        while True:
            asked = Message("user", _section_prompt(run, sections, section, ids))
            sampling = Sampling(max_tokens=run.ask.max_tokens)
            try:
                messages = [Message("system", system), asked]
                said = await run.aside(Stage.ANSWER, messages, sampling, "section")
                text = text_of(said.text, section.title)
                if text and said.stop_reason == "length":
                    reason = f"the section {section.title!r} reached its limit of tokens"
                    run.end_early(reason, by="max_tokens")
                    text += "\n\n(This section breaks off here.)"
                return text
            except PolicyError as error:
                if error.kind != "context" or len(ids) < 2:
                    run.charge(error)
                    raise
                ids = ids[: len(ids) // 2]

    async def _edited(self, run: Run, report: str) -> str:
        """The report after its one edit; as it was, where the edit fails."""
        asked = f"The question:\n{neutralise(run.ask.question)}\n\nThe report:\n\n"
        messages = [
            Message("system", template("edit")),
            Message("user", asked + numbered(report)),
        ]
        try:
            sampling = Sampling(max_tokens=EDIT_TOKENS)
            said = await run.aside(Stage.ANSWER, messages, sampling, "edit")
        except PolicyError as error:
            run.charge(error)
            run.listener(SourceProgress(f"the report was not edited: {error}"))
            return report
        except RunCut:
            return report
        edited, refused = edit(report, said.text)
        if refused:
            told = f"{refused} changes of the edit would have added claims, and were left"
            run.listener(SourceProgress(told))
        return edited

    async def keep_cut(self, run: Run, cut: RunCut) -> None:
        """What was written, and what the investigations found where no report was."""
        await super().keep_cut(run, cut)
        if answer_text(parse(run.text)):
            return
        for name, part in run.parts.by_name.items():
            if part.ended is not None and name not in run.parts.found:
                found = run.evidence.take(INVESTIGATE, name, reply_of_part(part))
                run.parts.found[name] = found
        told = [
            f"## {name}\n\n{_claims(found.claims)}"
            for name, found in run.parts.kept.items()
            if found.claims
        ]
        if told:
            text = "\n\n".join(told)
            await run.prompt(Stage.ANSWER, f"\n<answer>\n{text}\n</answer>\n")


def _output(found: Found) -> str:
    """A report as the lead reads it: claims with the ids of the lead's own sources."""
    if found.repeated:
        found = Found((), note="This was asked before: its report stands above.", asked=found.asked)
    if found.error or not found.claims:
        return tool_output(found, WHOLE)
    note = f"{one_line(found.asked)}:\n{found.note}".strip() + "\n"
    places: dict[str, list[str]] = {}
    for source in found.sources:
        where = ", ".join(filter(None, (source.location, source.date)))
        places.setdefault(f"{source.title} ({where})", []).append(source.id)
    listed = "\n".join(f"- {where}: {', '.join(ids)}" for where, ids in places.items())
    said = f"{note}{_report(found.claims)}\n\nIts sources:\n{listed or '- none'}"
    return f"<tool_output>\n{neutralise(said)}\n</tool_output>\n"


def _report(claims: Sequence[FoundClaim], given: Collection[str] | None = None) -> str:
    """The pieces of a report as text, each claim with its ids behind it, or those `given`."""
    told = list[str]()
    for claim in claims:
        ids = [i for i in claim.ids if given is None or i in given]
        told.append(f"{claim.text} [{', '.join(ids)}]" if ids else claim.text)
    return "".join(told).strip()


def _weight(section: ReportSection) -> int:
    """How much a section has to say: by its block of the outline, and its sources."""
    return len(section.says.split()) + WORDS_OF_A_SOURCE * len(section.ids) + 1


def _claims(claims: Sequence[FoundClaim]) -> str:
    """The pieces of a report as text of an answer."""
    return "".join(
        f'<cite id="{", ".join(claim.ids)}">{neutralise(claim.text)}</cite>'
        if claim.ids
        else neutralise(claim.text)
        for claim in claims
    ).strip()


def _in_short(run: Run, ids: Sequence[str]) -> str:
    """The claims of the investigations that rest on any of these sources."""
    found = (c for each in run.parts.kept.values() for c in each.claims if set(c.ids) & set(ids))
    lines = [f"- {_claims([claim])}" for claim in dict.fromkeys(found)]
    return "\n".join(lines) or "(This section could not be written.)"


def _headed(section: ReportSection, text: str) -> str:
    return f"## {neutralise(section.title)}\n\n{text}" if section.title else text


def _section_prompt(
    run: Run, sections: Sequence[ReportSection], section: ReportSection, ids: Sequence[str]
) -> str:
    sources = tuple(run.sources[i] for i in ids)
    shown = tool_output(Found(sources, frozenset(ids)), WHOLE, placed=True)
    others = "\n".join(f"- {each.title}" for each in sections if each is not section)
    reports = [
        _report(found.claims, ids)
        for found in run.parts.kept.values()
        if not ids or any({*claim.ids} & {*ids} for claim in found.claims)
    ]
    claims = "\n\n".join(filter(None, reports))
    return (
        f"The question:\n{neutralise(run.ask.question)}\n\n"
        f"Its rubric:\n{neutralise(parse(run.text).last('rubric').strip())}\n\n"
        f"Other sections:\n{neutralise(others) or '(none)'}\n\n"
        "What was found, in these sources and in others whose ids are not shown:\n"
        f"{neutralise(claims) or '(nothing was reported)'}\n\n"
        f"The sources:\n{shown}\n"
        f"Your section is: {neutralise(section.title) or 'the whole report'}\n"
        f"It says:\n{neutralise(section.says)}\n"
    )
