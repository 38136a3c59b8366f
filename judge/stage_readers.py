"""How a model proposes criteria for a group and scores a trajectory: one call, or short reads.

A server is asked for JSON. From the embedded model scores are read as probabilities: the question
and the trajectory are one prefix, and each criterion is one short question after it, together with
the sentence of the stage that shares most words with it. The points are twice the probability of
"Yes". The model gives no reasons: the justification is that sentence, labelled as code's.

A server's model is shown the passages that runs found, whole and once, and what code measured
(`evidence`), beside the runs.

Nor does a small model write reliable JSON or weigh a whole group at once. Its criteria are a few
short lines, requested stage by stage with excerpts of a few runs side by side, one sentence after
another behind the words GOOD and FLAW. A grammar makes each begin with a verb that fits the stage;
sentences that break off, or share no word with the question, are dropped.
"""

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from rubricem.judge.base import (
    closest_span,
    instruct,
    is_written,
    outcome,
    prompt,
    render_run,
    render_stage,
    sight_of,
    stage_text,
)
from rubricem.judge.buffers import add
from rubricem.judge.evidence import ALL, cited_in, found_text, needs, show
from rubricem.judge.readers import ChoiceSeries, number_of
from rubricem.judge.stage import Proposed, Runs, Scored, Standard
from rubricem.memory.asking import (
    WHOLE,
    Bill,
    Numbered,
    ReplyForm,
    Valid,
    Verdicts,
    ask_entries,
    ask_json,
    usage_of_error,
)
from rubricem.memory.errors import JudgeError
from rubricem.memory.language import language_of, words_in
from rubricem.memory.schema import (
    ChatModel,
    ChoiceReader,
    Criterion,
    Message,
    RubricBuffer,
    Sampling,
    Source,
    Stage,
    TokenPolicy,
    Trajectory,
    Verdict,
)
from rubricem.memory.text import cut, fence, seed_of, without_markers

WEIGHTS = {"minor": 1.0, "low": 1.0, "decisive": 3.0, "critical": 3.0, "high": 3.0}
FLAWS = frozenset({"-", "negative", "negative criterion", "flaw", "fault"})


TEXTS = frozenset({"title", "name", "description", "criterion", "item", "same as"})
"""fields of a criterion that say nothing of its sign"""


def _number_in(said: Any, default: float) -> float:
    found = re.search(r"-?\d+(?:\.\d+)?", str(said))
    return float(found[0]) if found else default


def _listed(said: Any) -> int | None:
    """The number of a listed criterion: 2, "#2", "criterion 2"; None where it is none."""
    found = re.fullmatch(r"\W*(?:[a-z]+\.?)?\W*(\d{1,4})(?:\.0)?\W*", str(said), re.I)
    return int(found[1]) if found else None


def _is_flaw(given: dict[str, Any]) -> bool:
    """Whether a field says so, whatever its name: a flaw read as a merit would be rewarded."""
    told = [
        (re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name), str(said).casefold())
        for name, said in given.items()
    ]
    named = [([word.casefold() for word in words], said) for words, said in told]
    return any(
        said in FLAWS
        or (said in ("false", "no") and "positive" in words)
        or (said in ("true", "yes") and not FLAWS.isdisjoint(words))
        for words, said in named
        if " ".join(words) not in TEXTS
    )


Weight = Annotated[
    float, BeforeValidator(lambda s: _number_in(s, WEIGHTS.get(str(s).casefold(), 2.0)))
]
Number = Annotated[int | None, BeforeValidator(_listed)]


class ProposedItem(ReplyForm):
    """One criterion as the model writes it; what is too long or too heavy is cut."""

    title: str = ""
    description: str = Field(min_length=1)
    weight: Weight = 2.0
    negative: SkipJsonSchema[bool] = False
    """in a reply that lists flaws among the others"""
    same_as: Number = None
    """the number of a listed criterion that says the same in other words"""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"description": given}
        if isinstance(given, dict):
            read = cls._find_fields(given) | {"negative": _is_flaw(given)}
            return {"description": read["title"]} | read if read.get("title") else read
        return given

    def criterion(self, *, positive: bool, persistent: bool) -> Criterion:
        said = self.description.split()
        return Criterion(
            title=cut(" ".join(self.title.split() or said[:TITLE_WORDS]), TITLE_CHARACTERS),
            description=cut(" ".join(said), DESCRIPTION_CHARACTERS),
            weight=min(max(abs(self.weight), 1.0), 3.0),
            positive=positive and self.weight >= 0 and not self.negative,
            persistent=persistent,
        )


