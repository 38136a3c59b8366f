"""The judged benchmark's groups and its stand-in for a judge."""

import asyncio
import json
from typing import Any

import pytest

from benchmarks.judged import (
    FAULTS,
    SUBJECTS,
    Credulous,
    Draft,
    Reader,
    Understanding,
    below,
    cite,
    groups_of,
    judged,
    main,
    plain,
    read_sets,
)
from rubricem.agent.learning.scoring import checked_by_rules, support_of
from rubricem.agent.reports.cited import cited_answer
from rubricem.judge.base import stage_text
from rubricem.memory.schema import Message, Stage
from tests.support.scripted_server import ScriptedServer

SUBJECT = json.loads(SUBJECTS.read_text(encoding="utf-8"))[5]


async def test_the_stand_in_doubts_only_what_a_shown_passage_lacks_and_support_what_rules_doubt():
    drafts = [Draft(SUBJECT, member) for member in range(4)]
    FAULTS["invented_citation"][1](drafts[-1])
    runs = [draft.run() for draft in drafts]
    assert [support_of(checked_by_rules(run)) for run in runs] == [1, 1, 1, 0.75]
    for judge in (Reader(), Credulous()):
        assert below(await judged(judge, SUBJECT, runs), Stage.ANSWER)
    free = await judged(Credulous(), SUBJECT, runs, "off")
    assert not below(free, Stage.ANSWER), "a judge that likes everything sees no fault by itself"
    shown = {stage.value: "" for stage in Stage}
    claim = {"answer": cite(2, SUBJECT["invented"])}
    passage = {"passage S2": SUBJECT["facts"][1]["passage"]}
    assert Reader().points("Is held by what it cites", {**shown, **claim, **passage}) == 0
    assert Reader().points("Is held by what it cites", {**shown, **passage}) == 2


def test_padding_says_each_claim_again_and_nothing_else():
    for subject, _, runs in (g for g in groups_of(read_sets()["third_"]) if g.kind == "padding"):
        says = Understanding(subject).says
        told = [says[plain(one.claim)] for one in cited_answer(runs[-1]).citations]
        assert told[:5] == told[5:] and len(told) == 10


async def test_the_faulty_run_is_shown_in_any_place():
    places = set[int]()
    for subject, _, runs in groups_of(read_sets()["third_"]):
        judge = Credulous()
        await judged(judge, subject, runs)
        attempts = enumerate(judge.asked[0].split("\nAttempt "))
        places |= {n for n, text in attempts if stage_text(runs[-1], Stage.ANSWER) in text}
    assert places == {1, 2, 3, 4}


def test_a_server_judges_the_first_groups_of_named_sets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    subjects = {subject["question"]: subject for subject in read_sets()["third_"]}

    def reply(body: dict[str, Any], number: int) -> str:
        asked = [Message(m["role"], m["content"]) for m in body["messages"]]
        judge = Understanding(subjects[asked[1].content.split("\n")[1]])
        return asyncio.run(judge.chat(asked)).text

    with ScriptedServer(reply) as server:
        where = "--base-url", server.base_url, "--model", "judge"
        argv = ["judged", *where, "--sets", "unseen_third", "--groups", "3"]
        monkeypatch.setattr("sys.argv", argv)
        main()
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    values = told["values"]
    assert told["holds"] and (values["third_groups"], values["third_faults_seen"]) == (3, 1)
    assert values["third_seen_padding"] == "1 of 1" and values["third_unscored"] == 0
    assert values["third_calls_of_four"] == 5 == len(server.requests) / 3
