"""Questions in other languages over a folder in theirs: found, read, cited, held by the rules."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks.languages import TOLD, folders, questions
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.rules import Pair, likely_finding
from rubricem.agent.research.forced import ForcedDecoder
from rubricem.agent.sources.documents import Folder
from rubricem.agent.transcript.words import overlap
from rubricem.memory.schema import Decoding, Status
from tests.conftest import ROOT
from tests.support.policies import new_run
from tests.support.slots import Filling, SmallModel, walk


@dataclass(frozen=True)
class Told:
    """A page that answers a question, one that does not, and what a model makes of them."""

    language: str
    question: str
    page: str
    other: str
    claim: str
    wrong: str


CASES = [Told(**told) for told in json.loads((ROOT / "tests/data/languages.json").read_bytes())]


class Opened(SmallModel):
    """Keeps what a run begins with."""

    opened = ""

    async def render(self, system: str, question: str) -> tuple[int, ...]:
        self.opened = question
        return await super().render(system, question)


@pytest.mark.parametrize("case", CASES, ids=[case.language for case in CASES])
async def test_a_question_is_answered_from_a_folder_in_its_language(case: Told, tmp_path: Path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in (("a", case.other), ("b", case.page), ("c", f"{case.other} {case.other}")):
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    source = Folder(folder, tmp_path / "cache")
    await source.prepare()
    found = await source.search(case.question, 3)
    assert found[0].location.endswith("b.txt"), "found"

    policy = Opened(Filling(plan="", drafts=case.claim))
    run = new_run(tmp_path / "run", policy, source, Decoding.FORCED)  # type: ignore[arg-type]
    run.ask = replace(run.ask, question=case.question)
    run = await walk(run, ForcedDecoder())
    assert f"Write in {case.language}," in policy.opened
    assert run.status is not Status.NO_EVIDENCE
    cited = run.sources["S1"]
    [cite] = cited_answer(run.trajectory("t")).citations
    assert cite.claim in case.page and overlap(case.claim, cite.claim) > 0.8, "read and cited"
    assert case.page in cited.text
    assert likely_finding(Pair(case.claim, cited)).verdict == "supported"
    assert likely_finding(Pair(case.wrong, cited)).verdict == "unsupported", "a number changed"


async def test_the_page_of_a_fact_comes_first_in_each_language(tmp_path: Path):
    where, asked = folders(tmp_path / "texts"), questions(False, TOLD)
    tools = {code: Folder(Path(path), tmp_path / code) for code, path in where.items()}
    assert len(asked) == 28 and len(tools) == 7
    for question in asked:
        found = await tools[question["source"]].search(question["question"], 2)
        assert re.search(question["pattern"], found[0].text), question["question"]
