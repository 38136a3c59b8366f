"""`rubricem judge`: scores answered questions, stage by stage, on rubrics of the question.

`rubricem judge eval` measures how good a judge is on labelled data: with a model, or from recorded
verdicts. `rubricem judge rubrics` manages the criteria of questions: `from-search` makes them from
search results, `make` makes a checklist from a good answer; both kinds are persistent and made
before any run of the question is judged. Others are changed by hand.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, get_args

import click

from rubricem.agent.cli.options import (
    AS_JSON,
    EXISTING,
    FILE,
    JUDGE_FLAGS,
    ONLY_JSON,
    CommandGroup,
    judge_flags,
    one_of,
    print_json,
    read_text,
    setting_flags,
)
from rubricem.agent.learning.scoring import (
    Judgeable,
    find_run,
    keep_standards,
    open_group_judge,
    resolve_judge,
)
from rubricem.agent.models.opening import PolicyChoice
from rubricem.agent.settings import Settings, load_settings
from rubricem.agent.settings.door import model_of, setup_of, stores_of
from rubricem.agent.transcript.question import check_question
from rubricem.judge.build import Kind, checklist_judge, stage_judge
from rubricem.judge.checklist import Made, with_items
from rubricem.judge.evaluation.data import (
    LabelledComparison,
    LabelledData,
    LabelledMark,
    read_comparisons,
    read_labelled,
    read_marks,
)
from rubricem.judge.evaluation.report import (
    CriteriaReport,
    ListedReport,
    PairReport,
    Report,
    shares_of,
)
from rubricem.judge.evaluation.run import (
    ComparerKind,
    Orders,
    VerdictFile,
    compare_all,
    comparer_of,
    items_of,
    mark_all,
    sample,
    tasks_of,
)
from rubricem.judge.stage import FirstRubrics
from rubricem.memory.errors import JudgeError, SettingsError
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.runs import write_atomically
from rubricem.memory.schema import Criterion, GroupJudgement, RubricBuffer, Stage
from rubricem.memory.text import one_line, pluralise, printable


@click.group(cls=CommandGroup)
def judge() -> None:
    """Score runs stage by stage."""


@judge.command("eval")
@click.argument("data", type=EXISTING)
@click.option("--judge", "kind", type=click.Choice(get_args(ComparerKind)))
@click.option(
    "--recorded", metavar="FILE", type=EXISTING, help="Score these verdicts; ask no model."
)
@one_of(
    "--orders",
    kinds=get_args(Orders),
    said="Show each pair in both orders, or in one drawn by the seed.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Judge only this many rows, drawn by the seed."
)
@click.option("--seed", type=int, help="Seed of the draws.  [default: 0]")
@click.option(
    "--out", metavar="FILE", type=FILE, help="Store verdicts here; continue from those there."
)
@click.option("--plot", metavar="FILE", type=FILE, help="Draw the shares into an SVG file.")
@setting_flags("model", "base_url")
@ONLY_JSON
def evaluate(
    data: Path,
    kind: ComparerKind | None,
    recorded: Path | None,
    orders: Orders,
    limit: int | None,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Measure a judge on DATA, a .json or .jsonl file of labelled answers.

    It reads pairs of LLMBar, JudgeBench, RewardBench (prompt, chosen, rejected) and RM-Bench (three
    of each); and for the checklist judge HealthBench's rows with a completion, or with its
    physicians' labels. Shares come with 95% intervals.
    """
    report: Report
    if recorded is not None:
        report = report_verdicts(data, recorded)
    elif kind is not None:
        settings = load_settings(flags)

        def tell(done: int, total: int) -> None:
            # A line that is written over, for who watches; a log would keep one for each verdict.
            if sys.stderr.isatty():
                click.echo(f"\r{done} of {total} verdicts", nl=done == total, err=True)

        asked = run_judge(model_of(settings), data, kind, orders, limit, settings.seed, out, tell)
        report = asyncio.run(asked)
    else:
        raise SettingsError("No judge is named.", "Add --judge pairwise, or --recorded FILE.")
    if plot is not None:
        from rubricem.agent.reports.page import fill_template

        told = {"title": f"{report.judge} on {report.data}", "rows": shares_of(report)}
        write_atomically(plot, fill_template("rubricem.agent.reports", "share_figure.svg", **told))
    if as_json:
        click.echo(report.model_dump_json())
        return
    from rubricem.agent.reports.display import print_judge_eval as print_report

    print_report(report)
    if plot is not None:
        click.echo(f"drawn in {plot}")


