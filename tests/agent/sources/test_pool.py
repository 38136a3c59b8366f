"""Reading in processes: what hurts a reader costs that reading, in bounded time and memory."""

import gzip
import os
import signal
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rubricem.agent.sources.sandbox import worker
from rubricem.agent.sources.sandbox.pool import Job, Pool, Reply
from rubricem.agent.sources.sandbox.turns import REQUESTER, Requester
from rubricem.memory.errors import SourceError
from tests.support.waiting import PATIENCE, wait_for

SECONDS, MEGABYTES = 60, 120
"""for what is not to end by its time, on a slow machine as well"""
MANY = " ".join(f"a{i}=1" for i in range(100_000)).encode()
"""attributes of one tag, whose parser compares each with all before"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(1)
    yield pool
    pool.close()


def page(content: bytes, packing: str = "", seconds: int = SECONDS) -> Job:
    asked = {"address": "https://a.test/x", "declared": "text/html", "most": 20_000_000}
    return Job("page", "The page", {**asked, "packing": packing}, content, seconds, MEGABYTES)


def reply(content: bytes) -> Job:
    return Job("json", "The reply", {"packing": "", "most": 10**7}, content, SECONDS, MEGABYTES)


def document(path: Path, seconds: int = SECONDS) -> Job:
    return Job("document", path.name, {"name": path.name}, b"", seconds, MEGABYTES, "", str(path))


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (page(b"<p " + MANY + b">x", seconds=1), "takes too long"),
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
    assert (await pool.read(page(gzip.compress(b"well"), "gzip")))["passages"] == [
        ["lines 1-1", "well"]
    ]


def test_of_many_documents_only_those_fail_that_end_their_reader(pool: Pool, tmp_path: Path):
    given = {"a.txt": SECONDS, "b.html": 1, "c.txt": SECONDS}
    for name in given:
        (tmp_path / name).write_text("well")
    (tmp_path / "b.html").write_bytes(b"<p " + MANY + b">x")
    begun = [pool.submit(document(tmp_path / name, most)) for name, most in given.items()]
    replies = [each.result() for each in begun]
    assert [isinstance(each, bytes) for each in replies] == [True, False, True]
    assert "b.html takes too long to read" in str(replies[1])


def slow(seconds: int = 60) -> Job:
    """What takes a processor for as long as it may."""
    return Job("patterns", "It", {"patterns": [r"(a|aa)+$"]}, b"a" * 60 + b"b", seconds, MEGABYTES)


def halt(pool: Pool) -> None:
    """Have what works go on for ever, and cost no processor."""
    for reader, _ in [*pool._working.values()]:
        os.kill(reader._process.pid, signal.SIGSTOP)


def submitted(pool: Pool, requester: Requester, job: Job) -> Future[Reply]:
    before = REQUESTER.set(requester)
    try:
        return pool.submit(job)
    finally:
        REQUESTER.reset(before)


def test_the_work_of_one_person_waits_for_no_other_persons_and_ends_with_its_run():
    pool = Pool(2)
    eve, ann = Requester("eve"), Requester("ann")
    hers = [submitted(pool, eve, slow()) for _ in range(128)]
    wait_for(lambda: len(pool._working) == 2)
    halt(pool)
    for _ in range(3):  # while both processes are taken for minutes
        reply = submitted(pool, ann, page(b"<p>well")).result(PATIENCE)
        assert isinstance(reply, bytes) and not any(each.done() for each in hers)
    begun = time.monotonic()
    pool.cancel(eve)
    for each in (*hers, submitted(pool, eve, page(b"<p>more"))):
        with pytest.raises(SourceError, match="has ended"):
            each.result(PATIENCE)
    wait_for(lambda: not pool._working)
    assert time.monotonic() - begun < 60
    assert isinstance(submitted(pool, Requester("eve"), page(b"<p>x")).result(PATIENCE), bytes)
    pool.close()


def test_what_is_not_short_leaves_the_process_for_short_work_and_is_done_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("rubricem.agent.sources.sandbox.pool.SHORT_SECONDS", 4.0)
    pool = Pool(1)
    eve, bob = Requester("eve"), Requester("bob")
    first = submitted(pool, eve, slow())
    wait_for(lambda: len(pool._working) == 1)
    halt(pool)
    second = submitted(pool, bob, slow())
    wait_for(lambda: len(pool._working) == 2)
    halt(pool)
    reply = submitted(pool, Requester("ann"), page(b"<p>well")).result(PATIENCE)
    assert isinstance(reply, bytes) and not second.done() and not first.done()
    pool.cancel(eve)
    wait_for(lambda: [piece.requester for piece in [*pool._working]] == [bob])
    pool.cancel(bob)
    pool.close()


def test_a_user_has_so_much_read_in_an_hour_and_the_owner_whatever_they_want(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("rubricem.agent.sources.sandbox.pool.PERSONS_SECONDS", 0.5)
    pool = Pool(1)
    for person, said in (("eve", "used up"), ("", "takes too long")):
        requester = Requester(person)
        first, then = submitted(pool, requester, slow(1)), submitted(pool, requester, slow(1))
        assert "takes too long" in str(first.result(PATIENCE))
        assert said in str(then.result(PATIENCE))
    assert pool._turns.spent("eve") >= 0.9
    monkeypatch.setattr("rubricem.agent.sources.sandbox.turns.HOUR", -1.0)
    assert pool._turns.spent("eve") == 0, "an hour later"
    pool.close()


async def test_a_reader_that_goes_on_for_ever_is_killed_by_the_clock():
    pool = Pool(1, clock_seconds=0.5)
    with pytest.raises(SourceError, match="takes too long"):
        await pool.read(slow())
    pool.close()


async def test_what_is_no_plain_file_or_was_made_a_link_is_not_opened(pool: Pool, tmp_path: Path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a.txt").write_text("hidden")
    (tmp_path / "link.txt").symlink_to(tmp_path / "secret" / "a.txt")
    (tmp_path / "folder").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "fifo.txt")
    for name in ("link.txt", "folder/a.txt", "fifo.txt", "secret", "none.txt"):
        with pytest.raises(SourceError, match="could not be opened: "):
            await pool.read(document(tmp_path / name))
    assert "hidden" in str(await pool.read(document(tmp_path / "secret" / "a.txt")))


def test_passages_of_a_long_table_are_longer_so_that_all_of_it_is_held(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(worker, "MOST_PASSAGES", 120)
    content = "part,hours\n" + "".join(f"p{n},{n}\n" for n in range(4000))
    limits = cast(worker.Limits, SimpleNamespace(get_on=lambda: None))
    told = worker._document({"name": "a.csv"}, content.encode(), limits)
    assert not told["note"] and told["passages"][-1][1].endswith("hours: 3999")
    headings = [heading for heading, _ in told["passages"]]
    assert len({*headings}) == len(headings), "one of each section"
