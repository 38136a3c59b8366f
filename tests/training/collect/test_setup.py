"""The judges of a collecting run by name: kinds, rubrics of one's own, and what is none.

Collecting on a server that speaks in token ids: rows that a policy gradient can be formed of.

The embedded model collected from in free mode: what a trainer needs of it is there.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rubricem.agent.cli import main
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.judge.build import identify_judge
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Author, Decoding
from rubricem.training.collect.directory import RunDirectory
from rubricem.training.collect.questions import Question, Selected
from rubricem.training.collect.setup import open_collector, shape
from rubricem.training.rows.credit import policy_rows
from rubricem.training.rows.row import TrainRow
from rubricem.training.rows.sequences import token_sequence
from rubricem.training.tables import read_toml
from tests.conftest import refusal
from tests.support.collected import IDENTITY, collecting, judgement
from tests.support.policies import answer, plan
from tests.support.scripted_server import Scripted, ScriptedServer
from tests.support.token_servers import Json, RecordedServer, spelled, spelling
from tests.support.values import QUESTION

RUBRICS = """
from rubricem.judge.rubrics import Gate, Rubric, WeightedSum
from rubricem.judge.composed import Judged
from rubricem.memory.schema import Stage

class Long(Rubric):
    def forward(self, action, observation):
        return float(len(action) > 20)

class Unknown(Rubric):
    def forward(self, action, observation):
        return float("nan")

def parts():
    both = WeightedSum([Long(), Gate(Long(), 0.5)], [0.25, 0.75])
    return both

def answers():
    return {"answer": Long, Stage.PLAN: Long()}

def wrong_stage():
    return {"question": Long}

def broken():
    raise KeyError("shelf")

instance = WeightedSum([Long(), Long()], [0.5, 0.5])
number = 3
several = {stage: Unknown for stage in Stage}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBRICEM_DATA_DIR", str(tmp_path / "data"))
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "own_rubrics.py").write_text(RUBRICS)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("own_rubrics", "half_written"):
            del sys.modules[name]


@pytest.mark.parametrize("kind", ["stage", "relative", "pairwise", "checklist", "none"])
def test_a_judge_is_known_by_its_kind_and_a_rubric_by_its_name_and_code(here: Path, kind: str):
    assert identify_judge(kind) == kind
    before = identify_judge("rubric:own_rubrics:Long")
    assert before.startswith("rubric:own_rubrics:Long ")
    (here / "own_rubrics.py").write_text(RUBRICS + "more = 1\n")
    assert identify_judge("rubric:own_rubrics:Long") != before


def test_a_file_runs_no_code_that_lies_beside_it_unless_the_command_names_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    (here / "evil.py").write_text(f"open({str(here / 'PWNED')!r}, 'w')")
    (here / "installed").mkdir()
    (here / "installed" / "theirs.py").touch()
    (here / "theirs.py").write_text((here / "evil.py").read_text())
    monkeypatch.syspath_prepend(here / "installed")
    file = here / "t.toml"
    for table in ("", "[rounds.groups]\n"):
        for name, known in (("evil", False), ("evil.deeper", False), ("theirs", True)):
            file.write_text(f'{table}judge = "rubric:{name}:X"\n')
            if known:
                assert read_toml(file)
                continue
            with pytest.raises(SettingsError, match="no installed package") as refused:
                read_toml(file)
            assert f"judge=rubric:{name}:X" in refused.value.remedy
            assert read_toml(file, [f"judge=rubric:{name}:X"])["judge"] == f"rubric:{name}:X"
    monkeypatch.syspath_prepend(here)  # as `python -m` has it, before all others
    with pytest.raises(SettingsError, match="no installed package"):
        read_toml(file)
    assert refusal("collect", file).count("no installed package") == 1
    assert not (here / "PWNED").exists()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("best", "There is no judge 'best'"),
        ("rubric:own_rubrics", "does not name a rubric"),
        ("rubric:own_rubrics:Short", "own_rubrics has no 'Short'"),
        ("rubric:nowhere:Long", "'nowhere' cannot be imported: ModuleNotFoundError"),
        ("rubric:half_written:Long", "'half_written' cannot be imported: SyntaxError"),
        ("rubric:own_rubrics:number", "gives a int, which is no"),
        ("rubric:own_rubrics:wrong_stage", "names a stage 'question'"),
        ("rubric:own_rubrics:broken", "gives no rubric: KeyError: 'shelf'"),
    ],
)
def test_what_is_no_judge_is_told_with_a_remedy(here: Path, name: str, told: str):
    (here / "half_written.py").write_text("class Long(")
    with pytest.raises(SettingsError, match=told) as raised:
        identify_judge(name)
    assert raised.value.remedy


@pytest.mark.parametrize("extra_body", [{"temperature": 0.3}, {"top_p": 0.9, "temperature": 1.0}])
async def test_sampling_under_which_ratios_would_not_hold_is_refused(
    extra_body: dict[str, float], tmp_path: Path
):
    server = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "source": (str(tmp_path),)}
    settings = load_settings({**server, "data_dir": tmp_path / "data", "extra_body": extra_body})
    setup = setup_of(settings)
    with pytest.raises(SettingsError, match=f"extra_body sets {next(iter(extra_body))},") as raised:
        shape(setup, collecting(), settings)
    assert "settings.extra_body={}" in raised.value.remedy
    shape(setup, collecting(teacher=True), settings)


def by_script(body: dict[str, Any], number: int) -> Scripted:
    """A policy, and judges of whole answers that prefer the answer of the larger seed."""
    said = [message["content"] for message in body["messages"]]
    if "tool_output" in said[-1]:
        return answer(f'It is <cite id="S1">answer {body["seed"]}</cite>.')
    return plan()


def collect(here: Path, judge: str, server: ScriptedServer) -> Result:
    (here / "q.txt").write_text(f"{QUESTION}\n")
    (here / "docs").mkdir(exist_ok=True)
    (here / "docs" / "lru.md").write_text("# lru_cache\nIt evicts the least recently used.\n")
    return CliRunner().invoke(
        main,
        ["collect", "q.txt", "--out", "run", "--base-url", server.base_url, "--group-size", "2",
         "--source", "docs", "reflections=0", "--judge", judge],
    )  # fmt: skip


def collected(here: Path, judge: str, script: Any = by_script) -> RunDirectory:
    with ScriptedServer(script) as server:
        done = collect(here, judge, server)
    assert done.exit_code == 0, done.output
    return RunDirectory(here / "run")


def test_the_scores_of_a_rubrics_parts_are_logged_by_name(here: Path):
    run = collected(here, "rubric:own_rubrics:parts")
    assert run.manifest().judge_kind.startswith("rubric:own_rubrics:parts ")
    first, second = run.judgements()
    for stage in (*first.stages, *second.stages):
        if stage.missing:
            continue
        assert stage.score == 1.0
        assert {**stage.components, "support": None} == {
            "rubric_0": 1.0, "rubric_1": 1.0, "rubric_1.rubric": 1.0, "support": None,
        }  # fmt: skip
    assert not all(stage.missing for stage in first.stages)


@pytest.fixture
def measured(folder: Path) -> Path:
    (folder / "lengths.py").write_text(
        "from rubricem.judge.rubrics import Rubric\n\n\nclass Even(Rubric):\n"
        "    def forward(self, action, observation):\n        return len(action) % 7 / 7\n"
    )
    return folder


def two_turns(before: str, asked: Json) -> str:
    """A search, then an answer whose length differs with the seed."""
    if "<tool_output" not in before.partition("[assistant] ")[2]:
        return plan()
    return answer(f'It is <cite id="S1">gone{"." * (asked["seed"] % 7 + 1)}</cite>')


def collect_ids(server: RecordedServer, *arguments: str) -> Result:
    named = ["questions.txt", "--out", "run", "--base-url", server.base_url]
    judged = ["--source", "documents", "--judge", "rubric:lengths:Even", "reflections=0"]
    group = ["--group-size", "4", "settings.tool_calls=1"]
    return CliRunner().invoke(main, ["collect", *named, *judged, *group, *arguments])


def rows(folder: Path) -> list[TrainRow]:
    wanted = ["--credit", "answer-only", "--out", "rows.jsonl"]
    done = CliRunner().invoke(main, ["export", "run", *wanted])
    assert done.exit_code == 0, done.output
    lines = (folder / "rows.jsonl").read_text().splitlines()
    return [TrainRow.model_validate_json(line) for line in lines if line]


