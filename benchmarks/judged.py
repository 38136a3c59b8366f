"""Does the reward see what a run is worth? Groups with a planted fault, and runs without any.

    python -m benchmarks.judged [--base-url URL] [--model NAME] [--sets SET ...] [--groups N]

40 groups of four runs on 20 subjects of our own (`benchmarks/data/judged`): three sound runs, and
one with a fault of one of six kinds. A stage judge bound by support scores them, as in collecting.
A fault is seen if the faulty run's advantage at its stage is below 0.

The judge is a script: it reads the prompt alone, and tells that prompts hold what a judge needs
and that the parts work together, not how well a model uses them. `Reader` doubts by the words that
passages share, so free words defeat it; `Understanding` knows what the sentences mean. `Credulous`
gives full points: what it sees, support alone has seen. Sound runs tell how often code is wrong.

A model that is named judges the first groups of each set, as in collecting; nothing else is
measured then. It is not told which run is faulty, and the place of that one differs. `--keep` keeps
its replies, so that a run that was ended goes on.
"""

import argparse
import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import Value, emit
from rubricem.agent.learning.scoring import (
    Support,
    bound_by_support,
    checked_by_rules,
    open_group_judge,
)
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import model_of
from rubricem.judge.build import Wanted, stage_judge
from rubricem.judge.evidence import measured
from rubricem.judge.stage_readers import ChatProposer
from rubricem.memory import schema
from rubricem.memory.language import words_in
from rubricem.memory.schema import Author, Criterion, RubricBuffer, Source, Stage, Trajectory
from rubricem.training.rows.credit import SS_GRPO
from tests.judge.test_evidence import Recording, long_group, sight
from tests.support.values import QUESTION

SUBJECTS = Path(__file__).parent / "data" / "judged" / "subjects.json"
SETS = {"": "subjects", "unseen_": "unseen", "more_": "unseen_more", "third_": "unseen_third"}
"""20 subjects, and 10, 10 and 8 in freer words. Each set was written before anything was measured
on it, and was seen when what is told was narrowed after it"""
AGAIN = json.loads(SUBJECTS.with_name("said_again.json").read_text(encoding="utf-8"))
"""claims in other words, which add nothing to them"""
Subject = Mapping[str, Any]
HONEST, WINDOW = 10, 131_072
"""sound runs of a subject; tokens of the judge's context"""


class Draft:
    """A sound run in parts, which a fault changes; source S(n + 1) holds the n-th fact found."""

    def __init__(self, subject: Subject, member: int) -> None:
        facts = subject["facts"]
        self.subject, self.member = subject, member
        self.facts = [facts[(member + n) % len(facts)] for n in range(len(facts))]
        topics = [fact["topic"] for fact in self.facts]
        self.plan = f"First {topics[0]}, then {', '.join(topics[1:])}; a passage for each."
        self.marks = [f"Tells {topic} [met: S{n}]" for n, topic in enumerate(topics, start=1)]
        told = [fact["claims"] for fact in self.facts]
        self.said = [claims[(member + n) % len(claims)] for n, claims in enumerate(told)]
        self.claims = [cite(n, claim) for n, claim in enumerate(self.said, start=1)]

    def run(self) -> Trajectory:
        sources = [
            source(n, fact["title"], fact["passage"]) for n, fact in enumerate(self.facts, start=1)
        ]
        items, marks = (
            "\n".join(f"- {mark.partition(end)[0]}" for mark in self.marks) for end in (" [", "\n")
        )
        analysis = f"<deep_analysis>It has {len(self.marks)} parts.</deep_analysis>"
        rest = f"<rubric>\n{items}\n</rubric><research_plan>{self.plan}</research_plan>"
        plan = f"<structured_plan>{analysis}{rest}</structured_plan>"
        review = f"<review><rubric_review>\n{marks}\n</rubric_review></review>"
        return run_of(self.subject, self.member, plan, sources, review, " ".join(self.claims))


def cite(name: int, claim: str) -> str:
    return f'<cite id="S{name}">{claim}</cite>.'


def source(name: int, title: str, text: str) -> Source:
    return Source(id=f"S{name}", title=title, location="x", text=text, tool="search", query="q")


