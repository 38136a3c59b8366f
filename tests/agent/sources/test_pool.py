"""Reading in processes: what hurts a reader costs that reading, in bounded time and memory."""

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rubricem.agent.sources.sandbox import worker
from rubricem.agent.sources.sandbox.pool import Job, Pool
from rubricem.memory.errors import SourceError

SMALL: Any = {"seconds": 1, "megabytes": 120}
MANY = " ".join(f"a{i}=1" for i in range(100_000)).encode()
"""attributes of one tag, whose parser compares each with all before"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(1)
    yield pool
    pool.close()


def page(content: bytes, packing: str = "") -> Job:
    asked = {"address": "https://a.test/x", "declared": "text/html", "most": 20_000_000}
    return Job("page", "The page", {**asked, "packing": packing}, content, **SMALL)


def reply(content: bytes, packing: str = "") -> Job:
    return Job("json", "The reply", {"packing": packing, "most": 10_000_000}, content, **SMALL)


def document(path: Path) -> Job:
    return Job("document", path.name, {"path": str(path)}, **SMALL)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (page(b"<p " + MANY + b">x"), "takes too long"),
        (page(b"<div>" + b"<p>x" * 600_000), "needs more than 120 MB"),
        (page(zlib.compress(bytes(19_000_000)), "deflate"), "unpacks to more than 5 MB"),
        (page(gzip.compress(b"one") + bytes(9) + b"two", "gzip"), "more follows its packing"),
        (page(b"no gzip", "gzip"), "its packing is damaged"),
        (reply(b"[" * 90_000), "is no JSON"),
        (reply(b"9" * 5000), "is no JSON"),
        (reply(b"[" + b"[]," * 2_000_000 + b"1]"), "needs more than 120 MB"),
    ],
    ids=["time", "memory", "ratio", "behind", "damaged", "nested", "digits", "JSON's memory"],
)
async def test_what_would_hurt_its_reader_fails_alone(pool: Pool, job: Job, said: str):
    with pytest.raises(SourceError, match=said) as caught:
        await pool.read(job)
    assert str(caught.value).startswith(job.name)
    assert (await pool.read(page(gzip.compress(b"well"), "gzip")))["passages"] == [["", "well"]]


def test_of_many_documents_only_those_fail_that_end_their_reader(pool: Pool, tmp_path: Path):
    names = ("a.txt", "b.html", "c.txt")
    for name in names:
        (tmp_path / name).write_text("well")
    (tmp_path / "b.html").write_bytes(b"<p " + MANY + b">x")
    replies = pool.submit([document(tmp_path / name) for name in names]).result()
    assert [isinstance(each, bytes) for each in replies] == [True, False, True]
    assert "b.html takes too long to read" in str(replies[1])


async def test_a_reader_that_waits_for_ever_is_killed_by_the_clock(tmp_path: Path):
    os.mkfifo(tmp_path / "a.txt")
    pool = Pool(1, clock_seconds=0.5)
    with pytest.raises(SourceError, match="takes too long"):
        await pool.read(document(tmp_path / "a.txt"))
    pool.close()


async def test_a_reader_has_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RUBRICEM_API_KEY", "s3cret")
    pool = Pool(1)
    (tmp_path / "a.txt").symlink_to("/proc/self/environ")
    read = json.dumps(await pool.read(document(tmp_path / "a.txt")))
    assert "PYTHONPATH" in read and "s3cret" not in read
    pool.close()


def test_passages_of_a_long_table_are_longer_so_that_all_of_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker, "MOST_PASSAGES", 120)
    (tmp_path / "a.csv").write_text("part,hours\n" + "".join(f"p{n},{n}\n" for n in range(4000)))
    limits = cast(worker.Limits, SimpleNamespace(get_on=lambda: None))
    told = worker._document({"path": str(tmp_path / "a.csv")}, b"", limits)
    assert not told["note"] and told["sections"][-1]["blocks"][-1][1].endswith("hours: 3999")
    assert {len(section["passages"]) for section in told["sections"]} == {1}
