"""What watchers are told of a run as it is written: stages by their tags, checklists, plans.

Its log numbers events, keeps them and tells them without a gap or a double, however slowly.
"""

import asyncio
import json
import resource
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.reports.report import checklist
from rubricem.agent.serve import feed
from rubricem.agent.transcript import events
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Stage
from tests.support.policies import answer, plan


@pytest.fixture
async def log(tmp_path: Path) -> feed.EventLog:
    return feed.EventLog(tmp_path / feed.FILE_NAME)


def whole(log: feed.EventLog, after: int = 0) -> list[int]:
    numbers = []
    while told := log.read(after):
        numbers += [event.id for event in told]
        after = numbers[-1]
    return numbers


async def test_an_event_is_a_line_of_the_file_and_a_frame(log: feed.EventLog):
    log.append("stage", {"stage": "plan", "odd": "\ud800 \u2028 é"})
    await log.wait_for_news(0)
    [event] = log.read(0)
    assert json.loads(log.path.read_text())["event"] == "stage"
    head, data, *rest = event.frame.decode().split("\n", 2)[0:3]
    assert (head, data) == ("id: 1", "event: stage")
    assert rest[0].startswith('data: {"stage":"plan"') and rest[0].endswith("\n\n")


async def test_numbers_go_on_where_the_process_before_left_off(log: feed.EventLog):
    for number in range(3):
        log.append("note", {"n": number})
    with log.path.open("ab") as file:
        file.write(b'{"id": 4, "event": "no')
    later = feed.EventLog(log.path)
    assert later.last == 3
    later.append("end", {})
    assert whole(later) == [1, 2, 3, 4] and later.ended
    assert [json.loads(line)["id"] for line in log.path.read_text().splitlines()] == [1, 2, 3, 4]


async def test_after_a_restart_what_was_told_before_is_history(log: feed.EventLog):
    for name in ("stage", "text", "end", "restart", "stage"):
        log.append(name, {})
    assert [event.name for event in log.read(0)] == ["restart", "stage"]
    assert [event.id for event in log.read(4)] == [5]
    assert not log.ended


async def test_where_the_runs_folder_is_gone_events_are_told_and_not_written(tmp_path: Path):
    log = feed.EventLog(tmp_path / "gone" / feed.FILE_NAME)
    log.append("note", {"n": 1})
    assert log.lost and [event.data for event in log.read(0)] == [{"n": 1}]
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("characters", [3000, 20_000])
async def test_a_disk_that_is_full_in_the_middle_of_an_event_leaves_nothing_of_it(
    log: feed.EventLog, characters: int
):
    log.append("note", {"n": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2500, hard))
        log.append("text", {"text": "a" * characters})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.append("end", {})
    ids = [json.loads(line)["id"] for line in log.path.read_text().splitlines()]
    assert ids == [1, 3] and [event.id for event in log.read(0)] == [1, 2, 3]


async def test_a_damaged_line_is_a_note_and_leaves_no_gap(tmp_path: Path):
    path = tmp_path / feed.FILE_NAME
    path.write_bytes(b'{"id":1,"event":"stage","data":{}}\nnonsense\n')
    told = feed.EventLog(path).read(0)
    assert [(event.id, event.name) for event in told] == [(1, "stage"), (2, "note")]


def test_only_runs_without_an_end_are_taken_up_and_not_for_ever(tmp_path: Path):
    store = RunStore(tmp_path)

    def written(run: str, *names: str) -> None:
        (store.folder / run).mkdir(parents=True)
        lines = (json.dumps({"event": name}, separators=(",", ":")) + "\n" for name in names)
        (store.folder / run / feed.FILE_NAME).write_text("".join(lines))

    written("going", "note", "stage")
    written("over", "note", "end")
    written("again", "note", "end", "restart", "stage")
    written("crashing", "note", *["restart"] * feed.MOST_RESTARTS)
    written("resumed often", *["note", "end", "restart"] * feed.MOST_RESTARTS, "stage")
    written("empty")
    logs = feed.Logs(store)
    assert sorted(logs.find_unfinished()) == ["again", "going", "resumed often"]


