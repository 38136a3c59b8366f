"""The bank's benchmark of effect: its arithmetic, its questions, its variants, and its going on.

The bank's benchmark of scale: its vectors, its arithmetic, and the whole of it, small.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.bank_opening import VectorTable
from benchmarks.bank_scale import (
    ASKED,
    Figures,
    episodes_hold,
    holds,
    measure,
    measure_episodes,
    median,
    percentile,
    reflection_of,
)
from benchmarks.bank_texts import embed, exact_nearest, library_texts, multiply, recall_at

from benchmarks import bank_texts
from benchmarks.bank_effect import (
    Block,
    BlockRecaller,
    EffectRow,
    Study,
    Told,
    blocks,
    bridges,
    entities,
    values_of,
)
from benchmarks.bank_effect import holds as effect_holds
from benchmarks.hops import corpus, rows_of
from rubricem.agent.evaluate.experiment import EvalFolder, EvalParts, Experiment
from rubricem.agent.evaluate.grades import EvalGrade
from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.agent.learning.lessons import save_candidates
from rubricem.agent.research.forced import ForcedDecoder
from rubricem.agent.research.recall import BankRecaller
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.settings import load_settings
from rubricem.agent.settings.door import setup_of
from rubricem.agent.transcript.question import Ask
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import (
    Basis,
    Decoding,
    Episode,
    Pointer,
    ReflectionCandidate,
    ReflectionScore,
    Status,
)
from rubricem.memory.text import digest_of
from tests.agent.research.test_episodes import Kept
from tests.agent.research.test_forced import CHAIN, DIRECTED
from tests.support.banks import bank_in, episode, reflection
from tests.support.slots import Filling, SmallModel


@pytest.fixture(scope="module")
def every_block() -> list[Block]:
    return blocks(99)


def test_the_filling_and_each_part_are_as_many_as_the_targets_ask_for(every_block: list[Block]):
    asked = {part: [q for b in every_block[:30] for p, q in b.parts() if p == part]
             for part in ("again", "bridge", "other")}  # fmt: skip
    assert [len(asked[part]) for part in asked] == [150, 63, 60]
    every = [q for questions in asked.values() for q in questions]
    assert len({q.id for q in every}) == len({q.question for q in every}) == len(every)
    titles = {passage.title for passage in corpus()}
    assert all(q.answers and q.gold and set(q.gold) <= titles for q in every)


def test_a_bridge_question_stands_in_the_block_whose_run_came_upon_its_bridge(
    every_block: list[Block],
):
    rows = {row["id"]: row for row in rows_of("questions")}
    for block in every_block:
        filled = [rows[question.id] for question in block.again]
        for question in block.bridge:
            known = {name for row in filled for name in bridges(row)}
            assert known & set(question.gold), question.question
            assert question.id not in rows or rows[question.id]["split"] == "dev"
        met = {name for each in every_block for q in each.again for name in entities(rows[q.id])}
        assert not any(met & entities(rows[question.id]) for question in block.other)


def test_a_made_question_asks_another_relation_or_begins_elsewhere():
    def row(split: str, *evidence: tuple[str, str, str]) -> dict[str, Any]:
        told = {"evidence": list(map(list, evidence)), "gold": [s for s, *_ in evidence]}
        return {"id": split, "split": split, **told}

    first = row("train", ("Kite", "director", "Mira"), ("Mira", "place of death", "Turin"))
    other = row("dev", ("Iris", "director", "Mira"), ("Mira", "date of birth", "4 May 1894"))
    told = Told.of([first, other])
    assert {q.question: (q.answers, q.gold) for q in told.make_questions(first)} == {
        "When was the director of film Kite born?": (("4 May 1894",), ("Kite", "Mira")),
        "Where did the director of film Iris die?": (("Turin",), ("Iris", "Mira")),
    }


def led_by(name: str, *sources: str) -> Episode:
    given = tuple(
        Pointer(source=source, title=f"{name} {source}", location=name, digest=name, tool="search",
                query=f"{name}?")
        for source in sources
    )  # fmt: skip
    return episode(f"{name}?", name, pointers=given)


async def test_shuffled_pointers_are_anothers_and_offered_for_the_same_lookups(tmp_path: Path):
    bank = bank_in(tmp_path)
    one, other = led_by("one", "S1", "S2"), led_by("other", "S4")
    for each in (one, other, led_by("later", "S1")):
        await bank.put(each)
    asked = BankRecaller(bank, generation=2, kinds="episodes")
    led = await BlockRecaller(episodes=asked, instead={"one": other}).recall("one?")
    [match] = [match for match in led.episodes if match.own]
    assert [(p.source, p.title) for p in match.episode.pointers] == [
        ("S1", "other S4"), ("S2", "other S4")
    ]  # fmt: skip
    later = await BlockRecaller(episodes=asked).recall("later?")
    assert "later" not in later.ids


async def test_a_study_fills_the_bank_and_then_asks_in_every_arm_and_goes_on(tmp_path: Path):
    kept = Kept(tmp_path)
    kept.model = SmallModel(Filling(plan=DIRECTED, finds=("Mira Holt", "Turin")))
    asking = Researcher(
        kept.model, ForcedDecoder(), Decoding.FORCED, kept.search, RunStore(tmp_path), Ask("")
    )
    question = EvalQuestion(id="1", question=CHAIN, answers=("Turin",), gold=("Mira Holt", "X"))
    near = question.model_copy(update={"id": "2", "question": "Who directed The Paper Kite?"})
    setup = setup_of(load_settings({"data_dir": tmp_path}))
    experiment = Experiment(setup, QuestionSet("x", (question, near)), (), tmp_path)
    parts = EvalParts(experiment, setup, asking, None, None)
    block = Block(0, (question,), (near,), ())
    arms = ("off", "episodes")
    for again in (False, True):
        with EvalFolder(tmp_path).rows(EffectRow) as rows:
            study = Study(parts, arms, rows)
            # No embedding model is loaded for a bank that the names lead to.
            study.bank = lambda name: bank_in(tmp_path / name)  # type: ignore[method-assign]
            searched = len(kept.search.queries)
            await study.through(block)
            found = {key: (row.type, row.led, row.grade.evidence) for key, row in rows.held.items()}
        assert (len(kept.search.queries) == searched) == again
        assert len(study.filled) == 1
        assert found == {
            ("1", "off"): ("again", 0, 0.5), ("1", "episodes"): ("again", 0, 0.5),
            ("2", "off"): ("bridge", 0, 0.5), ("2", "episodes"): ("bridge", 0, 0.5),
        }  # fmt: skip


async def test_lessons_that_were_kept_are_told_and_how_many_hold_up_again(tmp_path: Path):
    kept = Kept(tmp_path)
    kept.model = SmallModel(Filling(plan=DIRECTED, finds=("Mira Holt", "Turin")))
    store = RunStore(tmp_path)
    asking = Researcher(kept.model, ForcedDecoder(), Decoding.FORCED, kept.search, store, Ask(""))
    question = EvalQuestion(id="1", question=CHAIN, answers=("Turin",), gold=("Mira Holt", "X"))
    setup = setup_of(load_settings({"data_dir": tmp_path}))
    experiment = Experiment(setup, QuestionSet("x", (question,)), (), tmp_path)
    parts = EvalParts(experiment, setup, asking, None, None)
    gone = Basis(kind="source", name="S9", mark="another text")
    with EvalFolder(tmp_path).rows(EffectRow) as rows:
        study = Study(parts, ("off", "reflections"), rows)
        study.bank = lambda name: bank_in(tmp_path / name)  # type: ignore[method-assign]
        block = Block(0, (question,), (), ())
        filled = await study.ask(block, "again", question, "off")
        first = store.load(filled.thread)
        basis = Basis(kind="source", name="S1", mark=digest_of(first.sources[0].text))
        score = ReflectionScore(diagnostic_accuracy=0.5, specificity=0.5, scope_and_balance=0.5)
        good = ReflectionCandidate(
            trajectory_id=first.id, question=CHAIN, segments=(), rests_on=(basis, gone),
            score=score, accepted=True,
        )  # fmt: skip
        bad = good.model_copy(update={"fault": "broken", "accepted": False, "score": None})
        save_candidates(store.folder / filled.thread, [bad, good])
        await study.bank("reflections").put(reflection(CHAIN, "r", rests_on=good.rests_on))
        study.lessons = 1
        await study.through(block)
        told = await study.lessons_of()
    assert told == {
        "reflected_on": 1, "reflections_written": 2, "reflections_of_valid_form": 1,
        "reflections_score": 0.5,
        "reflections_accepted": 1, "reflections_quarantined": 0, "lessons_accepted": 2,
        "again_reflections_taught": 1.0,
        "reflections_lessons_put_to_the_test": 2, "reflections_lessons_held_up": 1,
    }  # fmt: skip


def effect(part: str, arm: str, number: int, evidence: float, cpu: float = 1.0) -> EffectRow:
    return EffectRow(
        id=f"{part}{number}", arm=arm, question="?", type=part, thread="t", block=number, cpu=cpu,
        status=Status.FINISHED, grade=EvalGrade(evidence=evidence, f1=0.5), led=number % 2,
    )  # fmt: skip


def measured(gain: dict[tuple[str, str], float], cpu: float = 1.0) -> dict[str, Any]:
    rows = [effect(part, "off", n, 0.5) for part in ("again", "bridge", "other") for n in range(4)]
    rows += [effect(part, arm, n, 0.5 + more, cpu)
             for (part, arm), more in gain.items() for n in range(4)]  # fmt: skip
    return values_of(rows)


MET = {("again", "episodes"): 0.25, ("bridge", "episodes"): 0.25, ("bridge", "shuffled"): 0.0,
       ("other", "episodes"): 0.0}  # fmt: skip


def test_gains_are_paired_with_off_and_told_in_the_order_of_filling():
    values = measured(MET)
    assert (values["again_off_evidence"], values["again_episodes_evidence"]) == (0.5, 0.75)
    assert values["bridge_episodes_evidence_gain"] == values["bridge_episodes_evidence_low"] == 0.25
    assert values["again_episodes_curve"] == "+0.250, +0.250, +0.250, +0.250"
    assert (values["again_episodes_led"], values["again_episodes_all_gold_gain"]) == (0.5, 0.0)
    assert effect_holds(values)


@pytest.mark.parametrize(
    ("gain", "cpu"),
    [({("again", "episodes"): 0.125}, 1.0), ({("bridge", "episodes"): 0.0}, 1.0),
     ({("bridge", "shuffled"): 0.25}, 1.0), ({("other", "episodes"): -0.25}, 1.0), ({}, 2.0)],
)  # fmt: skip
def test_each_target_of_the_effect_can_be_missed(gain: dict[tuple[str, str], float], cpu: float):
    assert not effect_holds(measured(MET | gain, cpu))


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
    named, rows = multiply(texts, vectors, 5)
    assert named == ["a", "b", "a (case 1)", "b (case 1)", "a (case 2)"]
    np.testing.assert_array_equal(rows[:2], vectors)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
    # 1 / sqrt(1 + 0.5^2) of the text itself, 1 / (1 + 0.5^2) among its cases, roughly.
    assert rows[2] @ vectors[0] == pytest.approx(0.894, abs=0.03)
    assert rows[2] @ rows[4] == pytest.approx(0.8, abs=0.05)


def test_texts_are_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, again = CountedCalls(), CountedCalls()
    vectors = embed(["one", "three"], first)
    np.testing.assert_array_equal(embed(["one", "three"], again), vectors)
    assert (first.texts, again.texts) == (["one", "three"], [])
    embed(["one", "seven"], again)
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


async def test_episodes_are_found_by_a_rare_name_and_by_one_that_many_share(tmp_path: Path):
    questions = [f"question {n}" for n in range(40 + ASKED)]
    figures = await measure_episodes(tmp_path, questions, unit_rows(len(questions)))
    assert figures["rare_found"] == 1.0
    assert all(float(figures[f"{kind}_{call}_p95_cpu_ms"] or 0) > 0
               for kind in ("rare", "shared") for call in ("names", "recall", "meet"))  # fmt: skip
    assert float(figures["form_p95_cpu_ms"] or 0) > 0
    fast = dict.fromkeys(("shared_recall_p95_ms", "rare_recall_p95_ms", "form_p95_ms"), 30.0)
    assert episodes_hold(figures | fast)
    assert not any(episodes_hold(figures | fast | {name: 31.0}) for name in fast)
    again = await measure_episodes(tmp_path, questions, unit_rows(len(questions)))
    assert (again["rare_found"], "brought_in_per_s" in again) == (1.0, False)


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
