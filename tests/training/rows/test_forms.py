"""`rubricem export` on a run: every form, read back, and what is told of it.

Conversations for imitation: what is accepted, what each message holds, where no loss stands.

Preference pairs: the best and the worst of a group, and the groups that have none.
"""

import asyncio
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.models.policy import as_response
from rubricem.agent.transcript.scaffold import Rule
from rubricem.memory.schema import (
    Author,
    CitationCheck,
    Judgement,
    Segment,
    Stage,
    Trajectory,
    Verification,
    read,
)
from rubricem.training.collect.directory import GroupRecord, RunDirectory
from rubricem.training.rounds.fit import read_rows
from rubricem.training.rows.compile import (
    Demonstration,
    ExportedConversation,
    JudgedGroup,
    imitation_row,
)
from rubricem.training.rows.forms import (
    LESS_SUPPORTED,
    TOO_FEW,
    TOO_NEAR,
    PreferencePair,
    TokenRow,
    preference_pair,
)
from rubricem.training.rows.row import TrainRow
from tests.support.collected import IDENTITY, Opened, judgement, manifest
from tests.support.policies import answer, plan
from tests.support.rows import policy_rows
from tests.support.values import BOUND, source, trajectory
from tests.training.rows.test_credit import ONE, TWO, Characters, group, rollout


def export(run: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["export", str(run), *arguments])


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--to", "sft"], ("no conversations: 3 left out, rejected by the rule no_answer",
                           "Collect more")),
        (["--to", "trl"], ("3 left out, the model to train, in whose ids", "--model")),
    ],
)  # fmt: skip
def test_nothing_to_export_is_an_error_with_its_reasons_and_what_helps(
    tmp_path: Path, flags: list[str], told: tuple[str, ...]
):
    run = committed(tmp_path / "run", settings={"model": "m", "base_url": "http://localhost:1"})
    before = set(run.iterdir())
    done = export(run, *flags)
    assert done.exit_code == 2 and all(one in done.stderr for one in told), done.stderr
    assert set(run.iterdir()) == before


def test_conversations_of_a_collected_run(tmp_path: Path):
    opened = Opened(tmp_path)
    asyncio.run(opened.collector().collect())
    opened.close()
    out = tmp_path / "c.jsonl"
    done = export(opened.run.folder, "--to", "sft", "--rule", "citation", "--out", str(out))
    made = [read(line, ExportedConversation) for line in lines(out)]
    runs = [c for c in made if c.kind == "run"]
    assert f"{len(made)} conversations ({len(made) - 6} reflections, 6 runs)" in done.stdout
    assert {c.trajectory for c in runs} == {t.id for t in opened.run.trajectories()}
    assert {c.question_id for c in runs} == {q.id for q in opened.run.questions()}
    assert all(c.score == c.stages[-1] and c.question and c.support is None for c in runs)
    assert [c.loss_mask for c in made if c.kind == "reflection"] == [(0, 0, 1)] * 3
    for flags, kept, why in (
        (["--best"], "3 runs", "3 dropped: another of its group has a higher return"),
        (["--min-return", "0.2"], "3 runs", "3 dropped: its return is below --min-return"),
        (["--min-support", "0.5"], "3 reflections", "6 dropped: none of its claims can be checked"),
    ):
        done = export(opened.run.folder, "--to", "sft", *flags, "--out", str(out))
        assert f"{kept})" in done.stdout and why in done.stdout, done.stdout


def test_pairs_are_written_and_groups_without_one_counted(tmp_path: Path):
    run = committed(tmp_path / "run")
    done = export(run, "--to", "pairs", "--credit", "answer-only")
    assert done.stdout.splitlines()[:2] == ["1 pairs", f"1 dropped: {TOO_FEW}"]
    (pair,) = (read(line, PreferencePair) for line in lines(run / "pairs.jsonl"))
    assert (pair.chosen_trajectory, pair.chosen_value) == ("two", 0.75)


@pytest.mark.parametrize(
    ("name", "written", "altered", "told"),
    [
        ("trajectories", '"id":"two"', '"id":"owt"', "lacks the trajectory two"),
        ("judgements", '"trajectory_id":"two"', '"trajectory_id":"owt"',
         "judges owt, which is in no group"),
    ],
)  # fmt: skip
def test_what_does_not_belong_to_a_groups_place_is_told(
    tmp_path: Path, name: str, written: str, altered: str, told: str
):
    run = committed(tmp_path / "run")
    path = run / f"{name}.jsonl"
    path.write_text(path.read_text().replace(written, altered))
    done = export(run, "--to", "pairs")
    assert done.exit_code == 1 and told in done.stderr