async def test_pieces_of_text_are_joined_and_of_counts_the_last_is_told(log: feed.EventLog):
    for number in range(4):
        stage = "plan" if number < 2 else "research"
        log.put("text", {"stage": stage, "text": f"{number} "})
    for number in range(50):
        log.put("usage", {"n": number})
    log.put("tool", {"query": "q"})
    assert log.read(0) == []
    await asyncio.sleep(2 * feed.PAUSE)
    assert [(event.name, event.data) for event in log.read(0)] == [
        ("text", {"stage": "plan", "text": "0 1 "}),
        ("text", {"stage": "research", "text": "2 3 "}),
        ("usage", {"n": 49}),
        ("tool", {"query": "q"}),
    ]


def pieces(stage: Stage, text: str, size: int) -> list[events.Event]:
    return [events.TextWritten(stage, text[at : at + size]) for at in range(0, len(text), size)]


def told(heard: list[events.Event]) -> list[tuple[str, dict[str, Any]]]:
    said: list[tuple[str, dict[str, Any]]] = []
    telling = feed.Telling("", lambda name, data: said.append((name, data)))
    for event in heard:
        telling.hear(event)
    return said


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_review_and_answer_are_told_as_the_text_of_a_turn_begins_them(size: int):
    said = told(
        [
            events.StageStarted(Stage.PLAN),
            *pieces(Stage.PLAN, plan(), size),
            events.ToolCalled("search", "one", 1),
            events.ToolReturned((), 0.1),
            events.StageStarted(Stage.RESEARCH),
            *pieces(Stage.RESEARCH, answer(), size),
            events.StageStarted(Stage.REVIEW),
            events.StageStarted(Stage.ANSWER),
        ]
    )
    rest = [data.get("stage", name) for name, data in said if name != "text"]
    assert rest == [
        "plan", "rubric", "plan", "tool", "results", "research", "review", "rubric", "answer",
    ]  # fmt: skip
    texts = groupby((d for n, d in said if n == "text"), key=lambda data: data["stage"])
    joined = {stage: "".join(data["text"] for data in group) for stage, group in texts}
    assert list(joined) == ["plan", "research", "review", "answer"]
    assert "".join(joined.values()) == plan() + answer()
    assert joined["review"].startswith("<review>") and joined["answer"].startswith("<answer>")


def test_a_turn_that_is_asked_again_is_told_from_its_beginning():
    said = told(
        [
            events.StageStarted(Stage.RESEARCH),
            *pieces(Stage.RESEARCH, "<review>no", 3),
            events.TurnRetried("no answer"),
            *pieces(Stage.RESEARCH, "<think>", 7),
        ]
    )
    assert [(n, d.get("stage")) for n, d in said][-3:] == [
        ("retry", None), ("stage", "research"), ("text", "research"),
    ]  # fmt: skip


def reviewed(items: list[str], review: list[str]) -> list[dict[str, Any]]:
    """The checklist of a rubric of these items once a review has said these sentences."""
    said = ["\n".join(f"- {line}" for line in lines) for lines in (items, review)]
    return checklist(
        f"<structured_plan><rubric>\n{said[0]}\n</rubric></structured_plan>"
        f"<review><rubric_review>\n{said[1]}\n</rubric_review></review>"
    )


@pytest.mark.parametrize(
    ("items", "review", "states"),
    [
        (["What is open"], ["What is open: settled [met: S1]"], ["met"]),
        (["What is open", "The size"], ["The size [missing]", "What is open [partly: S1]"],
         ["partly", "missing"]),
        (["Nennt es", "Wer"], ["S1 [met: S1]", "\u6ca1 [missing]", "x [met]"], ["met", "missing"]),
        (["The size", "The threads"], ["The size [met: S1]"], ["met", "unmarked"]),
        (["The size"], ["The size is met by S1, nothing is missing."], ["unmarked"]),
        (["The size"], [], ["open"]),
    ],
)  # fmt: skip
def test_an_item_is_ticked_by_the_mark_of_its_line_alone(
    items: list[str], review: list[str], states: list[str]
):
    assert [item["state"] for item in reviewed(items, review)] == states