class ProposedStage(ReplyForm):
    positive: Valid[ProposedItem] = Field(default_factory=list)
    negative: Valid[ProposedItem] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        return {"positive": given} if isinstance(given, list) else given or {}


class Proposal(ReplyForm):
    """The reply to a request for criteria; stages may be left out, but not all of them."""

    plan: ProposedStage = ProposedStage()
    research: ProposedStage = ProposedStage()
    review: ProposedStage = ProposedStage()
    answer: ProposedStage = ProposedStage()
    needed: Valid[ProposedItem] = Field(default_factory=list)
    """of the answer, whether the runs differ in it or not"""

    @model_validator(mode="before")
    @classmethod
    def _by_stage(cls, given: Any) -> Any:
        """The stages of a list whose entries name each its own; other things as they are."""
        beside = given if isinstance(given, dict) else {"criteria": given}
        lists = [v for k, v in beside.items() if k != "needed" and isinstance(v, list)]
        entries = [entry for listed in lists for entry in listed]
        found: dict[str, dict[str, list[Any]]] = {}
        for one in (x for x in entries if isinstance(x, dict) and "stage" in x):
            its = found.setdefault(str(one["stage"]), {"positive": [], "negative": []})
            parts = {sign: one[sign] for sign in its if isinstance(one.get(sign), list)}
            for sign, items in (parts or {"positive": [one]}).items():
                its[sign] += items
        return {**found, "needed": beside.get("needed")} if found else given

    @model_validator(mode="after")
    def _some_stage(self) -> "Proposal":
        if not self.model_fields_set:
            raise ValueError(f"it names none of the stages {', '.join(Stage)}")
        return self

    def criteria(
        self, *, persistent: bool, known: "Known" = ()
    ) -> dict[Stage, tuple[Criterion, ...]]:
        """Of each stage the positive ones, then the negative ones; what is needed comes first.

        One that says the same as a known one of its stage is left out, or is that one, if it was
        retired.
        """
        found: dict[Stage, tuple[Criterion, ...]] = {}
        for stage in Stage:
            given: ProposedStage = getattr(self, stage.value)
            made = list[Criterion]()
            for items, positive in ((given.positive, True), (given.negative, False)):
                for item in items:
                    number = item.same_as if item.same_as in range(1, len(known) + 1) else None
                    its_stage, same, active = known[number - 1] if number else (None, None, False)
                    if same is None or its_stage is not stage:
                        made.append(item.criterion(positive=positive, persistent=persistent))
                    elif not active:
                        made.append(same)
            found[stage] = tuple(made)
        needed = (item.criterion(positive=True, persistent=True) for item in self.needed)
        return found | {Stage.ANSWER: (*needed, *found[Stage.ANSWER])}


Known = Sequence[tuple[Stage, Criterion, bool]]
"""the criteria that a proposer was shown, by their numbers, and whether each is in force"""
TITLE_CHARACTERS, DESCRIPTION_CHARACTERS = 200, 1000


