"""The run: append-only, token exact, journal first, every source numbered once.

`open_page` in a run: what may be opened, what is shown, counted, repeated and resumed.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from rubricem.agent.models.policy import JournaledCalls, JournaledReader, call_scope
from rubricem.agent.research.graph import _behind
from rubricem.agent.research.run import CallsBeside
from rubricem.agent.sources.documents import Folder
from rubricem.agent.sources.index import nearest
from rubricem.agent.transcript.question import Budgets, Spending
from rubricem.memory.errors import PolicyError, SourceError
from rubricem.memory.runs import Journal
from rubricem.memory.schema import Author, Passage, Sampling, Stage, Status, Usage
from tests.support.judges import FixedReader
from tests.support.policies import (
    BROWSED,
    PASSAGES,
    FixedSearch,
    Opening,
    ScriptedPolicy,
    answer,
    browsed,
    opening,
    plan,
    result,
    tool_texts,
    turns,
)
from tests.support.sites import PageSite, article, names, page_reader
from tests.support.values import source

SAMPLING = Sampling(max_tokens=100)


async def test_ids_of_all_segments_are_the_ids_of_the_whole_text(run_of: Opening):
    run = await run_of(ScriptedPolicy(["plan text"]))
    await run.prompt(Stage.PLAN, "<think>")
    run.keep([(Stage.PLAN, "plan text")], await run.write(Stage.PLAN, SAMPLING))
    ids = [i for s in run.segments for i in s.token_ids or ()]
    assert "".join(map(chr, ids)) == "systemquestion<think>plan text"
    assert run.text == "<think>plan text"


async def test_a_completion_is_cut_into_stages_by_tokens(run_of: Opening):
    run = await run_of(ScriptedPolicy(["plancall"]))
    written = await run.write(Stage.PLAN, SAMPLING)
    run.keep([(Stage.PLAN, "plan"), (Stage.RESEARCH, "call")], written)
    plan, call = run.segments[1:]
    assert (plan.stage, plan.text, plan.token_ids) == (Stage.PLAN, "plan", tuple(map(ord, "plan")))
    assert (call.stage, call.text, call.logprobs) == (Stage.RESEARCH, "call", (-0.5,) * 4)


async def test_the_next_process_gets_finished_calls_from_the_journal(run_of: Opening):
    first, second = ScriptedPolicy(["plan"]), ScriptedPolicy(["never asked"])
    run = await run_of(first)
    written = await run.write(Stage.PLAN, SAMPLING)
    run.journal.close()
    again = await run_of(second)
    assert await again.write(Stage.PLAN, SAMPLING) == written
    assert second.calls == []
    assert again.spending.usage == run.spending.usage


async def test_a_call_under_another_transcript_is_a_new_call(run_of: Opening):
    policy = ScriptedPolicy(["one", "two"])
    run = await run_of(policy)
    await run.write(Stage.PLAN, SAMPLING)
    await run.prompt(Stage.PLAN, "x")
    assert (await run.write(Stage.PLAN, SAMPLING)).text == "two"


async def test_each_call_has_its_own_seed_and_a_rerun_the_same(run_of: Opening):
    seeds = []
    for folder in ("a", "b"):
        policy = ScriptedPolicy(["one", "two"])
        run = await run_of(policy, folder=folder)
        await run.write(Stage.PLAN, SAMPLING)
        await run.prompt(Stage.PLAN, "x")
        await run.write(Stage.PLAN, SAMPLING)
        seeds.append([sampling.seed for _, sampling in policy.calls])
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


async def test_sources_are_numbered_in_order_keep_their_number_and_are_named_again(run_of: Opening):
    search = FixedSearch(PASSAGES[:2])
    run = await run_of(ScriptedPolicy([]), search, passages=2)
    first = await run.search("lru cache")
    again = await run.search("others")
    search.passages = [PASSAGES[1], PASSAGES[2]]
    second = await run.search("other words")
    assert [s.id for s in first.sources] == [s.id for s in again.sources] == ["S1", "S2"]
    assert again.new == frozenset()
    assert [s.id for s in second.sources] == ["S3"]
    assert run.sources["S3"].query == "other words"


async def test_what_the_embedded_model_weighs_beside_a_run_keeps_to_its_tokens_also_in_a_resume(
    tmp_path: Path,
):
    async def weighed() -> tuple[Usage, int]:
        """100 tokens are read for each of three claims, and 250 may be."""
        reader, beside = FixedReader(lambda text: (0.5, 0.5)), CallsBeside(Spending(Budgets(250)))
        journal = Journal(tmp_path / "journal.jsonl")
        calls = JournaledReader(reader, JournaledCalls(journal, beside, beside.note))  # type: ignore[arg-type]
        with call_scope("checks"):
            for claim in (1, 2):
                await calls.weigh([claim] * 100, ("Yes", "No"))
            with pytest.raises(PolicyError, match="the budget of 250 new tokens ran out"):
                await calls.weigh([3] * 100, ("Yes", "No"))
        journal.close()
        return beside.used, len(reader.texts)

    used = Usage(prompt_tokens=200, cost=0.0, calls=2)
    assert await weighed() == (used, 2)
    assert await weighed() == (used, 0), "the journal has both, and they are spent all the same"


async def test_a_failed_search_says_why_and_is_not_remembered_as_an_empty_one(run_of: Opening):
    search = FixedSearch(error="index is gone")
    run = await run_of(ScriptedPolicy([]), search)
    found = await run.search("lru")
    assert (found.sources, found.error) == ((), "index is gone")
    await run.prompt(Stage.RESEARCH, "failed", Author.TOOL)
    search.error = ""
    assert len((await run.search("lru")).sources) == 3


async def test_half_an_emoji_neither_hangs_nor_shifts_the_text(run_of: Opening):
    run = await run_of(ScriptedPolicy(["a\ud83d b"]))
    written = await run.write(Stage.PLAN, SAMPLING)
    assert written.text == "a\ufffd b"
    assert len(written.text) == len(written.token_ids or ())


FACT = "The revenue of Acme in 2023 was 12.5 million dollars, its report says. "
FILLER = "The company was founded by two brothers who liked anvils very much indeed. " * 16


class Pages:
    """A `PageReader` with fixed pages that remembers what was read."""

    def __init__(self, **pages: str) -> None:
        self.pages = {f"https://{name}.test/": text for name, text in pages.items()}
        self.read_so_far: list[str] = []

    async def read(self, address: str) -> list[Passage]:
        self.read_so_far.append(address)
        if address not in self.pages:
            raise SourceError("acme.test answered 404 for that page.")
        parts = self.pages[address].split("|")
        return [Passage("Acme", address, f"part {i}", text) for i, text in enumerate(parts, 1)]


async def test_a_source_s_page_is_opened_read_and_cited(tmp_path: Path):
    with PageSite({"/results": article("Acme results", FILLER, FACT)}) as site:
        reader = page_reader(tmp_path, allowed=("acme.test",), resolve=names(acme_test="127.0.0.1"))
        address = site.address("/results", "acme.test")
        run = await browsed(
            tmp_path,
            turns(opening("S1"), last='It was <cite id="S2">12.5 million dollars</cite>.'),
            [replace(result(address), date="published 2024-05-01")],
            reader,
        )
        assert [path for _, path in site.asked] == ["/results"]
    assert run.status is Status.FINISHED
    page = run.sources[1]
    assert (page.id, page.tool, page.location) == ("S2", "open_page", address)
    assert "12.5 million" in page.text and "12.5 million" in tool_texts(run)[1]
    assert f"{address}, published 2024-05-01" in tool_texts(run)[1]
    assert run.sources[0].place == "published 2024-05-01", "told once"
    assert run.tool_calls == 2


async def test_of_a_long_page_the_nearest_passages_are_shown_in_its_order(tmp_path: Path):
    parts = [f"Chapter {i} is about anvils number {i}." for i in range(30)]
    parts[21], parts[7] = FACT, "Acme revenue stood in 2023 on page seven."
    pages = Pages(acme="|".join(parts))
    run = await browsed(
        tmp_path,
        [plan(), opening("S1 2023"), opening("S1 million dollars"), answer()],
        [result("https://acme.test/")],
        pages,
        passage_words=12,
    )
    shown, again = tool_texts(run)[1:]
    assert "These parts of the page are nearest to the question." in shown
    assert shown.index("page seven") < shown.index("12.5 million")
    ids = {source.place: source.id for source in run.sources[1:]}
    assert {"part 8", "part 22"} <= {*ids}
    assert f"The nearest of all stands above: {ids['part 22']}." in again and FACT not in again


@pytest.mark.parametrize(
    ("wanted", "rows", "question"),
    [
        *(
            (wanted, [result("https://acme.test/")], BROWSED)
            for wanted in (
                "S1",
                "[s1]",
                "https://acme.test/",
                "HTTPS://ACME.test#top",
                "S1 revenue",
                "acme results",
            )
        ),
        ("https://acme.test/", [], f"{BROWSED} See (https://acme.test)."),
    ],
)
async def test_a_page_is_opened_by_its_id_its_address_or_the_one_the_user_wrote(
    wanted: str, rows: list[Passage], question: str, tmp_path: Path
):
    pages = Pages(acme=FACT)
    run = await browsed(tmp_path, turns(opening(wanted)), rows, pages, question=question)
    assert pages.read_so_far == ["https://acme.test/"]
    assert (run.status, len(run.sources)) == (Status.FINISHED, len(rows) + 1)


async def test_a_document_is_read_on_from_where_a_snippet_breaks_off(tmp_path: Path):
    """Of any source, in pieces under one heading, to its end."""
    words = "It was held on the bench, and it ran well for the whole of that long day."
    text = "".join(f"## Trial {n}\n\n{f'Trial {n}: {words} ' * 9}\n\n" for n in range(1, 9))
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "pump.md").write_text(f"# Pump\n\n{text}")
    folder = Folder(tmp_path / "documents", tmp_path / "indexes")
    numbered = [opening(f"S1 from {number}") for number in (9, 0, 17)]
    script = [plan("trial 3 bench"), opening("S1"), *numbered, answer()]
    run = await browsed(tmp_path / "runs", script, [], None, source=folder, passages=1)
    first, second, third, zeroth, beyond = tool_texts(run)
    assert "pump.md, Pump > Trial 3" in first and "Trial 3: It was held" in first
    assert "Passages 7 to 14 of 16. It goes on: open_page S1 from 15" in second
    assert "Trial 4:" in second and "Trial 7:" in second and "Trial 3:" not in second
    assert "Passages 9 to 16 of 16." in third and "Trial 8:" in third and "goes on" not in third
    assert "Passages 1 to 8 of 16." in zeroth and "Its last passage is number 16." in beyond


async def test_a_file_of_a_folder_is_opened_by_its_name_and_no_other_file_is(tmp_path: Path):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "pump.md").write_text("# Pump\n\nMore stands in valve.md.\n")
    (tmp_path / "documents" / "valve.md").write_text("# Valve\n\nIt opens at 3 bar.\n")
    (tmp_path / "secret.md").write_text("# Secret\n\nIt is 4711.\n")
    folder = Folder(tmp_path / "documents", tmp_path / "indexes")
    named = [opening(name) for name in ("valve.md", "../secret.md", str(tmp_path / "secret.md"))]
    script = [plan("what stands in which"), *named, answer()]
    run = await browsed(tmp_path / "runs", script, [], None, source=folder, passages=1)
    _, first, *refused = tool_texts(run)
    assert "It opens at 3 bar." in first
    assert all(NOT_RETURNED in each for each in refused) and len(refused) == 2


def test_a_page_is_opened_where_nothing_was_shown_of_it():
    page = [Passage("Pump", "pump.md", f"Trial {n}", f"Trial {n} was held.") for n in range(4)]

    def opened(*shown: int) -> int:
        return _behind(source(1, " ".join(page[n].text for n in shown)), page, True)

    assert [opened(1), opened(1, 2, 3), opened(0, 1, 3), opened(0, 1, 2, 3)] == [2, 0, 2, 0]
    assert _behind(source(1, page[2].text), page, False) == 2, "of what was found before, itself"


def test_of_a_page_the_best_of_each_word_is_near_and_not_the_list_of_all_of_its_words():
    told = [f"{name} is about one thing only." for name in ("alpha", "beta", "gamma")]
    heads = [f"Part {n} of {name}" for n, name in enumerate(("alpha", "beta", "gamma"))]
    texts = [
        "\n".join(["- alpha", "- beta", "- gamma", *[f"- other{n}" for n in range(90)]]),
        *told,
    ]
    page = [Passage("Manual", "m.html", h, t) for h, t in zip(["All", *heads], texts, strict=True)]
    assert set(nearest(page, "alpha beta gamma", "How do they differ?")[:3]) == {1, 2, 3}


NOT_RETURNED = 'error="Only a page that a search returned'
ACME = result("https://acme.test/", "More stands at https://other.test/ and elsewhere.")
LOCAL = Passage("functools", "python:functools", "cache", "A simple cache.")
GONE = (
    '<tool_output error="acme.test answered 404 for that page.">\n'
    "The page was not opened.\n</tool_output>"
)


@pytest.mark.parametrize(
    ("wanted", "found", "reads", "said"),
    [
        ("https://other.test/", ACME, True, NOT_RETURNED),
        ("S9", ACME, True, NOT_RETURNED),
        ("http://127.0.0.1/", ACME, True, NOT_RETURNED),
        ("http://169.254.169.254/latest/meta-data/", ACME, True, NOT_RETURNED),
        ("file:///etc/passwd", ACME, True, NOT_RETURNED),
        ("../secret", ACME, True, NOT_RETURNED),
        ("https://acme.test/x", ACME, True, NOT_RETURNED),
        ("S1", LOCAL, True, 'error="python:functools cannot be opened'),
        ("S1", ACME, False, 'error="https://acme.test/ cannot be opened'),
        ("S1", result("https://gone.test/"), True, GONE),
    ],
)
async def test_what_may_not_or_cannot_be_opened_is_a_result(
    wanted: str, found: Passage, reads: bool, said: str, tmp_path: Path
):
    pages = Pages(acme=FACT, other=FACT)
    reader = pages if reads else None
    run = await browsed(tmp_path, turns(opening(wanted)), [found], reader)
    assert pages.read_so_far == (["https://gone.test/"] if said == GONE else [])
    assert tool_texts(run)[1].startswith("<tool_output " + said.removeprefix("<tool_output "))
    assert (run.status, run.tool_calls) == (Status.FINISHED, 2)


async def test_a_repeated_call_is_answered_from_the_transcript(tmp_path: Path):
    pages = Pages(acme=FACT)
    run = await browsed(
        tmp_path,
        turns(opening("S1"), opening("[s1]")),
        [result("https://acme.test/")],
        pages,
    )
    assert pages.read_so_far == ["https://acme.test/"]
    assert (run.tool_calls, len(run.sources)) == (2, 2)
    assert "Shown above." in tool_texts(run)[2]


async def test_a_copy_of_a_page_counts_as_the_same_source(tmp_path: Path):
    text = FILLER + FACT
    pages = Pages(acme=text, mirror=text.replace(", its report says", ""))
    results = [result("https://acme.test/"), result("https://mirror.test/", "A short mirror.")]
    run = await browsed(tmp_path, turns(opening("S1"), opening("S2")), results, pages)
    assert [source.location for source in run.sources] == [
        "https://acme.test/",
        "https://mirror.test/",
        "https://acme.test/",
    ]
    assert "Shown above. It stands in https://mirror.test/, too." in tool_texts(run)[2]
    other = Pages(acme=f"{text} It has 6,000 of them.", mirror=f"{text} It has 8,000 of them.")
    run = await browsed(tmp_path / "b", turns(opening("S1"), opening("S2")), results, other)
    assert "8,000" in tool_texts(run)[2], "which the other page denies"


async def test_a_resumed_run_opens_no_page_twice(tmp_path: Path):
    pages = Pages(acme=FACT, mirror=FACT + FILLER)
    results = [result("https://acme.test/"), result("https://mirror.test/", "A short mirror.")]
    script = turns(opening("S1"), opening("S2"))
    first = await browsed(tmp_path, script, results, pages)
    assert len(pages.read_so_far) == 2
    again = await browsed(tmp_path, [], results, pages)
    assert len(pages.read_so_far) == 2
    assert again.sources == first.sources
    assert again.transcript() == first.transcript()


async def test_a_run_goes_on_under_the_prompts_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = [result("https://acme.test/")]
    first = await browsed(tmp_path, turns(), rows, None)
    [kept] = tmp_path.rglob("trajectory.json")
    kept.unlink()
    monkeypatch.setattr("rubricem.agent.research.free.system_prompt", lambda *_, **__: "Other.")
    again = await browsed(tmp_path, [], rows, None)
    assert again.system == first.system != "Other."
    assert again.transcript() == first.transcript()