def test_an_export_that_breaks_off_leaves_the_one_before(tmp_path: Path):
    run = committed(tmp_path / "run")
    assert export(run).exit_code == 0
    rows = (run / "rows.jsonl").read_text()
    assert rows.count("\n") == 2
    path = run / "trajectories.jsonl"
    path.write_text(path.read_text().replace('"id":"three"', '"id":"eerht"'))
    before = set(run.iterdir())
    done = export(run)
    assert done.exit_code == 1 and "lacks the trajectory three" in done.stderr
    assert (run / "rows.jsonl").read_text() == rows and set(run.iterdir()) == before


def committed(folder: Path, **changed: object) -> Path:
    """A judged group of two, and one of a single rollout that was not judged."""
    run, three = RunDirectory(folder), rollout("three")
    run.begin(manifest(**changed), [])
    records = [
        GroupRecord(id="a", step=0, question_id="0", question="q", trajectories=("one", "two")),
        GroupRecord(id="b", step=0, question_id="1", question="q", trajectories=("three",)),
    ]
    judgements = [judgement(ONE, [0.5, 0.5, 0.5, 0.25]), judgement(TWO, [0.5, 0.5, 0.5, 0.75])]
    products = {"trajectories": [ONE, TWO, three], "groups": records, "judgements": judgements}
    run.commit(0, products)  # type: ignore[arg-type]
    return folder


FOUND = '\n<tool_output>\n<snippet id="S1">so</snippet>\n</tool_output>\n'
NOTE = "\n\nNo further search is possible.\n"


THOUGHT = r"<think>\n\1\n</think>\n\n"


def segment(author: Author, text: str, turn: int, **more: object) -> Segment:
    stage = Stage.RESEARCH if turn else None
    return Segment(author=author, stage=stage, turn=turn, text=text, **more)  # type: ignore[arg-type]


def run(said: str = 'It <cite id="S1">grows without bound</cite>.', **more: object) -> Trajectory:
    segments = (
        segment(Author.PROMPT, "The question.", 0),
        segment(Author.POLICY, plan(), 1),
        segment(Author.TOOL, FOUND, 1),
        segment(Author.PROMPT, NOTE, 1),
        segment(Author.POLICY, "<answer>broken", 2, kept=False),
        segment(Author.POLICY, answer(said), 2),
    )
    fields = {"segments": segments, "system": "Be good.", "sources": (source(1, BOUND),), **more}
    return trajectory().model_copy(update=fields)


def accepted(one: Trajectory, *rules: Rule) -> ExportedConversation:
    made = ExportedConversation.of(one, rules)
    assert isinstance(made, ExportedConversation), made
    return made


def test_a_conversation_has_what_others_wrote_in_turns_of_its_own_and_out_of_the_loss():
    made = accepted(run())
    assert [m.role for m in made.messages] == ["system", "user", "assistant", "tool", "assistant"]
    said = answer('It <cite id="S1">grows without bound</cite>.')
    written = ["Be good.", "The question.", plan(), (FOUND + NOTE).strip(), said]
    written = [re.sub("<think>(.*?)</think>\n", THOUGHT, text) for text in written]
    assert [m.content for m in made.messages] == written
    assert made.loss_mask == (0, 0, 1, 0, 1)


async def test_a_conversation_gives_the_row_of_its_trajectory():
    row = await imitation_row(run(), Characters())
    assert isinstance(row, TrainRow)
    shown = Demonstration.of(run())
    assert (shown.system, shown.user) == ("Be good.", "The question.")
    first, found, last = (turn.content for turn in shown.turns)
    said = [(f"{first}\3", 1), (as_response(found), 0), (f"{last}\3", 1)]
    assert list(row.ids[row.prompt_tokens :]) == [ord(c) for text, _ in said for c in text]
    own = [on for text, on in said for _ in text]
    assert list(row.loss_mask[row.prompt_tokens :]) == own
    labels = TokenRow.of(row).labels
    assert "".join(chr(i) for i in labels if i >= 0) == f"{first}\3{last}\3"