class ChatProposer:
    """A `Proposer` over a chat server."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def contrast(
        self, trajectories: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> Proposed:
        """One call, or as many rounds as it takes to show all that must be shown.

        That is the runs' own text and what they cite: each round contrasts a part of the runs.
        """
        sight = sight_of(self._model, "".join(t.transcript() for t in trajectories))
        room = max(sight - len(buffer.question) - len(_list_known(buffer)[1]), 1)
        rounds = max(1, min(-(-needs(trajectories) // room), len(trajectories) // 2))
        found: list[Proposed] = []
        with Bill() as bill:
            for start in range(rounds):
                found.append(await self._contrast(trajectories[start::rounds], buffer, room))
                bill.usage += found[-1].usage
                buffer = add(buffer, found[-1].criteria, step, "a round")
        # By turns, since only the first few of a stage are taken.
        turns = {s: zip_longest(*(one.criteria.get(s, ()) for one in found)) for s in Stage}
        criteria = {s: tuple(c for some in each for c in some if c) for s, each in turns.items()}
        return Proposed(criteria, bill.usage)

    async def _contrast(
        self, runs: Sequence[Trajectory], buffer: RubricBuffer, room: int
    ) -> Proposed:
        shown = show(runs, room)
        read = enumerate(zip(shown.texts, shown.notes, strict=True), start=1)
        attempts = [f"Attempt {number}:\n{text}\n{note}".rstrip() for number, (text, note) in read]
        known, listed = _list_known(buffer)
        uncovered, told = not any(buffer.persistent.values()), list[str]()
        wanted = [prompt("needed")] if uncovered else []
        asked = (fence({"question": buffer.question}), shown.passages, *attempts, listed, *wanted)

        def check(proposal: Proposal) -> None:
            if not uncovered:
                proposal.needed.clear()
            elif not proposal.needed and not told:
                # Asked back once: without them the others are of use all the same.
                told.append('it gives no criteria of the question itself under "needed"')
                raise ValueError(told[0])

        messages = instruct("contrast", *asked)
        return await self._propose(messages, persistent=False, known=known, check=check)

    async def from_question(
        self, question: str, stages: Sequence[Stage] = ALL, found: Sequence[Source] = ()
    ) -> Proposed:
        """One call, which brings those of the other stages as well."""
        passages = found_text(found, sight_of(self._model))
        messages = instruct("question", fence({"question": question}), passages)
        return await self._propose(messages, persistent=True)

    async def _propose(
        self,
        messages: Sequence[Message],
        *,
        persistent: bool,
        known: Known = (),
        check: Callable[[Proposal], None] = lambda proposal: None,
    ) -> Proposed:
        proposal, usage = await ask_json(self._model, messages, Proposal, check=check)
        return Proposed(proposal.criteria(persistent=persistent, known=known), usage)


POINTS = {"absent": 0, "partly there": 1, "partly": 1, "fully there": 2, "fully": 2}
"""as the prompt words them"""
Points = Annotated[float, number_of(2), BeforeValidator(lambda s: POINTS.get(str(s).lower(), s))]


class GivenVerdict(Numbered):
    justification: str = Field(min_length=1)
    points: Points = Field(ge=0, le=2, json_schema_extra=WHOLE)


class ChatScorer:
    """A `Scorer` over a chat server."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name = model.name

    async def score(self, trajectory: Trajectory, standard: Standard, group: Runs = ()) -> Scored:
        count = sum(len(criteria) for criteria in standard.values())
        listed = f"Criteria:\n{_number_criteria(standard)}"
        room = sight_of(self._model, trajectory.transcript()) - len(trajectory.question + listed)
        # A stage without criteria is left out; what was found is needed in any case.
        stages = [stage for stage in Stage if stage in standard or stage is Stage.RESEARCH]
        shown = show([trajectory], room, stages, group=group)
        last = f"Now give your verdicts on criteria 1 to {count}."
        # What all runs of the question share comes first: servers keep a common beginning.
        asked = (fence({"question": trajectory.question}), listed, shown.passages, *shown.texts)
        names = [str(number) for number in range(1, count + 1)]
        messages = instruct("score", *asked, *shown.notes, last)
        entries = await ask_entries(self._model, messages, Verdicts[GivenVerdict], names)
        given, verdicts = iter(entries.found), dict[Stage, tuple[Verdict, ...]]()
        for stage, criteria in standard.items():
            found = [(c, next(given)) for c in criteria]
            # Runs are compared on the same criteria: a stage that lacks one is not scored.
            if all(one is not None for _, one in found):
                verdicts[stage] = tuple(
                    Verdict(criterion=c, points=one.points, justification=one.justification)
                    for c, one in found
                )
        return Scored(verdicts, entries.usage, entries.fault)


def _number_criteria(standard: Standard, before: int = 0) -> str:
    """Criteria with numbers that go on from stage to stage, as the model reads them."""
    lines, number = [], before
    for stage, criteria in standard.items():
        for criterion in criteria:
            number += 1
            flaw, said = "" if criterion.positive else " (flaw)", criterion.description
            if not said.startswith(criterion.title):
                said = f"{criterion.title}: {said}"
            lines.append(f"{number}. [{stage}]{flaw} {said}")
    return without_markers("\n".join(lines))


