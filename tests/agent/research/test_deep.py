"""Deep research over a real server that answers by script: parts, sections, the edit."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.models.policy import ChatWriter
from rubricem.agent.reports.cited import cited_answer
from rubricem.agent.reports.verifier import AnswerVerifier
from rubricem.agent.research.deep.lead import LeadDecoder
from rubricem.agent.research.deep.parts import Steering
from rubricem.agent.research.deep.sections import edit, numbered, outline, text_of
from rubricem.agent.research.free import user_message
from rubricem.agent.research.researcher import Researcher
from rubricem.agent.transcript.events import Event, InvestigationEvent, ToolReturned
from rubricem.agent.transcript.question import Ask, Budgets, Effort
from rubricem.memory.runs import RunStore
from rubricem.memory.schema import Decoding, Passage, Status, Trajectory
from tests.support.policies import answer, client
from tests.support.scripted_server import Fault, ScriptedServer
from tests.support.scripted_server import Reply as Given
from tests.support.scripted_server import Reply as Native

FIRST = asyncio.FIRST_COMPLETED
QUESTION = "Compare Ada and Bela in weight and age."
FACTS = {
    "ada weight": "Ada weighs 41 kilograms in winter.",
    "ada age": "Ada was born in 1961 at the coast.",
    "bela weight": "Bela weighs 77 kilograms in winter.",
    "bela age": "Bela was born in 1948 in the hills.",
}


class Facts:
    """A source whose passages are found by both of their words."""

    name = "facts"

    async def prepare(self) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        found = [name for name in FACTS if all(word in query.lower() for word in name.split())]
        told = {"ada age": "published 2024-05-01"}
        return [
            Passage(name, f"{name}.md", "", FACTS[name], date=told.get(name, "")) for name in found
        ][:limit]


def investigate(*asked: str) -> str:
    return "".join(
        f'<call_tool name="investigate" items="{n}">{each}</call_tool>'
        for n, each in enumerate(asked, start=1)
    )


PLAN = (
    "<think>Two people.</think><structured_plan><deep_analysis>Easy.</deep_analysis><rubric>\n"
    "1. both figures of Ada\n2. both figures of Bela\n</rubric><research_plan>By person."
    "</research_plan></structured_plan>"
)
REVIEW = (
    "<think>All there.</think><state_evaluation>Covered.</state_evaluation><review>"
    "<rubric_review>1. both figures of Ada [met: S1]\n2. both figures of Bela [met: S3]"
    "</rubric_review><writing_plan>\n## Ada\nher weight and age [S1, S2]\n## Bela\nhis weight and "
    "age [S3, S4]\n</writing_plan></review>"
)

Reply = str | Fault
Script = Callable[[str, str, int], Reply | None]
"""(who is asked, the last message, how many turns were written) -> the reply; None: the usual"""


def usual(who: str, messages: list[Mapping[str, Any]]) -> str:
    last = str(messages[-1]["content"])
    turns = sum(message["role"] == "assistant" for message in messages)
    if who == "lead":
        asked = investigate("How heavy and old is Ada?", "How heavy and old is Bela?")
        return REVIEW if turns else PLAN + asked
    shown = "\n".join(str(message["content"]) for message in messages)
    found = re.findall(r'<snippet id="(S\d+)">\n[^<]*?((?:Ada|Bela) [^<\n]*)', shown)
    cites = [f'<cite id="{source}">{said.strip()}</cite>' for source, said in found]
    if who == "section":
        return "\n\n".join(cites)
    if who == "edit":
        claims = re.findall(r"<cite[^>]*>[^<]*</cite>", last)
        return f"<summary>{claims[0]}</summary>"
    if not turns:
        name = "Ada" if "Ada?" in str(messages[1]["content"]) else "Bela"
        calls = (f"{name} weight", f"{name} age")
        return PLAN + "".join(f'<call_tool name="search">{each}</call_tool>' for each in calls)
    answer = "".join(f"- {cite}\n" for cite in dict.fromkeys(cites))
    return REVIEW.partition("<writing_plan>")[0] + (
        f"<writing_plan>as found</writing_plan></review><answer>\n{answer}"
        "Not found: any colour.\n</answer>"
    )


def kind_of(messages: list[Mapping[str, Any]]) -> str:
    system = str(messages[0]["content"])
    heads = {
        "You lead a research": "lead",
        "You write one section": "section",
        "You edit a research report": "edit",
    }
    return next((kind for head, kind in heads.items() if system.startswith(head)), "part")


def scripted(script: Script) -> ScriptedServer:
    def reply(body: dict[str, Any], number: int) -> Reply:
        messages = body["messages"]
        who, turns = kind_of(messages), sum(m["role"] == "assistant" for m in messages)
        return script(who, str(messages), turns) or usual(who, messages)

    return ScriptedServer(reply)


@asynccontextmanager
async def leading(server: ScriptedServer, folder: Path):
    async with client(server.base_url) as model:
        policy = ChatWriter(model)
        yield Researcher(
            policy=policy,
            decoder=LeadDecoder(),
            decoding=Decoding.FREE,
            search_tool=Facts(),
            store=RunStore(folder),
            template=Ask(""),
            verifier=AnswerVerifier("mark", None),
        )


async def ask_deeply(
    script: Script,
    folder: Path,
    listener: Callable[[Event], None] = lambda event: None,
    stop: asyncio.Event | None = None,
    steering: Steering | None = None,
    **limits: Any,
) -> tuple[Trajectory, ScriptedServer]:
    with scripted(script) as server:
        async with leading(server, folder) as researcher:
            asked = Ask(QUESTION, effort=Effort.DEEP, length=4000, **limits)
            run = await researcher.ask(asked, "t", listener, stop, steering=steering)
            return run, server


def nothing_else(who: str, said: str, turns: int) -> None:
    return None


async def test_the_parts_of_a_question_are_investigated_and_written_by_section(tmp_path: Path):
    run, server = await ask_deeply(nothing_else, tmp_path)
    assert (run.status, run.reason) == (Status.FINISHED, "")
    assert [part.status for part in run.investigations] == [Status.FINISHED] * 2
    assert [part.items for part in run.investigations] == [(1,), (2,)]
    told = cited_answer(run)
    text = told.text()
    assert text.startswith("Ada weighs 41 kilograms in winter [1].")
    assert text.index("## Ada") < text.index("## Bela")
    assert {c.source.text for c in told.citations} == set(FACTS.values())
    # Each part is a run of its own, found by its name, and the lead was not shown its passages.
    store = RunStore(tmp_path)
    assert store.load("t.1").tool_calls == 2 and store.threads() == ["t"]
    lead = [r for r in server.requests if kind_of(r.body["messages"]) == "lead"]
    assert len(lead) == 2 and "<snippet" not in str(lead[-1].body["messages"])
    assert "- ada age (ada age.md, published 2024-05-01): S2\\n" in str(lead[-1].body["messages"])
    parts = [str(r.body["messages"][1]) for r in server.requests]
    assert any("old is Ada?" in asked and "- both figures of Ada" in asked for asked in parts)
    assert run.usage.calls == len(server.requests), "what the parts spent is the lead's"
    assert "Left: 1 of 2 rounds, " in str(lead[-1].body["messages"])
    several = Ask("Who?", whole=QUESTION, serves=("an item",) * 6)
    assert "in 300 to 1,200 words" in user_message(several, told=True)
    assert any("<tool_output>\\nAda age:\\n<snippet" in str(r.body) for r in server.requests)
    sections = [r.body for r in server.requests if kind_of(r.body["messages"]) == "section"]
    assert all("Not found: any colour." in str(each) for each in sections)


async def test_a_lead_is_told_which_finding_cites_what_was_never_found(tmp_path: Path):
    def script(who: str, said: str, turns: int) -> Reply | None:
        if who != "part" or not turns:
            return None
        found = '<cite id="S1">Ada weighs 41 kilograms in winter.</cite>'
        return answer(f'{found} <cite id="S77">Ada swims.</cite>')

    _, server = await ask_deeply(script, tmp_path)
    lead = [r for r in server.requests if kind_of(r.body["messages"]) == "lead"]
    assert "in winter. [S1] Ada swims. [no source]" in str(lead[-1].body["messages"])


@pytest.mark.parametrize("at", [1, 3, 5, 8, 9])
async def test_what_was_finished_before_an_end_is_not_asked_for_again(at: int, tmp_path: Path):
    """The process ends within its nth request; the next one goes on from the journals."""
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(body: dict[str, Any], number: int) -> Reply:
        if number == at:
            loop.call_soon_threadsafe(reached.set)
        return usual(kind_of(body["messages"]), body["messages"])

    asked = Ask(QUESTION, effort=Effort.DEEP)
    with ScriptedServer(script) as server:
        async with leading(server, tmp_path) as researcher:
            first = asyncio.create_task(researcher.ask(asked, "t"))
            await asyncio.wait([first, asyncio.create_task(reached.wait())], return_when=FIRST)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            before = len(server.requests)
        async with leading(server, tmp_path) as researcher:
            run = await researcher.ask(asked, "t")
        bodies = [json.dumps(r.body["messages"]) for r in server.requests]
    assert run.status is Status.FINISHED and "## Bela" in cited_answer(run).text()
    assert len(bodies) - len(set(bodies)) <= before - at + 2, "those in flight, at most"


@pytest.mark.parametrize("fault", [Fault(500), Fault(400, "no")], ids=["away", "refused"])
async def test_a_part_that_fails_costs_nothing_else_and_is_told(fault: Fault, tmp_path: Path):
    def script(who: str, said: str, turns: int) -> Reply | None:
        return fault if who == "part" and "old is Bela?" in said else None

    run, _ = await ask_deeply(script, tmp_path)
    assert [part.status for part in run.investigations] == [Status.FINISHED, Status.FAILED]
    assert run.investigations[1].reason
    assert "Ada weighs 41 kilograms" in cited_answer(run).text()


async def test_a_part_without_end_ends_by_its_share_of_the_calls(tmp_path: Path):
    def script(who: str, said: str, turns: int) -> Reply | None:
        if who == "part" and "old is Bela?" in said and "No further search" not in said[-200:]:
            query = f"Bela weight again {turns}"
            return f"<think>More.</think><call_tool name='search'>{query}</call_tool>"
        return None

    run, _ = await ask_deeply(script, tmp_path, tool_calls=4)
    assert run.investigations[1].tool_calls == 4
    assert "Bela weighs 77 kilograms" in cited_answer(run).text()


async def test_a_lead_on_a_server_that_calls_tools_is_given_its_own(tmp_path: Path):
    args = json.dumps({"question": "How heavy and old is Ada?", "items": "1"})
    call = {"index": 0, "id": "a", "function": {"name": "investigate", "arguments": args}}

    def script(who: str, said: str, turns: int) -> Any:
        return Native(PLAN, calls=[call]) if who == "lead" and not turns else None

    with scripted(script) as server:
        server.models = [{"id": "scripted", "supported_parameters": ["tools"]}]
        async with leading(server, tmp_path) as researcher:
            run = await researcher.ask(Ask(QUESTION, effort=Effort.DEEP, length=4000), "t")
    assert [part.items for part in run.investigations] == [(1,)]
    told = {kind_of(r.body["messages"]): r.body.get("tools") or () for r in server.requests[:2]}
    named = {kind: [t["function"]["name"] for t in each] for kind, each in told.items()}
    assert named == {"lead": ["investigate"], "part": ["search"]}


async def test_the_same_question_is_investigated_once_and_discarded_reaches_no_section(
    tmp_path: Path,
):
    def script(who: str, said: str, turns: int) -> Reply | None:
        if who != "lead" or turns > 1:
            discards = REVIEW.replace("<writing_plan>", '<writing_plan discard="1">')
            return discards if who == "lead" else None
        again = investigate("How heavy and old is Ada?")
        return (PLAN if not turns else "<think>Again.</think>") + again

    run, server = await ask_deeply(script, tmp_path)
    assert len(run.investigations) == 1
    assert "its report stands above" in run.transcript()
    assert "Investigation 1, How heavy and old is Ada?:" in run.transcript()
    sections = [str(r.body) for r in server.requests if kind_of(r.body["messages"]) == "section"]
    assert sections and all("(nothing was reported)" in each for each in sections)


async def test_no_more_is_investigated_than_a_lead_may_ask_for(tmp_path: Path):
    def script(who: str, said: str, turns: int) -> Reply | None:
        if who == "lead" and not turns:
            return PLAN + investigate(*(f"How heavy is Ada in year {n}?" for n in range(40)))
        return None

    run, _ = await ask_deeply(script, tmp_path)
    assert len(run.investigations) == 12
    assert "no call is left of 12" in run.transcript()


async def test_a_lead_that_calls_nothing_has_the_question_itself_investigated(tmp_path: Path):
    def script(who: str, said: str, turns: int) -> Reply | None:
        return PLAN if who == "lead" and not turns else None

    run, _ = await ask_deeply(script, tmp_path)
    assert [part.question for part in run.investigations] == [QUESTION]


async def test_a_section_that_fails_is_told_in_the_words_of_what_was_found(tmp_path: Path):
    def script(who: str, said: str, turns: int) -> Reply | None:
        return Fault(400, "no") if who == "section" and "section is: Bela" in said else None

    run, _ = await ask_deeply(script, tmp_path)
    text = cited_answer(run).text()
    assert (run.status, run.ended_by) == (Status.PARTIAL, "failure")
    assert "'Bela'" in run.reason and "Bela weighs 77 kilograms" in text


@pytest.mark.parametrize(
    ("reply", "by", "told"),
    [
        ("<think>I only think.</think>", "failure", "Bela weighs 77 kilograms"),
        (Given("Bela weighs 77 kilo", finish="length"), "max_tokens", "breaks off here"),
    ],
    ids=["empty", "cut"],
)
async def test_a_section_that_is_empty_or_cut_is_told(
    reply: Any, by: str, told: str, tmp_path: Path
):
    def script(who: str, said: str, turns: int) -> Any:
        return reply if who == "section" and "section is: Bela" in said else None

    run, _ = await ask_deeply(script, tmp_path)
    assert (run.status, run.ended_by) == (Status.PARTIAL, by) and "'Bela'" in run.reason
    assert told in cited_answer(run).text()


async def test_a_report_of_one_section_is_edited_and_begins_with_its_summary_too(tmp_path: Path):
    def script(who: str, said: str, turns: int) -> Reply | None:
        return REVIEW.replace("## Bela\n", "") if who == "lead" and turns else None

    run, _ = await ask_deeply(script, tmp_path)
    assert cited_answer(run).text().startswith("Ada weighs 41 kilograms in winter [1].\n\n## Ada")


async def test_an_edit_that_fails_leaves_the_report_as_it_was_written(tmp_path: Path):
    def script(who: str, said: str, turns: int) -> Reply | None:
        return Fault(400, "no") if who == "edit" else None

    run, _ = await ask_deeply(script, tmp_path)
    assert run.status is Status.FINISHED and cited_answer(run).text().startswith("## Ada")


async def test_a_stop_gives_a_report_of_what_the_parts_had_found(tmp_path: Path):
    stop = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, InvestigationEvent) and isinstance(event.event, ToolReturned):
            stop.set()

    run, _ = await ask_deeply(nothing_else, tmp_path, hear, stop)
    assert (run.status, run.ended_by) == (Status.PARTIAL, "interrupt")
    assert "kilograms" in cited_answer(run).text()
    parts = [RunStore(tmp_path).load(part.thread).usage for part in run.investigations]
    assert run.usage.calls == 1 + sum(usage.calls for usage in parts), "what was cut off is paid"

    def slow(who: str, said: str, turns: int) -> Reply | None:
        time.sleep(1.5 * (who == "part"))
        return None

    with scripted(slow) as server:
        async with leading(server, tmp_path) as researcher:
            whole = await researcher.ask(Ask(QUESTION, effort=Effort.DEEP, length=4000), "t")
    assert whole.status is Status.FINISHED and "## Bela" in cited_answer(whole).text()
    kept = (tmp_path / "runs" / "t" / "journal.jsonl").read_text().splitlines()
    replies = [json.loads(line)["reply"] for line in kept]
    planned, *heard = (each["at"] for each in replies if "text" in each or "passages" in each)
    assert heard[0] > planned + 1.5, "the time of the parts counts after a resume, too"


async def resumed(folder: Path) -> tuple[Trajectory, Steering, ScriptedServer]:
    """The run again as after a kill right before its end: all of its calls are in the journal."""
    (folder / "runs" / "t" / "trajectory.json").unlink()
    steering = Steering()
    run, server = await ask_deeply(nothing_else, folder, steering=steering)
    return run, steering, server


@pytest.mark.parametrize("late", [False, True])
async def test_a_remark_is_heard_at_the_leads_next_turn_and_kept_by_a_resume(
    late: bool, tmp_path: Path
):
    steering, loop, once = Steering(), asyncio.get_running_loop(), threading.Lock()

    def remark() -> None:
        if once.acquire(blocking=False):  # the parts are asked at once
            asyncio.run_coroutine_threadsafe(steering.remark("Also <b>their</b> licences."), loop)

    def script(who: str, said: str, turns: int) -> Reply | None:
        if (who, turns) == (("lead", 1) if late else ("part", 1)):
            remark()
        return None

    run, server = await ask_deeply(script, tmp_path, steering=steering)
    assert run.status is Status.FINISHED and steering.heard == 1
    bodies = [str(r.body["messages"]) for r in server.requests]
    leads = [body for body in bodies if "You lead a research" in body]
    assert ["licences" in body for body in leads] == [False, *[False] * late, True]
    assert run.transcript().count("The person who asked adds: Also") == 1
    left = re.findall(r"Left: (\d of \d) rounds", leads[-1])
    assert left[-1] == ("1 of 3" if late else "2 of 3"), "a remark brings one more"
    again, kept, asked = await resumed(tmp_path)
    assert again.transcript() == run.transcript() and asked.requests == []
    assert (kept.remarks, kept.heard) == (steering.remarks, 1)


async def test_one_part_is_stopped_with_what_it_has_and_a_resume_leaves_it_so(tmp_path: Path):
    steering = Steering()
    beside = set[asyncio.Task[None]]()

    def hear(event: Event) -> None:
        told = event.event if isinstance(event, InvestigationEvent) and event.number == 2 else None
        if isinstance(told, ToolReturned) and not beside:
            beside.add(asyncio.create_task(steering.stop(2)))

    def script(who: str, said: str, turns: int) -> Reply | None:
        again = '<call_tool name="investigate" items="1" after="2">How old is Bela?</call_tool>'
        if who == "part" and "How old is Bela?" in said and "Asked before" in said:
            return answer('<cite id="S1">Bela weighs 77 kilograms in winter.</cite>')
        return "<think>More.</think>" + again if who == "lead" and turns == 1 else None

    run, _ = await ask_deeply(script, tmp_path, hear, steering=steering)
    states = [Status.FINISHED, Status.PARTIAL, Status.FINISHED]
    assert run.status is Status.FINISHED
    assert [part.status for part in run.investigations] == states
    assert run.investigations[1].reason == "it was stopped"
    assert run.investigations[2].tool_calls == 0, "it begins with what the other had read"
    again, _, asked = await resumed(tmp_path)
    assert [part.status for part in again.investigations] == states and asked.requests == []


async def test_parts_share_what_is_left_of_the_budget(tmp_path: Path):
    await ask_deeply(nothing_else, tmp_path, budgets=Budgets(100_000, 600, 2.0))
    shares = [RunStore(tmp_path).request(f"t.{n}")["budgets"] for n in (1, 2)]
    assert all(share["tokens"] <= 30_000 and share["seconds"] <= 360 for share in shares)
    assert all(share["cost"] <= 0.6 for share in shares)


KNOWN = ["S1", "S2", "S12"]


@pytest.mark.parametrize(
    ("plan", "titles", "ids"),
    [
        ("## One [S1]\nsays [S2]\n## Two\n[S12, S99]", ["One", "Two"], [("S1", "S2"), ("S12",)]),
        ("1. One: says S1\n2. **Two**: S12", ["One", "Two"], [("S1",), ("S12",)]),
        ("## One\nsays [S1\u2013S4]\n## Two\nS11-S14", ["One", "Two"], [("S1", "S2"), ("S12",)]),
        ("Say it all.", [""], [("S1", "S2", "S12")]),
        ("## Only", ["Only"], [("S1", "S2", "S12")]),
    ],
    ids=["headings", "numbers", "ranges", "prose", "no ids"],
)
def test_an_outline_is_read_in_any_form(plan: str, titles: list[str], ids: list[tuple[str, ...]]):
    found = outline(plan, KNOWN)
    assert [each.title for each in found] == titles
    assert [each.ids for each in found] == ids


def test_a_long_outline_keeps_what_its_last_sections_say():
    plan = "\n".join(f"## Part {n}\nsays [S{n % 2 + 1}]" for n in range(30))
    found = outline(plan, KNOWN)
    assert len(found) == 12 and "Part 29" in found[-1].says


def test_what_surrounds_a_section_is_left_out():
    wrapped = "<think>hm</think>\n```markdown\n## Ada\n\nShe <cite id='s1'>weighs 41</cite>.\n```"
    assert text_of(wrapped, "Ada") == 'She <cite id="s1">weighs 41</cite>.'
    assert text_of("Here it is:\n\n## Ada\n\nShe is old.\n## Ada\nSo.", "Ada") == (
        "She is old.\n## Ada\nSo."
    )
    assert text_of("<cite id='S1'>It is.</cite>\n## Ada", "Ada").startswith("<cite")
    assert "<review>" not in text_of("a <review>b</review>")
    assert text_of("She weighs 41.[^1]\n\n[^1]: S1") == "She weighs 41.[S1]"


TEXT = '## Ada\n\n<cite id="S1">She weighs 41</cite>.\n\n## Bela\n\n<cite id="S2">77</cite>\n\nSo.'


@pytest.mark.parametrize(
    ("change", "made"),
    [
        ('<change n="2"><cite id="S1">She weighs 41 in winter</cite>.</change>', True),
        ('<change n="2"><cite id="S1, S2">She weighs 41</cite>.</change>', False),
        ('<change n="2"><cite id="S1">She weighs 42</cite>.</change>', False),
        ('<change n="2">She is light.</change>', False),
        ('<change n="2" from="4"><cite id="S1, S2">41 and 77</cite></change>', True),
        ('<change n="4" from="2, 3">So.</change>', False),
        ('<change n="5"></change>', True),
        ('<change n="99">Well.</change>', False),
        ('<summary><cite id="S1">She weighs 41</cite>.</summary>', True),
        ('<summary><cite id="S3">She weighs 41</cite>.</summary>', False),
        ("<summary>She is heavy.</summary>", False),
    ],
)
def test_an_edit_adds_no_claim(change: str, made: bool):
    edited, refused = edit(TEXT, change)
    assert (edited != TEXT, refused) == ((True, 0) if made else (False, 1))


def test_a_summary_loses_only_the_sentences_that_add():
    held = '<cite id="S1">She weighs 41</cite>.'
    told = f'<summary>{held} <cite id="S2">He weighs 78</cite>. She is old.</summary>'
    assert edit(TEXT, told) == (f"{held} She is old.\n\n{TEXT}", 1)


def test_a_claim_that_cannot_be_moved_stays_where_it_was():
    moved = '<change n="2"></change><change n="4" from="2"><cite id="S3">41</cite></change>'
    assert edit(TEXT, moved) == (TEXT, 1)


def test_a_section_of_which_nothing_is_left_loses_its_heading():
    gone, _ = edit(TEXT, '<change n="4"></change><change n="5"></change>')
    assert "## Bela" not in gone and gone.startswith("## Ada")
    assert edit(TEXT, '<change n="3"></change>')[0] == TEXT, "and none while something is"


def test_paragraphs_are_numbered_and_a_fence_is_one():
    text = "a\n\n```\nb\n\nc\n```\n\nd"
    assert numbered(text) == "[1] a\n\n[2] ```\nb\n\nc\n```\n\n[3] d"