@judge.command()
@click.argument("run")
@one_of(
    "--judge",
    "kind",
    kinds=get_args(Kind),
    said="Stages; or runs, or their stages, against one another; or answers in pairs, or by items.",
)
@judge_flags
@click.option("--no-cache", is_flag=True, help="Repeat calls whose replies are stored.")
@click.option("--seed", type=int, help="Seed of the order in which runs are shown.  [default: 0]")
@setting_flags("model", "base_url")
@ONLY_JSON
def score(
    run: str,
    kind: Kind,
    no_cache: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Score RUN: a thread, a trajectory's .json file, or the folder of a collected run.

    The verdicts are kept beside the trajectory in judgement.json, the rubrics of each question
    in the data directory, and there in replies/ what a model replied: scoring the same again
    costs nothing.
    """
    judging = {name: flags.pop(name) for name in JUDGE_FLAGS}
    settings, gate = load_settings(flags), judging.pop("gated")
    found = find_run(run, settings.data_dir)
    wanted = resolve_judge(kind, judging, settings.data_dir, settings.seed)
    choice, stores = model_of(settings), stores_of(settings)
    replies = None if no_cache else stores.data_dir / "replies"

    async def judge_it() -> list[GroupJudgement]:
        bank = stores.open_bank() if kind == "stage" else None
        async with open_group_judge(choice, wanted, replies, gate=gate) as judge:
            return await found.score(judge, stores, bank)

    _show_judgement(found, asyncio.run(judge_it()), as_json)


@judge.command("messages")
@click.argument("file", type=EXISTING)
@click.option("--rubric", type=EXISTING, metavar="FILE", help="Standards in place of the default.")
@click.option("--both-orders", is_flag=True, help="Show each group twice.")
@click.option("--seed", type=int, help="Seed of the order in which they are shown.  [default: 0]")
@setting_flags("model", "base_url")
@ONLY_JSON
def messages_(
    file: Path, rubric: Path | None, both_orders: bool, as_json: bool, **flags: Any
) -> None:
    """Score conversations in FILE against one another (RULER), whatever agent held them.

    A line is {"messages": [...], "tools": [...], "group": "..."} as OpenAI's interface has them;
    lines without a group belong together where they begin with the same system prompt and question.
    """
    from rubricem.judge.buffers import json_rows
    from rubricem.judge.build import attempt_reader
    from rubricem.judge.relative import RelativeJudge, conversation_groups

    settings = load_settings(flags)
    groups = list(conversation_groups(json_rows(read_text(file), str(file))))
    standards = keep_standards(rubric, settings.data_dir) if rubric else ""
    found: list[dict[str, Any]] = []

    async def judge_them() -> None:
        async with model_of(settings).open_judge() as model:
            reader = attempt_reader(model, standards)
            relative = RelativeJudge(reader, 2 if both_orders else 1)
            for number, (places, conversations, tools) in enumerate(groups, start=1):
                scored = await relative.scores_of_messages(conversations, tools, settings.seed)
                for place, one in zip(places, scored.scores, strict=True):
                    said = one.justification or one.unscored_reason
                    row = {"line": place + 1, "group": number, "score": one.score, "said": said}
                    found.append(row | {"notes": list(scored.notes)})

    asyncio.run(judge_them())
    if as_json:
        print_json({"scores": sorted(found, key=lambda row: row["line"])})
        return
    for row in sorted(found, key=lambda row: row["line"]):
        known = "unscored" if row["score"] is None else f"{row['score']:.2f}"
        click.echo(f"line {row['line']}  group {row['group']}  {known}  {one_line(row['said'])}")
    for note in dict.fromkeys(note for row in found for note in row["notes"]):
        click.echo(f"note: {note}", err=True)


def _show_judgement(found: Judgeable, judged: list[GroupJudgement], as_json: bool) -> None:
    if as_json:
        groups = [group.model_dump(mode="json") for group in judged]
        click.echo(json.dumps({"file": str(found.file), "groups": groups}, ensure_ascii=False))
        return
    from rubricem.agent.reports.display import print_judgement

    for group, result in zip(found.groups, judged, strict=True):
        for trajectory, judgement in zip(group.trajectories, result.judgements, strict=True):
            print_judgement(trajectory, judgement)
        for note in result.notes:
            click.echo(f"note: {note}", err=True)
    click.echo(f"kept in {found.file}")


Told = Callable[[int, int], None]
"""how many verdicts there are, of how many"""


def report_verdicts(data: Path, recorded: Path) -> Report:
    """What verdicts recorded on this data say."""
    held = read_labelled(data)
    if held.pairs:
        comparisons = read_comparisons(recorded, held.pairs)
        judge = next(filter(None, (c.judge for c in comparisons)), recorded.stem)
        return PairReport.of(data.name, judge, held.pairs, comparisons)
    marks = read_marks(recorded, _mark_names(held))
    judge = next(filter(None, (mark.judge for mark in marks)), recorded.stem)
    return _report_marks(data, judge, held, marks)


async def run_judge(
    choice: PolicyChoice,
    data: Path,
    kind: ComparerKind,
    orders: Orders = "both",
    limit: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    told: Told = lambda done, total: None,
) -> Report:
    """What a judge says of this data now; verdicts kept in `out` are not asked for again.

    Raises JudgeError where not one verdict could be had.
    """
    held = await asyncio.to_thread(read_labelled, data)
    if not held.pairs and kind != "checklist":
        raise SettingsError(
            f"{data} holds single answers with criteria, and the {kind} judge compares answers.",
            "Name data with pairs of answers, or use --judge checklist.",
        )
    async with choice.open_judge() as model:
        if held.pairs:
            comparer = comparer_of(kind, model, choice.chain)
            kept = VerdictFile(out, f"{kind}, {comparer.name}")
            pairs = sample(held.pairs, limit, seed)
            names = {pair.id for pair in pairs}
            compared = [c for c in kept.comparisons(held.pairs) if c.pair in names]
            tasks = tasks_of(pairs, orders, seed, compared)
            tell = _keep_verdicts(kept, told, len(compared), len(tasks))
            compared += await compare_all(comparer, tasks, choice.at_once, lambda c: tell([c]))
            _check_any([c.winner is not None for c in compared], [c.reason for c in compared])
            return PairReport.of(data.name, kept.judge, pairs, compared)
        checker = checklist_judge(model).checker
        kept = VerdictFile(out, f"checklist, {checker.name}")
        chosen = sample(held.checkable, limit, seed)
        names = {name for one in chosen for name, _ in items_of(one)}
        marks = [mark for mark in kept.marks(_mark_names(held)) if mark.item in names]
        known = {mark.item for mark in marks}
        left = [one for one in chosen if any(name not in known for name, _ in items_of(one))]
        tell = _keep_verdicts(kept, told, len(marks), sum(len(list(items_of(o))) for o in left))
        marks += await mark_all(checker, left, choice.at_once, tell)
        _check_any([mark.met is not None for mark in marks], [mark.reason for mark in marks])
        return _report_marks(data, kept.judge, held, list({m.item: m for m in marks}.values()))


def _keep_verdicts(
    kept: VerdictFile, told: Told, done: int, left: int
) -> Callable[[Sequence[LabelledComparison] | Sequence[LabelledMark]], None]:
    """Keeps verdicts, and tells how many there are beside those that were done before."""
    count = itertools.count(done + 1)

    def keep(verdicts: Sequence[LabelledComparison] | Sequence[LabelledMark]) -> None:
        for verdict in verdicts:
            kept.add(verdict)
            told(next(count), done + left)

    return keep


def _report_marks(
    data: Path, judge: str, held: LabelledData, marks: Sequence[LabelledMark]
) -> CriteriaReport | ListedReport:
    if held.criteria:
        return CriteriaReport.of(data.name, judge, held.criteria, marks)
    return ListedReport.of(data.name, judge, held.answers, marks)


def _mark_names(held: LabelledData) -> list[str]:
    return [name for one in held.checkable for name, _ in items_of(one)]


def _check_any(had: Sequence[bool], reasons: Sequence[str]) -> None:
    if had and not any(had):
        raise JudgeError(f"There was no verdict. {reasons[-1]}")


@judge.group(cls=CommandGroup)
def rubrics() -> None:
    """Look up, move and change the rubrics of questions.

    A QUESTION is its text or the beginning of its id, a CRITERION the beginning of its key.
    """


@rubrics.command("from-search")
@click.argument("question", nargs=-1)
@click.option("--no-search", is_flag=True, help="Make them from the question alone.")
@setting_flags("source", "model", "base_url")
def from_search(question: tuple[str, ...], no_search: bool, **flags: Any) -> None:
    """Make criteria for each stage of QUESTION from what a search finds; they are kept for good."""
    settings, asked = load_settings(flags), check_question(" ".join(question))
    store, setup = _store(settings), setup_of(settings)

    async def make_them() -> FirstRubrics:
        async with AsyncExitStack() as stack:
            search = None
            if not no_search:
                search = await stack.enter_async_context(setup.over_whole_sources().open_sources())
            model = await stack.enter_async_context(setup.model.open_judge())
            return await FirstRubrics.propose(
                store.load(asked), stage_judge(model).proposer, search
            )

    made = asyncio.run(make_them())
    store.save(made.buffer)
    for change in made.buffer.history:
        click.echo(f"{change.stage:9} {one_line(change.criterion.description)}")
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"{len(made.buffer.history)} criteria, after {made.passages} passages")


@rubrics.command()
@click.argument("question")
@click.option(
    "--answer",
    type=EXISTING,
    metavar="FILE",
    help="A good answer to go by; else the model writes one first.",
)
@setting_flags("model", "base_url")
def make(question: str, answer: Path | None, **flags: Any) -> None:
    """Write a checklist with points for the answer to QUESTION, which is never pruned."""
    if not question.strip():
        raise SettingsError("The question is empty.", "Name what is to be answered.")
    good = read_text(answer) if answer else ""
    if answer and not good.strip():
        raise SettingsError(f"{answer} is empty.", "Leave out --answer: then one is written.")
    settings = load_settings(flags)
    store = _store(settings)
    before = store.load(question)

    async def make_it() -> Made:
        async with model_of(settings).open_judge() as model:
            return await checklist_judge(model).maker.make(question, good)

    source = "the question and an answer" if good else "the question"
    after = with_items(before, asyncio.run(make_it()).items, f"a checklist from {source}")
    store.save(after)
    for change in after.history[len(before.history) :]:
        sign = "" if change.criterion.positive else "-"
        click.echo(f"{sign}{change.criterion.weight:.2g}  {one_line(change.criterion.description)}")
    click.echo(f"{len(after.history) - len(before.history)} new")


@rubrics.command("list")
@AS_JSON
def list_(as_json: bool) -> None:
    """List every question that has rubrics, and how many."""
    rows = []
    for buffer in _store().all():
        shelves = (buffer.persistent, buffer.active, buffer.retired)
        kept, active, retired = (sum(map(len, shelf.values())) for shelf in shelves)
        counts = {"persistent": kept, "active": active, "retired": retired}
        about = {"id": buffer.id, "question": buffer.question, "version": buffer.label}
        rows.append(about | counts)
        facts = f"version {buffer.version}: {kept} kept, {active} active, {retired} retired"
        if not as_json:
            click.echo(f"{buffer.id[:8]}  {facts}  {one_line(buffer.question)}")
    print_json({"rubrics": rows}) if as_json else click.echo(pluralise(len(rows), "question"))


@rubrics.command()
@click.argument("question")
@click.option("--version", help="As it was: a number, or the version that a judgement names.")
@AS_JSON
def show(question: str, version: str | None, as_json: bool) -> None:
    """Show the rubrics of QUESTION, or the standards of a relative judge by their name."""
    if (standards := _standards(question)) is not None:
        print_json({"standards": standards}) if as_json else click.echo(printable(standards))
        return
    buffer = _at(_store().find(question), version)
    if as_json:
        print_json(buffer.model_dump(mode="json"))
        return
    click.echo(f"{buffer.id[:8]}  version {buffer.label}  {one_line(buffer.question)}")
    shelves = {"kept": buffer.persistent, "active": buffer.active, "retired": buffer.retired}
    for stage in Stage:
        for name, shelf in shelves.items():
            for criterion in shelf.get(stage, ()):
                click.echo(f"{stage:9}{name:10} {_line(criterion)}")


@rubrics.command()
@click.argument("question")
@AS_JSON
def history(question: str, as_json: bool) -> None:
    """Tell every change of the rubrics of QUESTION, the latest last."""
    changes = _store().find(question).history
    if as_json:
        print_json({"history": [change.model_dump(mode="json") for change in changes]})
        return
    for change in changes:
        what = f"version {change.version:3}  {change.stage:9}{change.kind:9}"
        click.echo(f"{what} {_line(change.criterion)}")
        click.echo(f"             step {change.step}: {one_line(change.reason)}")


@rubrics.command()
@click.argument("questions", nargs=-1)
@click.option("--out", type=FILE, help="Else it is printed.")
def export(questions: Sequence[str], out: Path | None) -> None:
    """Write the rubrics of QUESTIONS, or of all, with their history: one JSON object a line."""
    store = _store()
    buffers = [store.find(name) for name in questions] or list(store.all())
    text = "".join(buffer.model_dump_json() + "\n" for buffer in buffers)
    if out is None:
        click.echo(text, nl=False)
        return
    write_atomically(out, text)
    click.echo(f"{len(buffers)} exported to {out}")


@rubrics.command("import")
@click.argument("file", type=EXISTING)
def import_(file: Path) -> None:
    """Bring in rubrics from FILE: an export, DR Tulu's rows, or HealthBench's.

    Those of others become criteria of the answer that are never pruned. Nothing is imported of
    a file with an unreadable row.
    """
    from rubricem.judge.buffers import FoundRubrics, bring_in

    store, count = _store(), 0
    for found in list(FoundRubrics.all_in(read_text(file))):
        stored = store.load(found.question)
        fresh = found.buffer if not stored.version else None
        changed = fresh or bring_in(stored, found.criteria, f"imported from {file.name}")
        store.save(changed)
        count += len(changed.history) - len(stored.history)
    click.echo(f"{pluralise(count, 'change')} from {file}")


@rubrics.command()
@click.argument("question")
@click.argument("criterion")
def pin(question: str, criterion: str) -> None:
    """Keep a CRITERION of QUESTION for good; one that was retired comes back."""
    from rubricem.judge.buffers import pin as pinned

    _save(pinned(_store().find(question), criterion))


@rubrics.command()
@click.argument("question")
@click.argument("criterion")
@click.option("--reason", default="", help="Kept in the history.")
def retire(question: str, criterion: str, reason: str) -> None:
    """Retire a CRITERION of QUESTION, even a permanent one."""
    from rubricem.judge.buffers import retire as retired

    _save(retired(_store().find(question), criterion, reason))


def _store(settings: Settings | None = None) -> BufferStore:
    return BufferStore((settings or load_settings()).data_dir / "buffers")


def _save(buffer: RubricBuffer) -> None:
    _store().save(buffer)
    change = buffer.history[-1]
    click.echo(f"{change.kind}: {_line(change.criterion)}")


def _standards(name: str) -> str | None:
    """The text that a relative judge's version names, or None."""
    from rubricem.judge.base import prompt
    from rubricem.judge.relative import version_of

    for built_in in ("relative_rubric", "relative_choice"):
        if name == version_of(prompt(built_in)):
            return prompt(built_in)
    path = load_settings().data_dir / "standards" / f"{name}.md"
    is_one = name.startswith("relative-") and name.replace("-", "").isalnum()
    return path.read_text(encoding="utf-8") if is_one and path.is_file() else None


def _at(buffer: RubricBuffer, version: str | None) -> RubricBuffer:
    """The buffer at a version; a whole label must name the criteria that were in force then."""
    if version is None:
        return buffer
    number = version.partition("-")[0]
    if not number.isdecimal() or int(number) > buffer.version:
        raise SettingsError(
            f"{version!r} is no version of these rubrics.", f"The latest is {buffer.version}."
        )
    earlier = buffer.at(int(number))
    if "-" in version and earlier.label != version:
        raise SettingsError(
            f"Version {number} of these rubrics was {earlier.label}, not {version}.",
            "They were never saved, or belong to another question.",
        )
    return earlier


def _line(criterion: Criterion) -> str:
    sign = "" if criterion.positive else "-"
    said = one_line(criterion.description or criterion.title)
    return f"{criterion.key}  {sign}{criterion.weight:.2g}  {said}"