def test_rows_of_a_server_that_gives_ids_and_logprobs_can_form_ratios(measured: Path):
    with spelling(two_turns) as server:
        done = collect_ids(server)
        sent = server.bodies("POST /v1/completions")
    assert done.exit_code == 0, done.output
    run = RunDirectory(measured / "run")
    first = next(run.trajectories())
    assert run.manifest().policy_version == first.policy_version == "org/speller"
    kept = [s for s in first.segments if s.kept]
    own = [s for s in kept[1:] if s.author is Author.POLICY]
    assert own and all(list(s.token_ids or ()) == spelled(s.text) for s in own)
    assert not any(s.retokenised for s in kept)
    prefix = [one for s in kept if s.turn < 2 for one in s.token_ids or ()]
    assert any(body["prompt"][: len(prefix)] == prefix for body in sent), "appended, never redone"
    made = rows(measured)
    assert made and all(row.ratio_allowed for row in made)
    for row in made:
        chances = {b for b, on in zip(row.behaviour_logprobs, row.loss_mask, strict=True) if on}
        assert chances == {-0.5}


@pytest.mark.parametrize(
    ("lie", "logprob", "told"),
    [(1, -0.5, "8 of 8 turns form no ratio: 8 retokenised"),
     (0, None, "8 of 8 turns form no ratio: 8 without log-probabilities")],
)  # fmt: skip
def test_a_server_that_lies_or_leaves_out_gives_rows_without_ratios_and_that_is_told(
    measured: Path, lie: int, logprob: float | None, told: str
):
    with spelling(two_turns, lie, logprob) as server:
        done = collect_ids(server)
    assert done.exit_code == 0, done.output
    assert told in done.stdout
    trajectory = next(RunDirectory(measured / "run").trajectories())
    written = [s for s in trajectory.segments if s.author is Author.POLICY and s.kept]
    assert [list(s.token_ids or ()) for s in written] == [spelled(s.text) for s in written]
    done = CliRunner().invoke(main, ["export", "run", "--out", "rows.jsonl"])
    assert done.exit_code == 2 and "rubricem train sft" in done.stderr


ONE = Question(id="0", question="What is an LRU cache?")
ASKED = Selected((ONE,))


async def test_free_rollouts_of_an_embedded_model_are_fit_to_train_on(tmp_path: Path, tiny: Path):
    await fit_to_train_on(tmp_path, str(tiny))


async def fit_to_train_on(tmp_path: Path, model: str) -> None:
    (tmp_path / "lru.md").write_text("# lru_cache\nIt evicts the least recently used entry.\n")
    settings = load_settings(
        {
            "model": model,
            "source": (str(tmp_path),),
            "data_dir": tmp_path / "data",
            "decoding": "free",
            "memory": "off",
            "concurrency": 2,
            "context_tokens": 8192,
            "tool_calls": 1,
            "max_tokens": 16,
        }
    )
    options = collecting(group_size=2, judge="none")
    run = RunDirectory(tmp_path / "run")
    async with open_collector(settings, options, run, ASKED, lambda line: None) as collector:
        assert collector.at_once == 2
        await collector.collect()
        (record,) = run.groups()
        group = record.group({t.id: t for t in run.trajectories()})
        first, second = group.trajectories
        assert first.decoding is Decoding.FREE
        assert first.transcript() != second.transcript()
        for trajectory in group.trajectories:
            await _token_in_token_out(trajectory, collector)
        scores = [judgement(first, [1.0] * 4), judgement(second, [0.0] * 4)]
        rows = policy_rows(group, scores, IDENTITY).rows
    assert len(rows) == 2 and all(row.ratio_allowed for row in rows)
    assert sum(rows[0].loss_mask) == sum(token_sequence(first.segments).written)


async def _token_in_token_out(trajectory, collector) -> None:
    """Ids, log-probabilities and stages fit one another."""
    written = [s for s in trajectory.segments if s.author is Author.POLICY]
    assert all(s.kept for s in written), "no turn is asked again, which would select"
    for segment in written:
        assert len(segment.token_ids) == len(segment.logprobs) > 0
        assert all(logprob <= 0 for logprob in segment.logprobs)
        assert segment.stage is not None and not segment.retokenised
    tokens = token_sequence(trajectory.segments)
    prompt = await collector.rollouts.policy.render(trajectory.system, trajectory.segments[0].text)
    assert tokens.sampled and tokens.ids[: len(prompt)] == prompt
    kept = sum(len(s.token_ids) for s in written if s.kept)
    assert sum(tokens.written) == kept
