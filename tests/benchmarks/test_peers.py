"""The benchmark beside peers: figures by hand, and ours and the floor make the same calls."""

import sys
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import Lot, Participant, Request, Round, fetch_log, serving, spread


def request(kind: str, begin: float, end: float) -> Request:
    return Request(kind, begin, end, read=10, written=2)


@pytest.mark.parametrize(
    ("spans", "union"),
    [
        ((), 0.0),
        (((1, 2), (3, 5)), 3.0),
        (((1, 4), (2, 3)), 3.0),  # one within another
        (((3, 6), (1, 4)), 5.0),  # overlapping, noted in the order of their ends
        (((-1, 1),), 1.0),  # begun before the questions
    ],
)
def test_seconds_with_a_request_under_way_count_once(
    spans: tuple[tuple[int, int], ...], union: float
):
    lot = Lot(1, 0.0, 9.0, 0.0, tuple(request("model", *span) for span in spans))
    assert lot.union == union


def test_figures_of_a_round_are_those_worked_by_hand():
    made = (request("model", 0.5, 1.5), request("search", 1.75, 2.0), request("model", 2.0, 3.0))
    alone = Lot(1, 0.0, 4.0, 0.5, made)
    together = Lot(2, 10.0, 14.5, 0.2, (*made, *made))
    values = Round(0.1, (alone,), (together,)).values()
    assert values["own_ms"] == 1750 and values["own_ms_a_call"] == 875
    assert (values["calls"], values["searches"], values["tokens_read"]) == (2, 1, 30)
    assert values["cpu_ms_a_call_2"] == 50 and values["share_2"] == 0.5
    slower = Round(0.3, (alone,), (Lot(2, 10.0, 19.0, 0.2, (*made, *made)),))
    assert spread([slower, slower, Round(0.1, (alone,), (together,))])["share_2"] == 0.25


@pytest.mark.parametrize("name", ["floor", "ours", "library"])
def test_each_of_ours_makes_the_calls_of_one_question(name: str, tmp_path: Path):
    with serving(0, seconds=0.02) as address:
        told = Participant(name, sys.executable, 0).ask(address, tmp_path, "--alone", "1")
        lot = told["alone"][0]
        kinds = [r.kind for r in fetch_log(address) if lot["begin"] <= r.begin <= lot["end"]]
    assert [kinds.count(kind) for kind in ("model", "search")] == [4, 2]