def test_citations_are_looked_at_where_it_is_asked_for():
    unknown = run('It <cite id="S7">grows without bound</cite>.')
    assert isinstance(ExportedConversation.of(unknown), ExportedConversation)
    assert ExportedConversation.of(unknown, [Rule.CITATION]) == "rejected by the rule citation"
    wrong = run('It <cite id="S1">holds 999 calls by default</cite>.')
    assert isinstance(ExportedConversation.of(wrong, [Rule.CITATION]), ExportedConversation)
    assert ExportedConversation.of(wrong, [Rule.SUPPORT]) == "rejected by the rule support"
    held = '<cite id="S1">If maxsize is None the cache grows without bound.</cite>'
    accepted(run(held), Rule.SUPPORT, Rule.CITATION, Rule.ALL_SUPPORT)
    mixed = run(f'{held} <cite id="S1">It holds 48,231 calls by default.</cite>')
    accepted(mixed, Rule.SUPPORT)
    refused = "rejected by the rule all-support"
    reworded = run(f'{held} <cite id="S1">Without a limit, entries pile up.</cite>')
    for one in (mixed, reworded):
        assert ExportedConversation.of(one, [Rule.ALL_SUPPORT]) == refused
    # What a model found of the claims, where the run carries it, comes before the rules.
    check = CitationCheck(source="S1", claim=BOUND.split(".")[0] + ".", verdict="unsupported")
    doubted = Verification(mode="mark", checker="a model", checks=(check,))
    checked = run(held).model_copy(update={"verification": doubted})
    assert ExportedConversation.of(checked, [Rule.SUPPORT]) == "rejected by the rule support"


MEMBERS = [rollout("one"), rollout("two"), rollout("three")]


def judged(*scores: list[float | None], members: list[Trajectory] | None = None) -> JudgedGroup:
    chosen = (members or MEMBERS)[: len(scores)]
    record = GroupRecord(
        id="s000-q000", step=2, question_id="q7", question="q", rubric_version="1-abc",
        trajectories=tuple(t.id for t in chosen),
    )  # fmt: skip
    each: list[Judgement] = [judgement(t, s) for t, s in zip(chosen, scores, strict=True)]
    return JudgedGroup(record, group(*chosen), tuple(each))


def pair(*arguments: object, **more: object) -> PreferencePair:
    made = preference_pair(*arguments, **more)  # type: ignore[arg-type]
    assert isinstance(made, PreferencePair), made
    return made


def test_the_best_and_the_worst_by_the_return_of_their_first_stage():
    # 0.5 + 0.4 * 0.5 + 0.6 * 0.5 + 0.8 * answer: 1.0 + 0.8 * answer
    made = pair(judged([0.5, 0.5, 0.5, 0.25], [0.5, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 0.5]))
    assert (made.chosen_trajectory, made.rejected_trajectory) == ("two", "one")
    assert (made.chosen_value, made.rejected_value) == (pytest.approx(1.8), pytest.approx(1.2))
    assert (made.id, made.step, made.question_id, made.judge) == ("s000-q000", 2, "q7", "fake")
    assert [m.content for m in made.prompt] == ["s", "question"]
    assert made.chosen[0].role == "assistant" and made.chosen[0].content == "ab"
    assert [m.role for m in made.chosen] == ["assistant", "tool", "assistant"]


def test_who_lacks_a_return_is_in_no_pair_and_near_ones_are_none():
    some = judged([0.5, 0.5, 0.5, None], [0.5, 0.5, 0.5, 0.1], [0.5, 0.5, 0.5, 0.9])
    assert pair(some).rejected_trajectory == "two"
    assert preference_pair(some, IDENTITY) == TOO_NEAR
    assert preference_pair(judged([0.5] * 4, [None] * 4)) == TOO_FEW
    assert preference_pair(judged()) == TOO_FEW
    assert preference_pair(judged([0.5] * 4, [0.5] * 4)) == TOO_NEAR


def test_the_better_of_a_pair_is_no_less_supported_than_the_worse():
    """As a judge without support scored them: the first cites what its source does not say."""
    texts = ('<cite id="S1">It "never drops a call, however many it holds".</cite>',
             '<cite id="S1">If maxsize is None the cache grows without bound.</cite>')  # fmt: skip
    wrong, right = (run(text).model_copy(update={"id": text[-30:]}) for text in texts)
    high, low = [0.5, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 0.2]
    assert preference_pair(judged(high, low, members=[wrong, right])) == LESS_SUPPORTED
    assert pair(judged(low, high, members=[wrong, right])).chosen_trajectory == right.id


def test_groups_of_two_files_that_are_called_alike_are_two(tmp_path: Path):
    rows = policy_rows(2)
    lines = [row.model_dump_json() for row in rows]
    other = [r.model_copy(update={"id": f"{r.id}'"}).model_dump_json() for r in rows]
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path, written in zip(paths, (lines, other), strict=True):
        path.write_text("\n".join(written) + "\n", encoding="utf-8")
    found, groups = read_rows(paths), {row.group for row in rows}
    assert found[: len(rows)] == rows
    assert {row.group for row in found[len(rows) :]} == {f"1:{group}" for group in groups}
