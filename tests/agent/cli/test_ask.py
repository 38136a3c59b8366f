"""`rubricem ask`: one JSON object, or one sentence and its remedy.

Its claims are checked as it is said; pages of private hosts are read where that is allowed. Nothing
is lost under ^C, by a full disk, with two processes, or where a key is refused half-way.
"""

import fcntl
import json
import os
import pty
import re
import resource
import signal
import subprocess
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from rubricem.memory.runs import RunStore
from tests.conftest import COMMAND, ROOT, refusal, rubricem
from tests.support import pages
from tests.support.policies import BROWSED, RUN, SUPPORTED, answer, contents, opening, plan
from tests.support.scripted_server import Fault, Reply, Scripted, ScriptedServer
from tests.support.sites import PageSite, Sent, article
from tests.support.terminal import QUESTION
from tests.support.waiting import PATIENCE, Process, wait_for

pytestmark = pytest.mark.usefixtures("data")


def where(server: ScriptedServer, documents: Path, *more: str) -> tuple[str, ...]:
    return QUESTION, "--base-url", server.base_url, "--source", str(documents), *more


def report(server: ScriptedServer, documents: Path, *more: str, code: int = 0) -> dict[str, Any]:
    """What was printed, which must be one JSON object and nothing else."""
    done = rubricem("ask", *where(server, documents, "--json", *more), code=code)
    assert done.stderr == ""
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def resumed(*more: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(rubricem("ask", "--resume", *more, "--json").stdout)
    return value


def test_a_question_is_answered_from_a_folder_as_one_json_object(documents: Path):
    # One good file is not hidden by another that cannot be read.
    (documents / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing of a PDF follows")
    with ScriptedServer(RUN) as server:
        told = report(server, documents, "--run", "mine")
    assert (told["status"], told["thread"]) == ("finished", "mine")
    stages = [stage["stage"] for stage in told["stages"]]
    assert stages == ["plan", "research", "review", "answer"]
    assert told["answer"] == "It is an unbounded cache [1]."
    source = told["citations"][0]["source"]
    assert source["location"].endswith("cache.md")
    assert "never evicts" in source["passage"]
    assert told["usage"]["calls"] == 3


def test_the_cost_is_told_as_far_as_it_is_known(unchecked: Path):
    priced = ("--set", 'prices={"scripted": [1, 1, 2]}')
    with ScriptedServer(lambda body, number: RUN[number % 3]) as server:
        unknown = report(server, unchecked)["usage"]
        told = report(server, unchecked, *priced, "--run", "dear")
        doctor = "doctor", "--base-url", server.base_url, "--source", unchecked
        free, paid = rubricem(*doctor).stdout, rubricem(*doctor, *priced).stdout
    dear, seconds = told["usage"], told["seconds"]
    tokens = dear["prompt_tokens"] + 2 * dear["completion_tokens"]
    assert (dear["calls"], dear["cost"]) == (3, pytest.approx(tokens / 1e6)) and seconds > 0
    assert (unknown["calls"], unknown["cost"]) == (3, None)
    assert f", ${dear['cost']:.4f}" in rubricem("runs", "show", "dear").stdout
    assert "with scripted, which has no price in [prices]; it lists" in free
    assert "with scripted, at $1, $1, $2 a million tokens" in paid


@pytest.mark.parametrize(("mode", "then"), [(0o755, 0o700), (0o775, 0o770), (None, 0o700)])
def test_nobody_else_can_read_what_is_written(
    documents: Path, data: Path, tmp_path: Path, mode: int | None, then: int
):
    if mode is not None:
        data.mkdir(parents=True)
        data.chmod(mode)
    before, out = os.umask(0o022), tmp_path / "report.md"
    try:
        with ScriptedServer(RUN) as server:
            rubricem("ask", *where(server, documents, "--out", str(out), "--memory", "on"))
    finally:
        os.umask(before)
    assert data.stat().st_mode & 0o777 == then
    written = [*data.rglob("*"), out]
    assert len(written) > 5
    assert [path for path in written if path.stat().st_mode & 0o077] == []


def test_what_another_user_could_read_is_not_begun(data: Path, monkeypatch: pytest.MonkeyPatch):
    data.mkdir(parents=True)
    if other := os.getuid() and os.getuid() + 1:
        monkeypatch.setattr(os, "getuid", lambda: other)
    else:
        os.chown(data, 4242, -1)
    for command in (
        ("ask", "What?", "--quiet"),
        ("bank", "list"),
        ("users", "add", "anna"),
        ("runs",),
    ):
        assert "belongs to another user" in refusal(*command, code=1)
    assert list(data.iterdir()) == []


@pytest.mark.parametrize("named", [("-",), ()])
def test_a_question_is_read_from_standard_input(documents: Path, named: tuple[str, ...]):
    with ScriptedServer(RUN) as server:
        _, *there = where(server, documents, "--json")
        done = rubricem("ask", *named, *there, typed=f"{QUESTION}\n")
    told = json.loads(done.stdout)
    assert (told["status"], told["question"]) == ("finished", QUESTION)


def test_the_report_is_shown_on_stdout_and_progress_on_stderr(documents: Path, tmp_path: Path):
    with ScriptedServer(RUN) as server:
        shown = rubricem("ask", *where(server, documents, "--out", str(tmp_path / "report.md")))
    assert f"written: {tmp_path / 'report.md'}\n" in shown.stderr
    assert "It is an unbounded cache [1]" in shown.stdout
    assert "functools.cache unbounded" in shown.stderr
    assert "## Sources" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["  "], "There is no question."),
        (["why " * 25_000], "The question has 100,000 characters"),
        (["What?", "--source", "nowhere"], "Unknown source 'nowhere'."),
        (["What?", "--source", "searxng:localhost"], "The address of the SearXNG instance is not"),
        (["What?", "--run", "a/b"], "'a/b' cannot name a thread"),
        (["What?", "--resume", "unknown"], "no run is called 'unknown'"),
        (["What?", "--set", "decoding=forced"], "A chat server cannot be led slot by slot"),
        (["What?", "--out", "report.doc"], "'report.doc' names no format"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence_and_a_remedy(arguments: list[str], sentence: str):
    server = ("--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--quiet")
    assert refusal("ask", *arguments, *server).startswith(f"error: {sentence}")


def test_a_failed_run_is_one_sentence_on_stderr_or_an_object(documents: Path):
    with ScriptedServer([Fault(401), Fault(401)]) as server:
        shown = where(server, documents, "--quiet", "--run", "mine")
        told = rubricem("ask", *shown, code=1).stderr
        failed = report(server, documents, code=1)
    assert "requires an API key and none is set (401)" in told.splitlines()[0]
    assert told.endswith("once that is mended, ask again.\n")
    assert "no run to resume" in refusal("ask", "--resume")
    assert (failed["status"], failed["answer"]) == ("failed", "")
    assert "401" in failed["reason"]


def test_a_run_whose_search_fails_has_failed_and_says_so(documents: Path):
    with PageSite({"/search": Sent("down", 500)}) as site, ScriptedServer(RUN) as server:
        there = ("--base-url", server.base_url, "--source", f"searxng:{site.address('')}")
        done = rubricem("ask", QUESTION, *there, code=1)
    assert "No evidence: the search failed: " in done.stdout and ".;" not in done.stdout


def test_a_failed_run_that_a_model_replied_to_goes_on(documents: Path):
    (documents / "cache.md").write_text("# Trains\n\nThey ride at noon.\n")
    with ScriptedServer([RUN[0], Fault(401)]) as server:
        told = rubricem("ask", *where(server, documents, "--quiet", "--run", "mine"), code=1).stderr
    assert told.endswith("Try again from where it ended: --resume mine\n")


@pytest.mark.parametrize(("empty", "model", "code"), [(False, (), 2), (True, ("scripted",), 1)])
def test_a_run_whose_setting_up_fails_is_not_kept(
    documents: Path, tmp_path: Path, empty: bool, model: tuple[str, ...], code: int
):
    (tmp_path / "empty").mkdir()
    named = ("--quiet", *(f"--model={each}" for each in model))
    with ScriptedServer(RUN, models=["scripted", "other"]) as server:
        source = tmp_path / "empty" if empty else documents
        refusal("ask", *where(server, source, *named), code=code)
    assert json.loads(rubricem("runs", "--json").stdout)["runs"] == []


def test_a_bare_answer_stands_alone_where_nothing_else_is_to_be_shown(documents: Path):
    said = answer('<cite id="S1">It is an unbounded cache.</cite>\n\nAnswer: unbounded')
    with ScriptedServer([plan(), said, SUPPORTED]) as server:
        shown = where(server, documents, "--format", "exact", "--run", "one")
        whole = rubricem("ask", *shown).stdout
        assert (whole.splitlines()[-1], "Sources" in whole) == ("unbounded", True)
        assert rubricem("ask", *shown, "--quiet").stdout == "unbounded\n"


def test_a_finished_thread_holds_one_question_with_its_settings_and_costs_nothing_again(
    documents: Path, monkeypatch: pytest.MonkeyPatch
):
    with ScriptedServer([*RUN, SUPPORTED]) as server:
        first, again = (report(server, documents, "--run", "mine") for _ in range(2))
        there = ("--base-url", server.base_url, "--run", "mine", "--quiet")
        for more in (there, ("--resume", "mine", "--quiet")):
            assert "holds another question" in refusal("ask", "Another?", *more)
        other = refusal("ask", "--resume", "mine", "--tool-calls", "3", "--quiet")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        # What a run does not keep may be named again.
        last = resumed("mine", "--set", "allow_hosts=there:80", "--set", "concurrency=2")
        assert len(server.requests) == 4
    assert first["answer"] == again["answer"] == last["answer"]
    assert last["status"] == "finished" and "tool_calls cannot be changed" in other


def test_a_resumed_run_has_the_prices_and_the_hosts_that_it_was_asked_with(documents: Path):
    with (
        PageSite({"/": article("Caches", "A cache with None never evicts.")}) as site,
        ScriptedServer([plan(), opening(site.address("/")), answer(), SUPPORTED]) as server,
    ):
        question = f"What does {site.address('/')} say?"
        named = ("--base-url", server.base_url, "--source", str(documents), "--run", "t")
        given = ("--set", 'prices={"scripted": [1000, 1000, 1000]}', "--max-cost", "0.05",
                 "--set", f"allow_hosts=127.0.0.1:{site.port}")  # fmt: skip
        rubricem("ask", question, *named, *given, "--quiet", code=3)
        assert not site.asked
        last = resumed("t", "--max-cost", "1000")
        assert last["usage"]["cost"] > 0 and site.asked


UNSUPPORTED = SUPPORTED.replace('"supported"', '"unsupported"')
REPAIR = ("--set", "verify=repair")


@pytest.mark.parametrize(
    ("flags", "turns", "said", "checker"),
    [
        ((), [UNSUPPORTED], "an unbounded cache [1: not supported]", "scripted@127.0.0.1"),
        (("--set", "verify=off"), [], "an unbounded cache [1]", None),
        (REPAIR, [UNSUPPORTED, "It is an unbounded cache with None.", SUPPORTED],
         "an unbounded cache with None [1]", "scripted@127.0.0.1"),
        ((), [Fault(401)] * 9, "an unbounded cache [1]", "lexical rules"),
    ],
    ids=["marked by default", "off", "repaired", "refused by its server"],
)  # fmt: skip
def test_claims_are_checked_as_it_is_said_and_a_check_that_fails_loses_no_answer(
    documents: Path, flags: tuple[str, ...], turns: list[Scripted], said: str, checker: str | None
):
    (documents / "cache.md").write_text("# lru_cache\n\nWith None it is an unbounded cache.\n")
    ended, code = ("partial", 3) if "not supported" in said else ("finished", 0)
    with ScriptedServer([*RUN, *turns]) as server:
        told = report(server, documents, *flags, code=code)
        checks = [contents(request.body) for request in server.requests[3:]]
    assert (told["status"], told["answer"]) == (ended, f"It is {said}.")
    for check in checks:
        assert check[0][0] == "system" and len(check) == 2, "no transcript is sent with it"
    found = told["verification"]
    assert found["checker"].startswith(checker) if checker else found is None
    if flags == REPAIR:
        became = '<cite id="S1">It is an unbounded cache with None</cite>.'
        made = {"claim": "It is an unbounded cache.", "became": became, "statement": True}
        assert found["repairs"] == [made]
    if turns[-1:] == [Fault(401)]:
        assert "checked by lexical rules alone" in found["note"]


def test_another_server_checks_the_claims(documents: Path):
    (documents / "cache.md").write_text("# lru_cache\n\nWith None it is an unbounded cache.\n")
    with ScriptedServer(RUN) as server, ScriptedServer([SUPPORTED]) as other:
        told = report(server, documents, "--checker", f"critic@{other.base_url}")
    assert (len(server.requests), len(other.requests)) == (3, 1)
    assert "Today is" in contents(other.requests[0].body)[0][1]
    assert told["verification"]["checker"].startswith("critic@127.0.0.1")
    assert told["answer"] == "It is an unbounded cache [1]."


CLAIM = "The revenue of Acme in 2023 was 12.5 million dollars."


def browsed(site: PageSite, *flags: str) -> dict[str, Any]:
    """The report of a question on one page, found and read by a SearXNG of one's own."""
    row = {"title": "Acme", "url": site.address("/report"), "content": "Acme and its revenue ..."}
    site.pages["/search"] = Sent(json.dumps({"results": [row]}))
    site.pages["/healthz"] = Sent("OK")
    site.pages["/report"] = article("Acme report", f"{CLAIM[:-1]}, its report says. " * 9)
    cited = answer(f'<cite id="S1">{CLAIM}</cite>')
    with ScriptedServer([plan("Acme revenue 2023"), opening("S1"), cited]) as server:
        there = ("--base-url", server.base_url, "--source", f"searxng:{site.address('')}")
        done = rubricem("ask", BROWSED, *there, "--set", "verify=off", "--json", *flags)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def paths(site: PageSite) -> list[str]:
    return [path.partition("?")[0] for _, path in site.asked if path != "/healthz"]


def test_a_private_search_engine_just_works_and_its_pages_are_read_where_allowed(data: Path):
    with PageSite({}) as site:
        told = browsed(site, "--set", "allow_hosts=127.0.0.1")
        assert paths(site) == ["/search", "/report"]
        assert told["citations"][0]["source"]["location"] == site.address("/report")
        assert told["answer"] == f"{CLAIM[:-1]} [1]."
        browsed(site, "--set", "allow_hosts=127.0.0.1")
        assert paths(site) == ["/search", "/report", "/search"], "the page was kept"
    assert list((data / "pages").glob("*.json"))


HANGING = Reply(pieces=["<think>"], hang_after=1)


@pytest.fixture
def unchecked(documents: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The documents, where no claim is checked."""
    monkeypatch.setenv("RUBRICEM_VERIFY", "off")
    return documents


def begun(server: ScriptedServer, documents: Path, *more: str, **options: Any) -> Process:
    """The command for the thread t, in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    command = [*COMMAND, "ask", *where(server, documents, "--run", "t", *more)]
    return Process(command, cwd=ROOT, text=True, **pipes)


def sentences(text: str) -> str:
    assert "Traceback" not in text, text
    return text


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_interrupt_gives_a_partial_report_two_stop_at_once_and_either_loses_nothing(
    unchecked: Path, times: int
):
    with ScriptedServer([RUN[0], HANGING, *RUN[1:]]) as server:
        with begun(server, unchecked, "--json") as process:
            wait_for(lambda: len(server.requests) == 2)
            for _ in range(times):
                process.send_signal(signal.SIGINT)
            said, errors = process.communicate()
        assert resumed(*["t"] * (times - 1))["status"] == "finished"
        assert len(server.requests) == 4
    assert process.returncode == 130
    assert "rubricem ask --resume t" in sentences(errors)
    if times == 1 or said:
        told = json.loads(said)
        assert (told["status"], told["ended_by"]) == ("partial", "interrupt")
        assert "never evicts" in told["answer"] and told["citations"][0]["id"] == "S1"


def test_a_budget_that_runs_out_is_exit_status_3_with_a_report(unchecked: Path):
    with ScriptedServer(RUN) as server:
        budget = where(server, unchecked, "--run", "t", "--max-total-tokens", "200")
        done = rubricem("ask", *budget, code=3)
        rubricem("ask", "--resume", "t", "--quiet", code=3)
        rubricem("ask", "--resume", "t", "--max-total-tokens", "0", "--quiet")
        assert len(server.requests) == 3
    assert "at most 30 searches, 200 new tokens, 1,200 seconds, no limit in" in done.stderr
    assert "Ended early: the budget of 200 new tokens ran out" in done.stdout
    assert "never evicts [1]" in done.stdout
    assert "--resume t --max-total-tokens" in done.stderr


def test_a_collection_is_searched_as_it_is_now_and_a_resumed_run_keeps_what_it_held(
    unchecked: Path, data: Path, home: Path
):
    uploaded = data / "uploads" / "rules"
    uploaded.mkdir(parents=True)
    (uploaded / "rule.md").write_text("# Rules\n\nIf maxsize is None, ask first.\n")
    file = home / "config" / "rubricem" / "rubricem.toml"
    file.parent.mkdir(parents=True)
    text = f'[collections]\nwork = ["{unchecked}", "upload:rules"]\n'
    with ScriptedServer(lambda body, number: RUN[number % 3]) as server:
        asked = (QUESTION, "--base-url", server.base_url, "--source", "@work", "--json")
        for changed in ("never evicts", "evicts on Mondays"):
            file.write_text(text)
            cache = unchecked / "cache.md"
            cache.write_text(cache.read_text().replace("never evicts", changed))
            rubricem("ask", *asked, "--run", changed.replace(" ", "-"))
            told = str(server.requests[-1].body)
            assert changed in told and "ask first" in told
        kept = RunStore(data).request("never-evicts")["choices"]["source"]
        assert kept == [str(unchecked), str(uploaded)]
        file.write_text('[collections]\nwork = ["elsewhere"]\n')
        assert resumed("never-evicts")["status"] == "finished"
        gone = refusal("ask", *asked)
        assert "elsewhere of the collection @work: Unknown source 'elsewhere'" in gone
        assert "Mend it, or take it out of [collections] of the settings." in gone
        wrong = [
            ("work = ['a']\nwork2 = []", "@work", "(at work2): it should have at least 1 item"),
            ("work = 'a'", "@work", "(at work): it should be a valid list."),
            ("work = ['@more']", "@work", "(at work.0): it should be a source, not a coll"),
            ("'my notes' = ['a']", "@work", "(at my notes): it should be of letters, digits"),
            ("work = ['a']", "@wrk", "Did you mean @work? There is @work: see [collections]"),
        ]
        for written, named, said in wrong:
            file.write_text(f"[collections]\n{written}\n")
            assert said in rubricem("ask", *asked[:3], "--source", named, code=2).stderr
            rubricem("doctor", "--source", named, "--base-url", server.base_url, code=1)


def test_what_such_runs_cost_is_told_before_the_model_is_asked(unchecked: Path):
    with ScriptedServer(lambda body, number: RUN[number % 3]) as server:
        for _ in range(3):
            assert "as the last" not in rubricem("ask", *where(server, unchecked)).stderr
        done = rubricem("ask", *where(server, unchecked))
        other = rubricem("ask", *where(server, unchecked, "--effort", "quick"))
    [line] = [line for line in done.stderr.splitlines() if "as the last" in line]
    assert re.fullmatch(
        r"2 searches, 180 new tokens, [\d to]+ seconds?, as the last 3 such runs; at most 30 "
        r"searches, 300,000 new tokens, 1,200 seconds, "
        r"no limit in dollars \(name the model's price in \[prices\]\)",
        line,
    )
    assert done.stderr.index(line) < done.stderr.index("plan")
    assert "\nat most 4 searches, 60,000 new tokens" in other.stderr


def test_a_key_that_is_refused_half_way_can_be_mended(
    unchecked: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "good-for-two-calls")
    with ScriptedServer([RUN[0], RUN[1], Fault(401), RUN[2]]) as server:
        refused = rubricem("ask", *where(server, unchecked, "--run", "t", "--quiet"), code=3)
        monkeypatch.setenv("OPENAI_API_KEY", "the-new-key")
        mended = resumed("t")
        keys = [request.headers["authorization"] for request in server.requests]
    assert "401" in sentences(refused.stdout) and "--resume t" in refused.stderr
    assert "good-for-two-calls" not in refused.stdout + refused.stderr
    assert mended["usage"]["calls"] == 3 and keys[-1] == "Bearer the-new-key"


def test_a_disk_that_is_full_is_one_sentence_and_loses_nothing_finished(unchecked: Path):
    long = plan().replace("Look it up.", " ".join(map(str, range(6000))))

    def limit() -> None:
        # What the system says of a file that may not grow is what it says of a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    with ScriptedServer([long, long, answer()]) as server:
        with begun(server, unchecked, "--quiet", preexec_fn=limit) as process:
            _, errors = process.communicate()
        assert resumed("t")["status"] == "finished"
        assert len(server.requests) == 3, "the call whose reply was lost is the one that is made"
    assert process.returncode == 1
    told = [line for line in sentences(errors).splitlines() if line]
    assert told[0].startswith("error: ") and "journal.jsonl cannot be used: " in told[0]
    assert "disk is not full" in errors


def test_two_processes_share_a_data_directory_and_not_a_thread(unchecked: Path):
    with ScriptedServer([HANGING, *RUN]) as server, begun(server, unchecked) as first:
        wait_for(lambda: len(server.requests) == 1)
        same = rubricem("ask", "--resume", "t", "--quiet", code=1)
        other = report(server, unchecked, "--run", "other")
        latest = refusal("ask", "--resume", "--quiet")
        shown = rubricem("runs", "show", "t").stdout
        unrated = refusal("rate", "t", "3")
        listed = json.loads(rubricem("runs", "--json").stdout)["runs"]
        first.kill()
        first.communicate()
    assert "belongs to a run that goes on" in sentences(same.stderr)
    assert "'t' goes on in another process" in latest and "Another process works on it" in shown
    assert "the run 't' has not ended" in unrated
    assert other["status"] == "finished"
    assert {run["thread"]: run["status"] for run in listed} == {"t": "running", "other": "finished"}


def test_a_plan_is_never_waited_for_without_a_terminal(unchecked: Path):
    with ScriptedServer(RUN) as server:
        done = rubricem("ask", *where(server, unchecked, "--approve-plan", "--json"))
    assert json.loads(done.stdout)["status"] == "finished"
    assert "no terminal to ask at: the plan is approved" in done.stderr


def test_a_plan_is_edited_at_the_terminal(unchecked: Path, tmp_path: Path):
    editor = tmp_path / "editor.sh"
    begins = (
        f"#!/bin/sh\n[ -e {tmp_path}/emptied ] || {{ : > {tmp_path}/emptied; : > $1; exit; }}\n"
    )
    editor.write_text(begins + 'sed -i "s/lru_cache maxsize None/a better query/" "$1"\n')
    editor.chmod(0o700)
    terminal, end = pty.openpty()
    env = {**os.environ, "EDITOR": str(editor), "TERM": "xterm"}
    with ScriptedServer([plan(), answer()]) as server:
        asked = ("--approve-plan", "--json")
        process = begun(server, unchecked, *asked, stdin=end, stderr=end, env=env)
        os.close(end)
        shown = read_until(terminal, "[r]eject?")
        os.write(terminal, b"e\n")
        read_until(terminal, "The rubric is empty; keep the line '## Rubric' and an item below it.")
        os.write(terminal, b"e\n")
        said, _ = process.communicate()
    os.close(terminal)
    assert "Says what is evicted" in shown and "## First search" in shown
    stages = {stage["stage"]: stage["text"] for stage in json.loads(said)["stages"]}
    assert "The first search is for: a better query" in stages["plan"] + stages["research"]


def test_a_line_typed_while_a_lead_works_is_a_remark_to_it(unchecked: Path):
    terminal, end = pty.openpty()
    env = {**os.environ, "TERM": "xterm"}
    with ScriptedServer(pages.reply) as server:
        asked = ("--effort", "deep")
        session: dict[str, Any] = {"start_new_session": True}
        session["preexec_fn"] = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        process = begun(server, unchecked, *asked, stdin=end, stderr=end, env=env, **session)
        os.close(end)
        read_until(terminal, "A line that you type is a remark")
        os.write(terminal, b"Also look at licences\n")
        read_until(terminal, "the lead was told: Also look at licences")
        said, _ = process.communicate()
        leads = [str(r.body["messages"]) for r in server.requests]
    os.close(terminal)
    assert process.returncode == 0 and "can grow without bound" in said
    assert any("The person who asked adds: Also look at licences" in lead for lead in leads)


def read_until(terminal: int, words: str) -> str:
    shown, until = "", time.monotonic() + PATIENCE
    while words not in shown:
        assert time.monotonic() < until, shown
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown
