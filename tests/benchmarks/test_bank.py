"""The bank's benchmark of effect: its arithmetic, its questions, its variants, and its going on.

The bank's benchmark of scale: its vectors, its arithmetic, and the whole of it, small.
"""

import inspect
import json
import pkgutil
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bank_texts
from benchmarks.bank_effect import QUESTIONS, Asked, Study, questions
from benchmarks.bank_figures import Runs, figures
from benchmarks.bank_measures import (
    compared,
    differences,
    means,
    other_item,
    row_of,
    shared,
    use_of,
    use_values,
)
from benchmarks.bank_opening import VectorTable
from benchmarks.bank_scale import Figures, holds, measure, median, percentile, reflection_of
from benchmarks.bank_texts import embedded, exact_nearest, library_texts, multiplied, recall_at
from benchmarks.bank_variants import VARIANTS
from benchmarks.judged import buffer_of
from rubricem.agent.research.recall import Recall, reference_block
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.memory.bank import BankItem
from rubricem.memory.rubrics import BufferStore
from rubricem.memory.schema import (
    Completion,
    Judgement,
    Message,
    OnText,
    Recollection,
    Sampling,
    Stage,
    StageScore,
    StopPredicate,
    Trajectory,
)
from tests.benchmarks.test_judged import Counted
from tests.support.banks import reflection
from tests.support.policies import QUESTION, RUN, researching
from tests.support.scripted_server import ScriptedServer
from tests.support.values import trajectory


def test_differences_are_of_questions_that_have_both_figures():
    rows = [{"fact": 1.0}, {"fact": None}, {"fact": 0.0}]
    without = [{"fact": 0.0}, {"fact": 1.0}, {"fact": 0.0}]
    assert differences(rows, without, "fact") == [1.0, 0.0]
    assert means("first", rows, ("fact",)) == {"fact_first": 0.5}
    assert means("first", [{"fact": None}], ("fact",)) == {"fact_first": None}


def test_a_comparison_tells_its_pairs_and_leaves_out_what_was_never_measured():
    rows = [{"fact": 1.0, "support": None}, {"fact": 1.0, "support": None}]
    without = [{"fact": 0.0, "support": 1.0}, {"fact": 0.0, "support": 1.0}]
    assert compared("second", rows, without, ("fact", "support")) == {
        "fact_second_difference": 1.0,
        "fact_second_interval": "1.0000 to 1.0000",
        "fact_second_pairs": 2,
    }


def test_words_shared_with_lessons_leave_out_those_of_the_question():
    lessons = "Quote the default value and name its parameter."
    # "cutoff" is the question's; of "default", "float" and "quote" two stand in the lessons.
    assert shared("cutoff default float quote", lessons, "the cutoff?") == pytest.approx(2 / 3)
    assert shared("cutoff", lessons, "the cutoff?") is None


def test_the_control_is_the_next_item_that_was_neither_recalled_nor_barred():
    order = ["a", "b", "c", "d"]
    assert other_item(order, ["b"], []) == "c"
    assert other_item(order, ["b"], ["c"]) == "d"
    assert other_item(order, ["d"], ["a"]) == "b"
    assert other_item(order, ["a", "b"], ["c", "d"]) == ""


def test_a_run_is_counted_by_its_fact_its_cites_and_its_scores():
    said = (
        '<cite id="S1">Without maxsize the cache grows without bound.</cite> Then it <b>sleeps</b>.'
    )
    stages = [
        StageScore(stage=Stage.PLAN, score=0.5),
        StageScore(stage=Stage.RESEARCH, score=1.0),
        StageScore(stage=Stage.REVIEW, unscored_reason="the judge failed"),
        StageScore(stage=Stage.ANSWER, score=0.0),
    ]
    judgement = Judgement(trajectory_id="run-1", judge="j", stages=tuple(stages))
    row = row_of(trajectory(said), "without bound", judgement)
    assert (row["fact"], row["cites"], row["searches"]) == (1.0, 1.0, 1.0)
    assert (row["score_review"], row["score_mean"]) == (None, 0.5)
    assert (row["tokens"], row["prompt_tokens"], row["seconds"]) == (80.0, 1200.0, 65.2)
    nothing = row_of(trajectory(), "without bound", None)
    assert (nothing["fact"], nothing["support"], nothing["score_mean"]) == (0.0, None, None)


def test_use_is_told_beside_another_items_lessons_and_a_run_without_memory():
    run = trajectory("Check the default value.", question="How?")
    row = use_of(run, trajectory("Rome is old.", question="How?"), "check value", "old rome", 0.7)
    # The plan's rubric of both runs: "Names the rule", "Names the default".
    assert row["plan_overlap"] == row["plan_overlap_without"] == 0.0
    assert row["answer_overlap"] == pytest.approx(2 / 3)
    assert (row["answer_overlap_other"], row["answer_overlap_without"]) == (0.0, 0.0)
    values = use_values("second", [row], 4)
    assert (values["recalled_share_second"], values["similarity_second"]) == (0.25, 0.7)
    assert values["answer_overlap_other_second_difference"] == pytest.approx(0.6667)
    assert use_values("first", [], 4) == {"recalled_share_first": 0.0}


def arms_of(question: str, *arms: str) -> dict[str, Trajectory]:
    return {arm: trajectory("Rome is old.", question=question) for arm in arms}


def test_figures_are_of_each_arm_and_never_take_the_own_item_as_control():
    own, other = reflection("How?", "own", "rome"), reflection("What?", "other", "paris")
    runs = arms_of("How?", "off", "first", "second")
    given = Recollection(id="own", question="How?", own=True, score=0.75)
    runs["second"] = runs["second"].model_copy(
        update={"recalled": ("own",), "recollections": (given,)}
    )
    similar = arms_of("Who?", "similar_off", "similar")
    items = [BankItem(record=r, since=n) for n, r in enumerate((own, other), 1)]
    found = [Runs("rome", runs, {}), Runs("paris", similar, {})]
    values, rows = figures(found, items, VARIANTS["product"].lessons)
    assert (values["n"], values["learnt"]) == (1, 2)
    assert (values["fact_second"], values["fact_similar"]) == (1.0, 0.0)
    assert values["fact_second_difference"] == 0.0
    (use,) = rows["uses"]["second"]
    assert use["answer_overlap"] == 0.5 and use["answer_overlap_other"] == 0.0
    assert values["recalled_share_first"] == 0.0
    assert (values["same_without_recall_first"], values["same_without_recall_second"]) == (1, None)


def test_variants_leave_out_one_part_of_every_reflection_and_nothing_else():
    own, similar = reflection("a?", "1", "- own lesson"), reflection("b?", "2", "- other lesson")
    block = reference_block(own, [similar], 4000)
    short = VARIANTS["takeaways"].left_out
    rubrics = VARIANTS["rubrics"].left_out
    assert short and rubrics
    without = short.sub("", block)
    assert "guessing" not in without and without.count("lesson") == 2
    without = rubrics.sub("", block)
    assert "lesson" not in without and without.count("guessing") == 2
    assert "A similar question: b?" in without and without.endswith("</reference_examples>\n\n")
    assert VARIANTS["takeaways"].lessons(own) == "- own lesson"
    assert VARIANTS["rubrics"].lessons(own) == "Pitfalls: guessing"


async def test_a_shortened_recall_names_the_same_items():
    class Fixed:
        async def recall(self, question: str) -> Recall:
            given = Recollection(id="r1", question="What?", own=False)
            block = reference_block(None, [reflection("What?", "r1")], 4000)
            return Recall((given,), block)

        async def used(self, run: Trajectory) -> None:
            """Nobody counts here."""

    found = await VARIANTS["takeaways"].shown(Fixed()).recall("How?")
    assert found.ids == ("r1",) and "Pitfalls" not in found.block
    assert isinstance(VARIANTS["product"].shown(Fixed()), Fixed)


def test_every_variant_is_one_that_the_settings_know():
    for variant in VARIANTS.values():
        settings = load_settings(dict(variant.flags))
        assert all(getattr(settings, name) == value for name, value in variant.flags.items())


def test_the_pairs_are_twelve_and_ask_different_things_with_facts_of_their_own():
    pairs = questions()
    assert len(pairs) == 12
    asked = [one.question for pair in pairs for one in pair]
    assert len(set(asked)) == 24
    assert all(one.fact != other.fact for one, other in pairs)


ROWS = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["symbol"])
def test_the_fact_of_a_similar_question_stands_in_what_is_installed(row: dict[str, str]):
    parent, _, name = row["symbol"].rpartition(".")
    try:
        text = inspect.getdoc(pkgutil.resolve_name(row["symbol"])) or ""
    except AttributeError:
        # Documented where it is declared, not in the running object.
        source = inspect.getsource(pkgutil.resolve_name(parent))
        text = source[source.index(f"{name}:") :][:1500]
    assert re.search(row["fact"], text, re.I | re.S)


class Tallied(Counted):
    calls = 0

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        stop: StopPredicate | None = None,
        on_text: OnText | None = None,
    ) -> Completion:
        self.calls += 1
        return await super().chat(messages, sampling, stop, on_text)


async def test_a_benchmark_that_was_ended_goes_on_with_what_is_there(tmp_path: Path):
    asked = Asked(3, QUESTION, "unbounded", ("off",))
    setup = setup_of(load_settings({"data_dir": tmp_path / "product"}))
    model = Tallied()
    with ScriptedServer(list(RUN)) as server:
        async with researching(server.base_url, tmp_path) as researcher:
            study = Study(setup, VARIANTS["product"], researcher, model, tmp_path / "off")
            run = await study.run("off", asked)
            judged = await study.judged(asked, {"off": run})
            asked_so_far = model.calls
            again = Study(setup, VARIANTS["product"], researcher, model, tmp_path / "off")
            # The server has no further reply.
            assert await again.run("off", asked) == run
            assert await again.judged(asked, {"off": run}) == judged
    assert model.calls == asked_so_far > 0
    assert (tmp_path / "off" / "runs" / "off-03" / "trajectory.json").exists()


async def test_each_arm_has_its_own_judgement_whatever_the_order_shown(tmp_path: Path):
    setup = setup_of(load_settings({"data_dir": tmp_path}))
    async with researching("http://127.0.0.1:9/v1", tmp_path) as researcher:
        study = Study(setup, VARIANTS["product"], researcher, Counted(), tmp_path)
        arms = ("off", "first", "second")
        for number in range(3):
            asked = Asked(number, "How?", "rome", arms)
            runs = {arm: replace_id(trajectory("x", question="How?"), arm) for arm in arms}
            judged = await study.judged(asked, runs)
            assert {arm: one.trajectory_id for arm, one in judged.items()} == {a: a for a in arms}


async def test_every_variant_is_judged_from_the_same_first_criteria(tmp_path: Path):
    held = buffer_of(QUESTION).model_copy(update={"version": 1})
    BufferStore(tmp_path / "off" / "buffers").save(held)
    runs = {"off": trajectory("x", question=QUESTION)}
    async with researching("http://127.0.0.1:9/v1", tmp_path) as researcher:
        for name in ("product", "takeaways"):
            setup = setup_of(load_settings({"data_dir": tmp_path / name}))
            study = Study(setup, VARIANTS[name], researcher, Counted(), tmp_path / "off")
            judged = await study.judged(Asked(0, QUESTION, "", ("off",)), runs)
            assert judged["off"].rubric_version == held.label
            assert judged["off"].score(Stage.PLAN) is not None


def replace_id(run: Trajectory, name: str) -> Trajectory:
    return run.model_copy(update={"id": name})


class CountedCalls:
    """An embedder whose vectors are unit rows drawn by the text's length."""

    name = "counted"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: list[str], *, query: bool = False) -> bank_texts.Vectors:
        self.texts += texts
        rows = np.array([[len(text), 1.0] for text in texts], dtype=np.float32)
        unit: bank_texts.Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit


def unit_rows(count: int, dimensions: int = 16) -> bank_texts.Vectors:
    rows = np.random.default_rng(1).standard_normal((count, dimensions), dtype=np.float32)
    unit: bank_texts.Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def test_recall_is_the_share_of_exact_neighbours_that_were_found():
    exact = [["a", "b"], ["c", "d"]]
    assert recall_at([["b", "a"], ["c", "x"]], exact) == 0.75
    assert recall_at([[], ["y", "x"]], exact) == 0.0


def test_the_exact_neighbours_stand_with_the_nearest_first():
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8], [-1, 0]], dtype=np.float32)
    assert exact_nearest(vectors, np.array([0, 1], dtype=np.float32), 2) == [1, 2]
    assert exact_nearest(vectors[:2], np.array([1, 0], dtype=np.float32), 2) == [0, 1]


def test_further_items_are_cases_of_the_texts_at_a_known_distance():
    texts, vectors = ["a", "b"], unit_rows(2, 300)
    named, rows = multiplied(texts, vectors, 5)
    assert named == ["a", "b", "a (case 1)", "b (case 1)", "a (case 2)"]
    np.testing.assert_array_equal(rows[:2], vectors)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
    # 1 / sqrt(1 + 0.5^2) of the text itself, 1 / (1 + 0.5^2) among its cases, roughly.
    assert rows[2] @ vectors[0] == pytest.approx(0.894, abs=0.03)
    assert rows[2] @ rows[4] == pytest.approx(0.8, abs=0.05)


def test_texts_are_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, again = CountedCalls(), CountedCalls()
    vectors = embedded(["one", "three"], first)
    np.testing.assert_array_equal(embedded(["one", "three"], again), vectors)
    assert (first.texts, again.texts) == (["one", "three"], [])
    embedded(["one", "seven"], again)
    assert again.texts == ["one", "seven"]


def test_the_library_gives_distinct_texts_that_name_what_they_document():
    texts = library_texts(300)
    assert len(set(texts)) == 300
    assert all(": " in text for text in texts)


def test_figures_that_nobody_told_are_none():
    assert median([{"s": 3.0}, {"s": 1.0}, {"s": 2.0}], "s") == 2.0
    assert median([{"s": None}], "s") is None
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], 50) == 3.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("recall_p95_ms", 31.0), ("recall_at_2", 0.98), ("open_query_s", 0.31),
     ("loaded_without_need", "torch")],
)  # fmt: skip
def test_each_target_can_be_missed(name: str, value: float | str):
    good: Figures = {
        "recall_p95_ms": 30.0, "recall_at_2": 0.99, "open_query_s": 0.3,
        "loaded_without_need": "none",
    }  # fmt: skip
    assert holds(good)
    assert not holds(good | {name: value})


def test_a_text_without_a_vector_is_a_mistake_of_the_benchmark():
    with pytest.raises(KeyError):
        VectorTable({"known": 0}, unit_rows(1)).embed(["unknown"])


async def test_a_small_bank_is_measured_from_end_to_end(tmp_path: Path):
    rows = unit_rows(210)
    items = [reflection_of(n, f"question {n}", ["a lesson", "another"]) for n in range(200)]
    asked = {f"asked {n}": row for n, row in enumerate(rows[200:])}
    figures = await measure(tmp_path, items, rows[:200], asked, starts=1)
    assert figures["recall_at_2"] == 1.0
    assert figures["loaded_without_need"] == "none"
    for name in ("recall_p95_ms", "hash_hit_p50_ms", "puts_per_s", "open_query_s"):
        assert float(figures[name] or 0) > 0
    assert float(figures["journal_bytes_per_item"] or 0) > len(items[0].model_dump_json())
    assert float(figures["derived_bytes_per_item"] or 0) > 4 * rows.shape[1]