def run_of(
    subject: Subject, member: int, plan: str, sources: Sequence[Source], review: str, answer: str
) -> Trajectory:
    shown = "".join(f'<snippet id="{s.id}">\n{s.title}\n{s.text}\n</snippet>\n' for s in sources)
    written = {
        Stage.PLAN: plan,
        Stage.RESEARCH: f"<tool_output>\n{shown}</tool_output>",
        Stage.REVIEW: review,
        Stage.ANSWER: f"<answer>{answer}</answer>",
    }
    tool = {Stage.RESEARCH: Author.TOOL}
    segments = [
        schema.Segment(author=tool.get(stage, Author.POLICY), stage=stage, turn=1, text=text)
        for stage, text in written.items()
    ]
    call = '<call_tool name="search">it</call_tool>'
    asked = schema.Segment(author=Author.POLICY, stage=Stage.RESEARCH, turn=1, text=call)
    segments.insert(1, asked)
    name = f"{subject['name']}-{member}"
    return Trajectory(
        id=name, thread=name, question=subject["question"], sources=tuple(sources),
        answer_format=schema.AnswerFormat.LONG, decoding=schema.Decoding.FREE,
        segments=tuple(segments), status=schema.Status.FINISHED, policy="written",
        started_at=datetime.now(UTC), seconds=1.0,
    )  # fmt: skip


def invent(draft: Draft) -> None:
    draft.claims[1:3] = [cite(2, draft.subject["invented"])]


def pad(draft: Draft) -> None:
    draft.claims += [cite(n, AGAIN[claim]) for n, claim in enumerate(draft.said, start=1)]


def stop_early(draft: Draft) -> None:
    draft.facts, draft.marks, draft.claims = draft.facts[:2], draft.marks[:2], draft.claims[:2]


def copy_question(draft: Draft) -> None:
    draft.plan, draft.marks = draft.subject["question"], [f"{draft.subject['question']} [met: S1]"]


def contradict(draft: Draft) -> None:
    draft.marks.append(f"Tells {draft.subject['open']} [missing]")
    draft.claims.append(f"{draft.subject['open_claim']}.")


def go_beyond(draft: Draft) -> None:
    draft.claims[2:4] = [cite(1, draft.subject["beyond"])]


FAULTS: Mapping[str, tuple[Stage, Callable[[Draft], None]]] = {
    "invented_citation": (Stage.ANSWER, invent),
    "padding": (Stage.ANSWER, pad),
    "early_stop": (Stage.RESEARCH, stop_early),
    "copied_question": (Stage.PLAN, copy_question),
    "contradicted_review": (Stage.ANSWER, contradict),
    "beyond_evidence": (Stage.ANSWER, go_beyond),
}
TITLES = {
    Stage.PLAN: ["Names what to find beyond the question's own words"],
    Stage.RESEARCH: ["Finds a passage for each part of the question"],
    Stage.REVIEW: ["Marks as met only by passages that were found"],
    Stage.ANSWER: ["Is held by what it cites", "Says each thing once", "Keeps to its review"],
}


def buffer_of(subject: Subject) -> RubricBuffer:
    """Criteria as a questions file gives them: general ones, and one for each part."""
    parts = [f"Tells {fact['topic']}" for fact in subject["facts"]]
    titles = {**TITLES, Stage.ANSWER: [*TITLES[Stage.ANSWER], *parts]}
    persistent = {
        stage: tuple(Criterion(title=t, description=t, persistent=True) for t in each)
        for stage, each in titles.items()
    }
    return RubricBuffer(question=subject["question"], persistent=persistent)


_PART = re.compile(r"\[(text [0-9a-f]+) ([^\]\n]+)\]\n(.*?)\n\[end of \1 \2\]", re.S)
_TAG = re.compile(r"<[^<>]*>")
_CITE = re.compile(r'<cite id="(\w+)">(.*?)</cite>', re.S)


def words(text: str) -> frozenset[str]:
    """Its words and numbers in a common form, without those that any text has."""
    return words_in(text, "en")


def shared(one: str, other: str) -> float:
    """Share of the words of one text that the other has."""
    return len(words(one) & words(other)) / max(len(words(one)), 1)


class Credulous:
    """A judge that gives everything full points, and proposes nothing."""

    name = "credulous"

    def __init__(self, context_tokens: int = WINDOW) -> None:
        self.context_tokens = context_tokens
        self.asked: list[str] = []

    async def chat(self, messages: Sequence[schema.Message], *_: Any) -> schema.Completion:
        said = messages[1].content
        self.asked.append("".join(message.content for message in messages))
        listed = said.partition("\nCriteria:\n")[2].partition("\n\n")[0]
        titles = [line.split("] ")[1].partition(":")[0] for line in listed.splitlines()]
        shown = {name: text for _, name, text in _PART.findall(said)}
        for own, name in re.findall(r"\b(S\d+) is (P\d+)", said.rpartition("[end of ")[2]):
            shown[f"passage {own}"] = shown.pop(f"passage {name}")
        verdicts = [
            {"number": n, "justification": "By what is shown.", "points": self.points(title, shown)}
            for n, title in enumerate(titles, start=1)
        ]
        return schema.Completion(
            json.dumps({"verdicts": verdicts} if verdicts else {"answer": {}}), "stop"
        )

    def points(self, title: str, shown: Mapping[str, str]) -> int:
        return 2


