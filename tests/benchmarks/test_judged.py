"""The judged benchmark's groups and its stand-in for a judge."""

import json

from benchmarks.judged import FAULTS, SUBJECTS, Credulous, Draft, Reader, below, cite, judged
from rubricem.agent.learning.scoring import checked_by_rules, support_of
from rubricem.memory.schema import Stage

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