REMEMBERED = 12
"""retired criteria of a stage that a proposer is shown, the latest"""


def _list_known(buffer: RubricBuffer) -> tuple[Known, str]:
    """What a proposer must not repeat: the criteria in force and the retired ones, as a text."""
    force = {stage: buffer.criteria(stage) for stage in Stage}
    retired = {stage: buffer.retired.get(stage, ())[-REMEMBERED:] for stage in Stage}
    known = [(s, c, True) for s, criteria in force.items() for c in criteria]
    known += [(s, c, False) for s, criteria in retired.items() for c in criteria]
    listed = f"Criteria in force:\n{_number_criteria(force) or 'none'}"
    if gone := _number_criteria(retired, sum(map(len, force.values()))):
        listed += f"\n\nCriteria set aside, since the attempts did not differ in them:\n{gone}"
    return known, listed


STATEMENT_CHARACTERS = 600
TASKS = {
    Stage.PLAN: "understanding the question and laying out the work",
    Stage.RESEARCH: "searching well and adapting to what was found",
    Stage.REVIEW: "checking honestly what the evidence holds",
    Stage.ANSWER: "answering the question",
}


class ChoiceScorer:
    """A `Scorer` over a `ChoiceReader`: one text, and a question on each criterion after it."""

    prompt = "choice"

    def __init__(self, reader: ChoiceReader) -> None:
        self._series = ChoiceSeries(reader)
        self.name = reader.name

    async def score(self, trajectory: Trajectory, standard: Standard, group: Runs = ()) -> Scored:
        listed = [(stage, c) for stage, criteria in standard.items() for c in criteria]
        spans = [closest_span(statement(c), stage_text(trajectory, stage)) for stage, c in listed]
        questions = [
            self.question(trajectory, stage, statement(c), span)
            for (stage, c), span in zip(listed, spans, strict=True)
        ]
        shown = partial(self.shown, trajectory)
        chances, usage = await self._series.yes(self.prompt, shown, questions)
        verdicts: dict[Stage, tuple[Verdict, ...]] = dict.fromkeys(standard, ())
        for (stage, c), span, yes in zip(listed, spans, chances, strict=True):
            if (points := self.points(yes)) is not None:
                one = Verdict(criterion=c, points=points, justification=span, justified_by="code")
                verdicts[stage] += (one,)
        return Scored(verdicts, usage)

    def shown(self, trajectory: Trajectory, characters: int) -> str:
        question = fence({"question": trajectory.question})
        return f"{question}\n{render_run(trajectory, characters)}"

    def question(self, trajectory: Trajectory, stage: Stage, said: str, span: str) -> str:
        return criterion_question(stage, said, _describe_evidence(trajectory, stage, span))

    def points(self, yes: float) -> float | None:
        """Of a probability of Yes; None if it decides nothing."""
        return 2 * yes


def statement(criterion: Criterion) -> str:
    return cut(criterion.description or criterion.title, STATEMENT_CHARACTERS)


def quoted(span: str) -> str:
    return f'"{span}"' if span else "(no sentence speaks of it)"


def criterion_question(stage: Stage, statement: str, seen: str) -> str:
    """The short question that follows the trajectory; `seen`: what code found in the stage."""
    form = f"Does the statement hold of what the agent wrote in the {stage} stage? Yes or No?"
    return without_markers(
        f"Look at the {stage} stage ({TASKS[stage]}).\nStatement: {statement}\n{seen}\n{form}"
    )


def cites_of(text: str, known: Collection[str]) -> str:
    """Which sources a text cites, in words; `known`: the ids of those that were really found."""
    named = cited_in(text)
    real = [name for name in named if name in known]
    also = f", and {len(named) - len(real)} that were never found" if len(real) < len(named) else ""
    return f"{', '.join(real) or 'none'}{also}"


