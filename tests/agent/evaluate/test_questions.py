"""Question files: our own lines, each public format by its fields, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.evaluate.questions import EvalQuestion, QuestionSet
from rubricem.memory.errors import RubricemError

OWN = {"id": 7, "question": " Why? ", "answer": ["a", "b"], "pattern": "x+", "gold": None,
       "rubric": [{"criterion": "says why", "points": 5}], "type": "t"}  # fmt: skip
CONTEXT = [["A", ["One. ", "Two."]], ["B", ["Three."]]]
TWO_WIKI = {"_id": "w1", "type": "compositional", "question": "Whose?", "context": CONTEXT,
            "supporting_facts": [["A", 0], ["B", 1], ["A", 1]],
            "evidences": [["A", "father", "B"]], "answer": "B"}  # fmt: skip
HOTPOT = {"_id": "h1", "question": "Which?", "answer": "yes", "type": "bridge", "level": "hard",
          "supporting_facts": [["A", 0]], "context": CONTEXT}  # fmt: skip
HUB = {"id": "h2", "question": "Which?", "answer": "no", "type": "comparison", "level": "hard",
       "supporting_facts": {"title": ["A", "B"], "sent_id": [0, 0]},
       "context": {"title": ["A", "B"], "sentences": [["One."], ["Two."]]}}  # fmt: skip
MUSIQUE = {"id": "2hop__1_2", "question": "Who?", "answer": "C", "answer_aliases": ["Cee"],
           "answerable": True, "question_decomposition": [], "paragraphs": [
               {"idx": 0, "title": "A", "paragraph_text": "One.", "is_supporting": True},
               {"idx": 1, "title": "B", "paragraph_text": "Two.", "is_supporting": False},
           ]}  # fmt: skip
HEALTH = {"prompt_id": "p1", "prompt": [{"role": "user", "content": "It hurts."}],
          "example_tags": ["theme:emergency_referrals", "x"],
          "rubrics": [{"criterion": "calls for help", "points": 10, "tags": ["axis:accuracy"]},
                      {"criterion": "diagnoses", "points": -5, "tags": []}]}  # fmt: skip
QUERY = {"id": 51, "topic": "Finance", "language": "en", "prompt": "Compare the funds."}
CRITERIA = {"id": 51, "language": "en", "prompt": "Compare the funds.",
            "dimension_weight": {"insight": 0.4, "readability": 0.6},
            "criterions": {"insight": [{"criterion": "Depth", "explanation": "how deep",
                                        "weight": 0.5}],
                           "readability": [{"criterion": "Order", "explanation": "",
                                            "weight": 1.0}]}}  # fmt: skip


def kept(tmp_path: Path, *rows: Any, name: str = "q.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def only(tmp_path: Path, row: Any) -> tuple[str, EvalQuestion]:
    found = QuestionSet.read(kept(tmp_path, row))
    return found.format, found.questions[0]


def test_a_line_of_ours_may_say_what_a_good_answer_is_known_by(tmp_path: Path):
    form, question = only(tmp_path, OWN)
    assert (form, question.id, question.question) == ("rubricem", "7", "Why?")
    assert (question.answers, question.patterns, question.gold) == (("a", "b"), ("x+",), ())
    assert [item.points for item in question.rubric] == [5] and question.gradable


@pytest.mark.parametrize(
    ("row", "form", "fields"),
    [
        (TWO_WIKI, "2wiki", ("w1", ("B",), ("A", "B"), "compositional")),
        (HOTPOT, "hotpotqa", ("h1", ("yes",), ("A",), "bridge")),
        (HUB, "hotpotqa", ("h2", ("no",), ("A", "B"), "comparison")),
        (MUSIQUE, "musique", ("2hop__1_2", ("C", "Cee"), ("A",), "2hop")),
        (HEALTH, "healthbench", ("p1", (), (), "emergency_referrals")),
        (QUERY, "deepresearch", ("51", (), (), "Finance")),
        (CRITERIA, "deepresearch", ("51", (), (), "en")),
    ],
)
def test_a_public_format_is_recognised_by_its_fields(
    tmp_path: Path, row: Any, form: str, fields: tuple[Any, ...]
):
    known, question = only(tmp_path, row)
    assert known == form
    assert (question.id, question.answers, question.gold, question.type) == fields


def test_weights_of_dimensions_and_criteria_become_points(tmp_path: Path):
    rubric = only(tmp_path, CRITERIA)[1].rubric
    assert [(item.criterion, item.points) for item in rubric] == [
        ("Depth: how deep", 2),
        ("Order", 6),
    ]
    assert [item.points for item in only(tmp_path, HEALTH)[1].rubric] == [10, -5]


def test_an_unanswerable_twin_is_a_question_of_its_own(tmp_path: Path):
    found = QuestionSet.read(kept(tmp_path, MUSIQUE, {**MUSIQUE, "answerable": False}))
    assert [q.id for q in found.questions] == ["2hop__1_2", "2hop__1_2-unanswerable"]
    assert [q.unanswerable for q in found.questions] == [False, True]
    assert found.questions[1].answers == ()


def test_a_json_list_is_read_and_its_passages_are_a_corpus(tmp_path: Path):
    path = tmp_path / "hotpot.json"
    path.write_text(json.dumps([HOTPOT, {**HOTPOT, "_id": "h3"}, HUB]))
    found = QuestionSet.read(path)
    assert [q.id for q in found.questions] == ["h1", "h3", "h2"]
    texts = [(p.title, p.text) for p in found.passages]
    assert texts == [("A", "One. Two."), ("B", "Three."), ("A", "One."), ("B", "Two.")]


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        ("", "holds no question", "Write lines such as"),
        (" \n\n", "holds no question", "Write lines such as"),
        ('{"question": "a", "id": 1}\n{"question": "b", "id": 1}\n',
         "Rows 1 and 2 of .* have the same id '1'", "an id of its own"),
        ('{"question": "a"}\n{"question": "b', "line 2 of .* is no valid JSON", "Fix the line"),
        ('{"text": "a"}\n', "format of .* is not known: its first row has text", "Known are"),
        ('[1, 2]\n', "format of .* is not known: its first row has no fields", "Known are"),
        ('{"question": "a", "pattern": "("}\n', "is no regular expression", "Fix the row"),
        ('{"question": "a", "pattern": "' + "(" * 9999 + '"}', "is no regular expression", "Fix"),
        ('{"question": "a", "pattern": "a{9999999999}"}', "is no regular expression", "Fix"),
        ('{"question": "a"}\n{"answer": "b"}\n', "row 2 of .* cannot be asked", "leave it out"),
        ('{"question": " "}\n', "row 1 of .* cannot be asked: There is no", "Fix the row"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_sentence_and_a_remedy(tmp_path: Path, text: str, said: str, remedy: str):
    path = tmp_path / "q.jsonl"
    path.write_text(text)
    with pytest.raises(RubricemError, match=said) as refused:
        QuestionSet.read(path)
    assert remedy in refused.value.remedy


def test_a_file_that_is_no_text_or_has_no_end_is_told(tmp_path: Path):
    (tmp_path / "q.jsonl").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "endless.jsonl").symlink_to("/dev/zero")
    for name in ("q.jsonl", "endless.jsonl"):
        with pytest.raises(RubricemError, match="cannot be read"):
            QuestionSet.read(tmp_path / name)
