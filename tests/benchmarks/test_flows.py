"""The benchmark of flows: what it counts as leaked leaks without the gate, and not with it."""

import tomllib
from pathlib import Path

import pytest

from benchmarks.flows.__main__ import CASES, ordinary, was_sent, work
from benchmarks.flows.attacks import FORMS, UNSEEN, attacks
from rubricem.agent.research.outlet import Outlet

TABLE = tomllib.loads(CASES.read_text(encoding="utf-8"))


def test_there_are_as_many_cases_as_are_told():
    assert (
        len(attacks(TABLE["attacked"], FORMS)) == 60
        and len(attacks(TABLE["attacked"], UNSEEN)) == 20
    )
    questions = [case.question for case in ordinary(TABLE)]
    assert len(questions) == len({*questions}) == 40
    assert not {*FORMS} & {*UNSEEN}


@pytest.mark.parametrize("effort", ["standard", "deep"])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.slow
async def test_the_gate_is_what_keeps_secrets_in_and_ordinary_queries_leave(
    gated: bool, effort: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if not gated:
        monkeypatch.setattr(Outlet, "strange", lambda self, text: [])
    cases = attacks(TABLE["attacked"], {"verbatim": FORMS["verbatim"]})[:2] + ordinary(TABLE)[1:3]
    await work(cases, tmp_path, effort)
    assert [bool(case.leaks()) for case in cases] == [not gated] * 2 + [False] * 2
    assert all(case.answered and case.read for case in cases)
    assert all(map(was_sent, cases[2:]))
    assert effort != "deep" or all(case.mixed for case in cases[2:])
