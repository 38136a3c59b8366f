"""The folders of runs: whole files, names that hold one question, damage told in a sentence.

The journal: nothing finished is lost, nothing unfinished is believed.
"""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.runs import CallKey, Journal, RunStore, refuse_strangers, write_atomically
from rubricem.memory.schema import Ending, Status
from tests.support.values import trajectory
from tests.support.waiting import Process

ASKED = {"ask": {"question": "What?"}, "choices": {"model": None}}
OTHER = {"ask": {"question": "Why?"}, "choices": {"model": None}}


def test_a_name_is_taken_once_a_call_has_finished_under_it(tmp_path: Path):
    store = RunStore(tmp_path)
    store.create("t", ASKED)
    store.journal("t").close()
    store.create("t", OTHER)
    (tmp_path / "runs" / "t" / "journal.jsonl").write_text('{"key": ["t", 1, 0, "d"]}\n')
    with pytest.raises(SettingsError, match="holds another question") as caught:
        store.create("t", ASKED)
    assert "--resume t" in caught.value.remedy
    store.create("t", OTHER)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "x" * 65, "a b", "é/"])
def test_a_name_cannot_leave_its_folder(name: str, tmp_path: Path):
    with pytest.raises(SettingsError, match="cannot name a thread"):
        RunStore(tmp_path).create(name, ASKED)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("owner", "mode", "refused"),
    [
        ("other", 0o700, True),
        ("other", 0o777, True),
        ("other", 0o2770, False),  # shared with a group of ours
        ("root", 0o755, False),
        ("root", 0o1777, True),  # as /tmp is
        ("own", 0o777, False),
    ],
)
def test_a_data_directory_of_another_user_is_refused(
    owner: str, mode: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (data := tmp_path / "data").mkdir()
    data.chmod(mode)
    state = list(data.stat())
    here = os.getuid() or 1000 * (owner == "root")
    state[stat.ST_UID] = {"own": here, "root": 0}.get(owner, here + 1)
    monkeypatch.setattr(Path, "stat", lambda path: os.stat_result(state))
    monkeypatch.setattr(os, "getuid", lambda: here)
    told = "data belongs to another user, who could read and change"
    with pytest.raises(StoreError, match=told) if refused else nullcontext():
        refuse_strangers(data)


def test_a_damaged_request_or_trajectory_is_told_in_a_sentence(tmp_path: Path):
    store = RunStore(tmp_path)
    store.create("t", ASKED)
    (tmp_path / "runs" / "t" / "request.json").write_text('{"ask": ')
    with pytest.raises(StoreError, match="request of 't' cannot be read"):
        store.create("t", ASKED)
    store.create("u", ASKED)
    (tmp_path / "runs" / "u" / "trajectory.json").write_text('{"id": 1}')
    with pytest.raises(StoreError, match="trajectory of 'u' cannot be read") as caught:
        store.load("u")
    assert "--resume u" in caught.value.remedy


@pytest.mark.parametrize(
    ("ended_by", "whole"), [("seconds", False), ("interrupt", False), ("uncertain", True)]
)
def test_a_run_is_gone_on_with_where_that_can_bring_more(
    ended_by: Ending, whole: bool, tmp_path: Path
):
    store, ended = RunStore(tmp_path), trajectory("It is so.", status=Status.PARTIAL)
    store.create(ended.thread, ASKED)
    store.save(ended.model_copy(update={"ended_by": ended_by}))
    assert store.whole(ended.thread) == whole


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "a" / "file.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["file.json"]


KEY = CallKey("thread", 1, 0, "abc")


async def test_a_reply_is_found_again_by_the_next_process(tmp_path: Path):
    journal = Journal(tmp_path / "j.jsonl")
    await journal.append(KEY, {"text": "plan ↦ done"})
    journal.close()
    assert Journal(tmp_path / "j.jsonl").find(KEY) == {"text": "plan ↦ done"}


async def test_a_line_cut_by_a_crash_is_removed_and_the_rest_stands(tmp_path: Path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    await journal.append(KEY, {"n": 1})
    journal.close()
    path.write_bytes(path.read_bytes() + b'{"key": ["thread", 2, 0, "d"], "rep')
    again = Journal(path)
    await again.append(KEY._replace(turn=3), {"n": 3})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["reply"] for line in lines] == [{"n": 1}, {"n": 3}]


async def test_a_damaged_line_inside_is_told_and_nothing_is_removed(tmp_path: Path):
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"key": \n{"key": ["t", 1, 0, "d"], "reply": {}}\n')
    before = path.read_bytes()
    with pytest.raises(StoreError, match="line 1 of the journal"):
        Journal(path)
    assert path.read_bytes() == before


async def test_a_second_process_is_refused(tmp_path: Path):
    journal = Journal(tmp_path / "j.jsonl")
    code = "import sys; from pathlib import Path; from rubricem.memory.runs import Journal\n"
    code += "Journal(Path(sys.argv[1]))"
    other = subprocess.run(
        [sys.executable, "-c", code, str(journal.path)], capture_output=True, text=True, check=False
    )
    assert "belongs to a run that goes on" in other.stderr
    journal.close()


def test_a_journal_that_nobody_holds_any_more_is_free(tmp_path: Path):
    Journal(tmp_path / "j.jsonl")  # as where the task that opened it was cancelled meanwhile
    Journal(tmp_path / "j.jsonl").close()


@pytest.mark.parametrize("started", [False, True], ids=["before", "in"])
def test_a_journal_whose_loop_ended_before_or_in_a_write_is_closed_and_whole(
    started: bool, tmp_path: Path
):
    journal, writing = Journal(tmp_path / "j.jsonl"), threading.Event()
    write = journal._write

    def slow(block: bytes) -> None:
        writing.set()
        time.sleep(0.05)
        write(block)

    journal._write = slow  # type: ignore[method-assign]

    async def ended() -> None:
        appending = asyncio.create_task(journal.append(KEY, {"text": "plan"}))
        while started and not writing.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        assert not appending.done()

    asyncio.run(ended())
    journal.close()
    again = Journal(tmp_path / "j.jsonl")
    assert again.find(KEY) in ({"text": "plan"}, None if not started else {"text": "plan"})
    again.close()


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path):
    code = textwrap.dedent("""
        import asyncio, sys
        from pathlib import Path
        from rubricem.memory.runs import CallKey, Journal
        async def main():
            journal = Journal(Path(sys.argv[1]))
            for n in range(100000):
                await journal.append(CallKey("t", n, 0, "d"), {"n": n})
                print(n, flush=True)
        asyncio.run(main())
    """)
    path = tmp_path / "j.jsonl"
    writer = Process([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    writer.stdout.close()
    journal = Journal(path)
    assert all(journal.find(CallKey("t", n, 0, "d")) == {"n": n} for n in acknowledged)
    journal.close()


async def test_half_a_block_on_a_full_disk_does_not_damage_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal = Journal(tmp_path / "j.jsonl")
    write, calls = os.write, []

    def short(descriptor: int, block: bytes) -> int:
        calls.append(len(block))
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(block)[:10] if len(calls) == 1 else block)

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(StoreError, match="No space left"):
        await journal.append(KEY, {"n": 1})
    await journal.append(KEY._replace(turn=2), {"n": 2})
    journal.close()
    assert Journal(journal.path).find(KEY._replace(turn=2)) == {"n": 2}
