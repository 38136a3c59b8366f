"""Questions files: one question a line, as text or as JSON."""

import json
from pathlib import Path

from pydantic import ValidationError

from agent.question import checked
from memory.errors import SettingsError
from memory.text import storable
from training.run_directory import Question


def read_questions(path: Path) -> list[Question]:
    """The questions of a .txt (one a line) or .jsonl file (`question`, and `id`, `criteria`).

    Blank lines are skipped; without an id a question is called by its number from 0. Raises
    SettingsError that names the line at fault.
    """
    if path.suffix not in (".txt", ".jsonl"):
        raise SettingsError(
            f"{path} is not a .txt or .jsonl file.",
            "Write one question a line, or one JSON object with a question a line.",
        )
    questions: list[Question] = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            read = _json if path.suffix == ".jsonl" else _plain
            questions.append(read(line, len(questions), f"line {number} of {path}"))
    if not questions:
        raise SettingsError(f"{path} holds no question.", "Write one question a line.")
    return questions


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise SettingsError(
            f"{path} cannot be read: {cause}.", "Name a UTF-8 text file."
        ) from cause


def _plain(line: str, count: int, place: str) -> Question:
    return Question(id=str(count), question=_checked(line, place))


def _json(line: str, count: int, place: str) -> Question:
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("it is no JSON object")
        question = Question.model_validate({"id": str(count), **fields})
    except ValidationError as cause:
        first = cause.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise SettingsError(
            f"{place}: {where}: {first['msg']}.", 'Write it as {"question": "..."}.'
        ) from cause
    except ValueError as cause:
        raise SettingsError(f"{place}: {cause}.", 'Write it as {"question": "..."}.') from cause
    return question.model_copy(
        update={"id": storable(question.id), "question": _checked(question.question, place)}
    )


def _checked(text: str, place: str) -> str:
    try:
        return checked(text)
    except SettingsError as cause:
        raise SettingsError(f"{place}: {cause}", cause.remedy) from cause