def _describe_evidence(trajectory: Trajectory, stage: Stage, span: str) -> str:
    """The sentence that comes closest, and what an answer cites.

    With the sentence the 0.5B put all of ten hand-made pairs in order, without it nine. Whether an
    answer cites anything the 1.5B did not see by itself.
    """
    said = f"The closest sentence there: {quoted(span)}"
    if stage is not Stage.ANSWER:
        return said
    known = {source.id for source in trajectory.sources}
    said += f"\nSources it cites: {cites_of(stage_text(trajectory, stage), known)}."
    checks = trajectory.verification.checks if trajectory.verification else ()
    doubted = sum(check.verdict == "unsupported" for check in checks)
    return f"{said}\nOf its {len(checks)} citations {doubted} do not hold." if doubted else said


RUNS = 4
"""shown beside one another"""
Kind = Literal["GOOD", "FLAW"]
Line = tuple[Kind, str]
KINDS: dict[Stage, tuple[Kind, ...]] = {
    Stage.PLAN: ("GOOD", "GOOD", "FLAW"),
    Stage.RESEARCH: ("GOOD", "GOOD"),
    Stage.REVIEW: ("GOOD", "GOOD"),
    Stage.ANSWER: ("GOOD", "GOOD", "GOOD", "FLAW"),
}
"""the lines that are asked for"""
LINE_CHARACTERS = 6000
"""of excerpts in one prompt, and never more than half the context"""
QUESTION_CHARACTERS = 1500
LINE_TOKENS = 48
LEAST_WORDS, MOST_WORDS = 3, 45
TITLE_WORDS = 8
FROM_QUESTION = "Write what good work on it says or does."
VERBS = {
    Stage.PLAN: ("Asks", "Names", "Looks up"),
    Stage.RESEARCH: ("Finds", "Searches for", "Notes"),
    Stage.REVIEW: ("Checks", "Names", "Admits"),
    Stage.ANSWER: ("Says", "Names", "Explains"),
}
"""how a line begins, so that it is a sentence about the text"""
LINE_TASKS = {
    Stage.PLAN: "the plan: understanding the question and laying out the work",
    Stage.RESEARCH: "the research: searching and using what was found",
    Stage.REVIEW: "the review: checking what the evidence holds and what is missing",
    Stage.ANSWER: "the answer: being right, complete and supported",
}
EXAMPLE_QUESTION = "What does os.replace do if the target exists?"
EXAMPLES = {
    Stage.PLAN: (
        "Asks what os.replace does to a target that exists.",
        "Looks up how os.replace differs from os.rename.",
        "Asks how files are copied.",
    ),
    Stage.RESEARCH: (
        "Searches for os.replace with a target that exists.",
        "Finds the passage on os.replace that speaks of existing targets.",
    ),
    Stage.REVIEW: (
        "Checks which passage says what os.replace does to a target that exists.",
        "Admits what the passages on os.replace leave open.",
    ),
    Stage.ANSWER: (
        "Says that os.replace overwrites a target file.",
        "Explains that os.replace is atomic.",
        "Names the platforms on which os.replace does so.",
        "Says that os.replace fails if the target exists.",
    ),
}
"""one for each of `KINDS`; every line has the question's own names in it, which a model copies"""
EXAMPLE_NAMES = words_in("os.replace os.rename atomic platforms overwrites target copied", "en")
_END = re.compile(r"[.!?](?=\s)|\n")