class Reader(Credulous):
    """A judge that compares the words of what is shown."""

    def points(self, title: str, shown: Mapping[str, str]) -> int:
        passages = {n.split()[1]: text for n, text in shown.items() if n.startswith("passage ")}
        plan, research, review, answer = (shown[stage] for stage in Stage)
        cited, marked = _CITE.findall(answer), re.findall(r"- (.*) \[(met|missing)(.*)\]", review)
        if title == TITLES[Stage.PLAN][0]:
            planned, known = words(_TAG.sub(" ", plan)), words(shown["question"])
            return 2 * (len(planned - known) > len(known))
        if title == TITLES[Stage.RESEARCH][0]:
            return min(2, research.count("<snippet ") // 2)
        if title == TITLES[Stage.REVIEW][0]:
            return 2 * all(
                name.strip(": ") in passages for _, kind, name in marked if kind == "met"
            )
        if title == "Is held by what it cites":
            return 2 * all(shared(claim, passages.get(name, "")) >= 0.6 for name, claim in cited)
        if title == "Says each thing once":
            pairs = ((one, other) for n, one in enumerate(cited) for other in cited[:n])
            return 2 * (not any(a == b and shared(x, y) >= 0.3 for (a, x), (b, y) in pairs))
        if title == "Keeps to its review":
            open_ = [item.removeprefix("Tells ") for item, kind, _ in marked if kind == "missing"]
            return 2 * (not any(shared(item, _CITE.sub("", answer)) >= 0.4 for item in open_))
        part = max(passages.values(), key=lambda text: shared(title[6:], text), default="")
        return 2 * any(shared(claim, part) >= 0.5 for _, claim in cited)


def plain(claim: str) -> str:
    """Without the marks of lists and emphasis."""
    return " ".join(re.findall(r"\w+", claim))


class Understanding(Reader):
    """A judge who knows what each sentence of a subject means, and checks the claims of a group."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        facts = enumerate(subject["facts"])
        self.subject = subject
        self.says = {plain(claim): n for n, fact in facts for claim in fact["claims"]}
        again = {plain(AGAIN[claim]): plain(claim) for claim in AGAIN}
        self.says |= {text: self.says[claim] for text, claim in again.items() if claim in self.says}

    async def chat(self, messages: Sequence[schema.Message], *_: Any) -> schema.Completion:
        claims = [text for _, name, text in _PART.findall(messages[1].content) if name == "claim"]
        if not claims:
            return await super().chat(messages)
        said = ("supported" if plain(claim) in self.says else "unsupported" for claim in claims)
        verdicts = [{"number": n, "verdict": verdict} for n, verdict in enumerate(said, start=1)]
        return schema.Completion(json.dumps({"verdicts": verdicts}), "stop")

    def points(self, title: str, shown: Mapping[str, str]) -> int:
        cited, facts = _CITE.findall(shown[Stage.ANSWER]), self.subject["facts"]
        told = [(name, self.says.get(plain(claim))) for name, claim in cited]
        if title == "Is held by what it cites":
            texts = ((shown.get(f"passage {name}", ""), fact) for name, fact in told)
            return 2 * all(n is not None and facts[n]["passage"] in text for text, n in texts)
        if title == "Says each thing once":
            return 2 * (len({fact for _, fact in told}) == len(told))
        if title == "Keeps to its review":
            open_ = f"{self.subject['open']} [missing]" in shown[Stage.REVIEW]
            return 2 * (not (open_ and self.subject["open_claim"] in shown[Stage.ANSWER]))
        parts = [f"Tells {fact['topic']}" for fact in facts]
        known = {fact for _, fact in told}
        return 2 * (parts.index(title) in known) if title in parts else super().points(title, shown)


class Group(NamedTuple):
    subject: Subject
    kind: str
    runs: tuple[Trajectory, ...]
    """the last is the faulty one"""


def groups_of(subjects: Sequence[Subject]) -> Iterator[Group]:
    """Two of each subject, of other drafts; the kinds of fault take turns."""
    for number, subject in enumerate([*subjects, *subjects]):
        kind = list(FAULTS)[number % len(FAULTS)]
        drafts = [Draft(subject, number // len(subjects) * 4 + member) for member in range(4)]
        FAULTS[kind][1](drafts[-1])
        yield Group(subject, kind, tuple(draft.run() for draft in drafts))


async def judged(
    model: Credulous, subject: Subject, runs: Sequence[Trajectory], by: Support = "rules"
) -> tuple[schema.Judgement, ...]:
    judge = bound_by_support(stage_judge(model), "stage", model, by)
    return (await judge_shuffled(judge, subject, runs)).judgements


async def judge_shuffled(
    judge: schema.GroupJudge, subject: Subject, runs: Sequence[Trajectory]
) -> schema.GroupJudgement:
    """The judgements in the order of the runs, which the judge is shown in another."""
    order = random.Random(runs[-1].id + runs[-1].transcript()).sample(range(len(runs)), len(runs))
    shown = tuple(runs[place] for place in order)
    group = schema.TrajectoryGroup(question=subject["question"], trajectories=shown)
    told = await judge.judge(group, buffer_of(subject))
    own = tuple(told.judgements[order.index(place)] for place in range(len(runs)))
    return told.model_copy(update={"judgements": own})


def below(judgements: Sequence[schema.Judgement], stage: Stage) -> bool:
    """Whether the last run's advantage at the stage is below 0."""
    return bool(SS_GRPO.advantages(judgements)[0][-1][list(Stage).index(stage)] < 0)


def count_lower(bound: Sequence[schema.Judgement], free: Sequence[schema.Judgement]) -> int:
    """In how many judgements a stage scores less than where nothing bounds it."""
    both = zip(bound, free, strict=False)
    return sum(any((a.score(s) or 0) < (b.score(s) or 0) for s in Stage) for a, b in both)


async def faults_seen(subjects: Sequence[Subject]) -> dict[str, Value]:
    seen, count, alone = Counter[str](), Counter[str](), Counter[str]()
    reader, lowered, lowered_too, seen_understood = Reader(), 0, 0, 0
    for subject, kind, runs in groups_of(subjects):
        stage = FAULTS[kind][0]
        scored = await judged(reader, subject, runs)
        free = await judged(Reader(), subject, runs, "off")
        count[kind] += 1
        seen[kind] += below(scored, stage)
        alone[kind] += below(await judged(Credulous(), subject, runs), stage)
        understood = await judged(Understanding(subject), subject, runs, "judge")
        free_too = await judged(Understanding(subject), subject, runs, "off")
        seen_understood += below(understood, stage)
        lowered += count_lower(scored[:-1], free)
        lowered_too += count_lower(understood[:-1], free_too)
    return {
        "faults_seen": seen.total() / count.total(),
        **{f"seen_{kind}": f"{seen[kind]} of {count[kind]}" for kind in FAULTS},
        **{f"support_alone_{kind}": f"{alone[kind]} of {count[kind]}" for kind in FAULTS},
        "sound_runs": 3 * count.total(),
        "sound_runs_lowered": lowered,
        "sound_runs_lowered_by_a_checker": lowered_too,
        "faults_seen_by_one_who_understands": seen_understood / count.total(),
        "calls_of_four": len(reader.asked) / count.total(),
        "tokens_in_of_four": sum(map(len, reader.asked)) // 4 // count.total(),
    }


def false_alarms(subjects: Sequence[Subject]) -> dict[str, Value]:
    """Of sound runs those of which code says anything: it tells faults alone."""
    runs = [Draft(subject, member).run() for subject in subjects for member in range(HONEST)]
    wrong = set[str]()
    for run in map(checked_by_rules, runs):
        if said := measured(run):
            print(f"untrue of {run.id}: {said}")
            wrong.add(run.id)
    return {"honest_runs": len(runs), "false_alarms": len(wrong) / len(runs)}


async def shown(window: int) -> tuple[float, float, int]:
    """Shares of plan, review and answer and of cited passages that a contrast shows; its calls."""
    runs, model = long_group(8, 10), Recording(window)
    await ChatProposer(model).contrast(runs, buffer_of({"question": QUESTION, "facts": []}), 0)
    prompts = [messages[1].content for messages in model.asked]
    return *sight(runs, prompts), len(prompts)


def read_sets() -> dict[str, list[Subject]]:
    files = {before: SUBJECTS.with_name(f"{name}.json") for before, name in SETS.items()}
    return {before: json.loads(p.read_text(encoding="utf-8")) for before, p in files.items()}


async def measure() -> dict[str, Value]:
    sets = read_sets()
    subjects, values = sets[""], dict[str, Value]()
    for before, each in sets.items():
        found = {**await faults_seen(each), **false_alarms(each)}
        values |= {before + name: value for name, value in found.items()}
    eight, model = [Draft(subjects[0], member).run() for member in range(8)], Reader()
    await judged(model, subjects[0], eight)
    for name, window in (("128k", WINDOW), ("32k", WINDOW // 4)):
        own, cited, calls = await shown(window)
        values |= {f"shown_own_{name}": own, f"shown_cited_{name}": cited, f"rounds_{name}": calls}
    return {**values, "calls_of_eight": len(model.asked)}


async def judge_group(judge: schema.GroupJudge, group: Group) -> dict[str, Any]:
    """What a real judge says of one group; a run is lowered where support bounds its score."""
    began, stage = time.monotonic(), FAULTS[group.kind][0]
    told = await judge_shuffled(judge, group.subject, group.runs)
    supports = [[s.components.get(schema.SUPPORT, 1) for s in j.stages] for j in told.judgements]
    usage = sum((one.usage for one in told.judgements), told.usage)
    row = {
        "subject": group.subject["name"], "kind": group.kind,
        "scores": [[one.score(stage) for stage in Stage] for one in told.judgements],
        "seen": below(told.judgements, stage), "notes": told.notes,
        "lowered": sum(min(each) < 1 for each in supports[:-1]),
        "calls": usage.calls, "tokens_in": usage.prompt_tokens,
        "tokens_out": usage.completion_tokens, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    return row


def values_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Value]:
    count = Counter(row["kind"] for row in rows)
    seen = Counter(row["kind"] for row in rows if row["seen"])
    scores = [score for row in rows for run in row["scores"] for score in run]
    cost = ("calls", "tokens_in", "tokens_out", "seconds")
    return {
        "groups": len(rows),
        "faults_seen": seen.total() / len(rows),
        **{f"seen_{kind}": f"{seen[kind]} of {of}" for kind, of in count.items()},
        "sound_runs_lowered": sum(row["lowered"] for row in rows),
        "unscored": scores.count(None),
        **{f"{name}_of_four": sum(row[name] for row in rows) / len(rows) for name in cost},
    }


async def measure_model(arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """By what stands before a set's values, a row for each group that the model judged."""
    flags = {"model": arguments.model, "base_url": arguments.base_url}
    choice, rows = model_of(load_settings(flags)), dict[str, list[dict[str, Any]]]()
    many = asyncio.Semaphore(choice.at_once)

    async def judge_in_turn(judge: schema.GroupJudge, group: Group) -> dict[str, Any]:
        async with many:
            return await judge_group(judge, group)

    async with open_group_judge(choice, Wanted(), arguments.keep) as judge:
        for before, subjects in read_sets().items():
            groups = [*groups_of(subjects)][: arguments.groups]
            if SETS[before] in arguments.sets:
                asked = (judge_in_turn(judge, group) for group in groups)
                rows[before] = await asyncio.gather(*asked)
    return rows


def emit_model(arguments: argparse.Namespace) -> None:
    rows = asyncio.run(measure_model(arguments))
    told = {before: values_of(each) for before, each in rows.items()}
    values = {before + name: told[before][name] for before in told for name in told[before]}
    least = {f"{before}faults_seen": 0.9 for before in told}
    most = {f"{before}sound_runs_lowered": 0.0 for before in told}
    how = f"judged by {arguments.model or 'the only model'}, claims checked by rules"
    emit("judged", values, how, arguments.out, [*rows.items()], least=least, most=most)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="scripts judge (the default)")
    parser.add_argument("--base-url", help="a server whose model judges")
    parser.add_argument("--model", help="its model, or the embedded one")
    parser.add_argument("--sets", nargs="+", choices=SETS.values(), default=[*SETS.values()])
    parser.add_argument("--groups", type=int, metavar="N", help="the first N of each set")
    parser.add_argument("--keep", type=Path, help="a folder for the model's replies")
    parser.add_argument("--out", type=Path, help="where to write what a model said (JSON)")
    arguments = parser.parse_args()
    if arguments.base_url or arguments.model:
        emit_model(arguments)
        return
    values = asyncio.run(measure())
    least = {"faults_seen": 0.9, "shown_own_128k": 0.95, "shown_cited_128k": 1.0}
    least |= {f"{each}faults_seen_by_one_who_understands": 0.9 for each in SETS}
    most = {f"{each}sound_runs_lowered": 0.0 for each in SETS} | {"calls_of_eight": 9}
    most |= {f"{each}false_alarms": 0.01 for each in SETS}
    how = "a scripted judge; tokens are characters / 4"
    emit("judged", values, how, least=least, most=most)


if __name__ == "__main__":
    main()