class LineProposer:
    """A `Proposer` over the embedded model."""

    def __init__(self, model: TokenPolicy) -> None:
        self._model = model

    async def contrast(
        self, trajectories: Sequence[Trajectory], buffer: RubricBuffer, step: int
    ) -> Proposed:
        chosen = trajectories[:RUNS]
        most = min(LINE_CHARACTERS, self._model.context_tokens * 3 // 2) // len(chosen)
        material = {
            stage: fence(
                {
                    f"attempt {number}": render_stage(trajectory, stage, most)
                    for number, trajectory in enumerate(chosen, start=1)
                }
            )
            + "\n\nSome attempts are stronger than others. Write what the stronger ones say or do "
            "that the weaker ones do not."
            for stage in Stage
            if any(is_written(trajectory, stage) for trajectory in chosen)
        }
        found = await self._all(buffer.question, material, persistent=False, step=step)
        if any(buffer.persistent.values()):
            return found
        asked = {Stage.ANSWER: FROM_QUESTION}
        own = await outcome(self._all(buffer.question, asked, persistent=True, step=-1))
        if not isinstance(own, Proposed):
            return Proposed(found.criteria, found.usage + usage_of_error(own))
        answer = own.criteria[Stage.ANSWER] + found.criteria.get(Stage.ANSWER, ())
        return Proposed({**found.criteria, Stage.ANSWER: answer}, found.usage + own.usage)

    async def from_question(
        self, question: str, stages: Sequence[Stage] = ALL, found: Sequence[Source] = ()
    ) -> Proposed:
        """It reads no passages: what it wrote with them was never measured."""
        material = dict.fromkeys(stages, FROM_QUESTION)
        return await self._all(question, material, persistent=True, step=0)

    async def _all(
        self, question: str, material: dict[Stage, str], *, persistent: bool, step: int
    ) -> Proposed:
        found = dict[Stage, tuple[Criterion, ...]]()
        with Bill() as bill:
            for stage, text in material.items():
                messages = _line_messages(question, stage, text)
                lines = await self._lines(messages, stage, f"{question}\0{stage}\0{step}", bill)
                if criteria := criteria_of(lines, question, text, persistent=persistent):
                    found[stage] = criteria
            if not found:
                raise JudgeError("the embedded model wrote no usable criterion")
        return Proposed(found, bill.usage)

    async def _lines(
        self, messages: Sequence[Message], stage: Stage, seed: str, bill: Bill
    ) -> list[Line]:
        """The stage's lines one by one, each a sentence that the model goes on from."""
        ids, lines = await self._model.render(messages), list[Line]()
        for number, kind in enumerate(KINDS[stage]):
            ids = (*ids, *await self._model.encode(f"{kind}:"))
            sampling = Sampling(
                max_tokens=LINE_TOKENS,
                temperature=0.3,
                min_p=0.05,
                dry=4,
                grammar=grammar(stage),
                seed=seed_of(seed, number),
            )
            reply = await self._model.complete(
                ids, sampling, lambda text: end.end() if (end := _END.search(text)) else None
            )
            bill.usage += reply.usage
            text = " ".join(reply.text.split())
            ids = (*ids, *await self._model.encode(f" {text}\n"))
            if reply.stop_reason in ("stop", "eos"):
                lines.append((kind, text))
        return lines


def grammar(stage: Stage) -> str:
    """One line that begins with a verb of the stage."""
    verbs = " | ".join(f'" {verb} "' for verb in VERBS[stage])
    return f'root ::= ({verbs}) [^\\n<>]* "\\n"'


def criteria_of(
    lines: Sequence[Line], question: str, material: str, *, persistent: bool
) -> tuple[Criterion, ...]:
    """The lines about the question, each once: one that shares no word with it speaks of any."""
    language = language_of(question)
    asked, found = words_in(question, language), dict[str, Criterion]()
    foreign = EXAMPLE_NAMES - asked - words_in(material, language)
    for kind, line in lines:
        words = line.split()
        content = words_in(" ".join(words[1:]), language)
        copied = content == asked or content & foreign
        if copied or not content & asked or not LEAST_WORDS <= len(words) <= MOST_WORDS:
            continue
        criterion = Criterion(
            title=" ".join(words[:TITLE_WORDS]),
            description=line,
            positive=kind == "GOOD",
            persistent=persistent,
        )
        found.setdefault(line.casefold(), criterion)
    return tuple(found.values())


def _line_messages(question: str, stage: Stage, material: str) -> list[Message]:
    """The stage's prompt, after one example of the same stage."""
    shown = zip(KINDS[stage], EXAMPLES[stage], strict=True)
    example = "\n".join(f"{kind}: {line}" for kind, line in shown)
    return [
        Message("system", prompt("lines")),
        Message("user", _line_request(EXAMPLE_QUESTION, stage, FROM_QUESTION)),
        Message("assistant", example),
        Message("user", _line_request(cut(question, QUESTION_CHARACTERS), stage, material)),
    ]


def _line_request(question: str, stage: Stage, material: str) -> str:
    return f"{fence({'question': question})}\n\nThe stage is {LINE_TASKS[stage]}.\n\n{material}"
