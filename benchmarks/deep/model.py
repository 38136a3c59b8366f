"""A scripted model on loopback that leads, investigates, writes and checks by its prompts alone.

It is a stand-in for a competent model: it divides the question by lines, asks for each figure, and
reports every fact of the world that its prompt shows, with the id of the source that it stands in.
It knows nothing that it was not shown. One number of every report of sections is false, so that a
check has something to find; as a checker it compares the claim with the passage.

    python -m benchmarks.deep.model --seconds 0.3      prints its port

It is also the search service (SearXNG's form) and the pages. `GET /log` gives what was asked as
[kind, begin, end, prompt tokens, new tokens, written tokens, hash of the prompt or path]; `GET
/shown` what stood in prompts.
"""

import argparse
import asyncio
import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.deep.world import FIGURES, LINES, Fact, Shown, World, words
from benchmarks.loopback import (
    MODEL,
    Calls,
    answer_all,
    json_response,
    page_response,
    reply_chat,
    serve_until_killed,
)

QUESTION = (
    f"Compare the twelve railway lines ({', '.join(LINES)}) in length, cost, year of opening, "
    "traffic in the busiest year and stations closed, with every figure that the sheets give, and "
    "say where the sources leave gaps."
)
PLANTED = "Arden"
"""the line whose first figure is false in the report"""
TOGETHER = 2
"""lines of an investigation"""
SEARCH_SECONDS = 0.05
_SNIPPET = re.compile(r'<snippet id="(S\d+)">(.*?)</snippet>', re.S)
_REPORTED = re.compile(r"([^\n]*?) \[(S\d+)[^\]]*\]")
_PASSAGE = re.compile(r"passage (S\d+)[^\n]*\n(.*?)(?=\n\[|\Z)", re.S)
_CLAIM = re.compile(r"Claim (\d+), citing passages? (S\d+)[^\n]*:\n(.*?)(?=\n\nClaim |\Z)", re.S)

Messages = Sequence[Mapping[str, Any]]


class Model:
    """The replies; `world` is what its facts are recognised by."""

    def __init__(self, world: World) -> None:
        self._facts = [(f" {' '.join(words(fact.text))} ", fact) for fact in world.facts]

    def reply(self, messages: Messages) -> tuple[str, str]:
        """Who is asked, and what is answered."""
        system = str(messages[0]["content"])
        last = str(messages[-1]["content"])
        if system.startswith("You lead a research"):
            return "lead", self._lead(messages)
        if system.startswith("You write one section"):
            return "section", self._section(last)
        if system.startswith("You edit a research report"):
            return "edit", _edit(last)
        if system.startswith("You check claims"):
            return "check", self._verdicts(last)
        return "investigation", self._investigate(messages)

    def found(self, text: str) -> dict[Fact, str]:
        """The facts in the snippets of a text, each with the source that it stands in."""
        return self._stated((source, body) for source, body in _SNIPPET.findall(text))

    def _stated(self, parts: Iterable[tuple[str, str]]) -> dict[Fact, str]:
        """The facts in some texts, each with the first source that states it."""
        found = dict[Fact, str]()
        for source, body in parts:
            flat = f" {' '.join(words(body))} "
            for told, fact in self._facts:
                if told in flat:
                    found.setdefault(fact, source)
        return found

    def held_twice(self, text: str) -> dict[Fact, str]:
        """The facts that stand in two snippets of a text."""
        bodies = [f" {' '.join(words(body))} " for _, body in _SNIPPET.findall(text)]
        return {f: "" for told, f in self._facts if sum(told in body for body in bodies) > 1}

    def reported(self, text: str) -> dict[Fact, str]:
        """The facts that reports of investigations state."""
        return self._stated((source, said) for said, source in _REPORTED.findall(text))

    def _lead(self, messages: Messages) -> str:
        whole = "\n".join(str(m["content"]) for m in messages[1:] if m["role"] == "user")
        turns = sum(m["role"] == "assistant" for m in messages)
        if not turns:
            rubric = "\n".join(
                f"{n}. the five figures of {line}" for n, line in enumerate(LINES, 1)
            )
            names = list(LINES)
            groups = [names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)]
            calls = "\n".join(_investigate_call(group) for group in groups)
            return (
                "<think>Twelve lines with five figures each.</think><structured_plan>"
                "<deep_analysis>Broad; each line by itself is easy.</deep_analysis>"
                f"<rubric>\n{rubric}\n</rubric><research_plan>By line.</research_plan>"
                f"</structured_plan>{calls}"
            )
        known = self.reported(whole)
        short = [n for n in LINES if sum(f.line == n for f in known) < len(FIGURES)]
        state = (
            f"<think>{len(known)} facts.</think><state_evaluation>open: {short}</state_evaluation>"
        )
        last = str(messages[-1]["content"])
        if short and turns == 1 and "No further investigation" not in last:
            again = [short[at : at + TOGETHER] for at in range(0, len(short), TOGETHER)]
            calls = "\n".join(_investigate_call(group, "what is still open on") for group in again)
            return f"{state}{calls}"
        marks, plan = [], []
        for line in LINES:
            ids = list(dict.fromkeys(known[f] for f in known if f.line == line))
            mark = f"[met: {', '.join(ids)}]" if ids else "[missing: nothing was found]"
            marks.append(f"the five figures of {line} {mark}")
            plan.append(f"## The {line} line\nits figures {', '.join(ids)}")
        # What is not found after two rounds is said in the report, so nothing is sent back.
        listed = "\n".join(marks).replace("[missing:", "[partly:")
        outlined = "\n".join(plan)
        return (
            f"{state}<review><rubric_review>{listed}</rubric_review>"
            f"<writing_plan>\n{outlined}\n</writing_plan></review>"
        )

    def _section(self, prompt: str) -> str:
        line = next(n for n in LINES if f"Your section is: The {n} line" in prompt)
        found = self.found(prompt)
        own = [(fact, source) for fact, source in found.items() if fact.line == line]
        said = [f'<cite id="{source}">{fact.text}</cite>.' for fact, source in own]
        if line == PLANTED and own:
            said[0] = f'<cite id="{own[0][1]}">{with_false_number(own[0][0])}</cite>.'
        lacking = [f for f in FIGURES if not any(x.line == line and x.figure == f for x in found)]
        gap = f"The sheets leave the {' and the '.join(lacking)} open." if lacking else ""
        return "\n\n".join(filter(None, [*said, gap])) or "The sheets say nothing of this line."

    def _investigate(self, messages: Messages) -> str:
        question = str(messages[1]["content"])
        part = "part of a larger research" in question
        asked = [n for n in LINES if n in question.partition("The whole question is")[0]]
        whole = "\n".join(str(m["content"]) for m in messages)
        turns = sum(m["role"] == "assistant" for m in messages)
        found = {f: s for f, s in self.found(whole).items() if f.line in asked}
        # A second source is looked for once, a first one as long as there are turns.
        held = found if turns > 1 or not part else self.held_twice(whole)
        wanted = [(n, f) for n in asked for f in FIGURES if not has(held, n, f)]
        plan = (
            "<think>By figure.</think><structured_plan><deep_analysis>Easy.</deep_analysis>"
            "<rubric>\n1. each figure, with its source\n</rubric><research_plan>1. Search."
            "</research_plan></structured_plan>"
        )
        state = f"<think>{len(found)} facts.</think><state_evaluation>{wanted}</state_evaluation>"
        head = plan if not turns else state
        if wanted and turns < (3 if part else 2):
            queries = [query_for(n, f, turns) for n, f in wanted][: 10 if part else 12]
            calls = "".join(f'<call_tool name="search">{each}</call_tool>' for each in queries)
            return head + calls
        cites = "\n".join(f'- <cite id="{s}">{f.text}</cite>.' for f, s in found.items())
        gaps = "; ".join(f"{n} {f}" for n in asked for f in FIGURES if not has(found, n, f))
        return (
            f"{head}<review><rubric_review>1. each figure [met: S1]</rubric_review>"
            f"<writing_plan>by line</writing_plan></review><answer>\n{cites}\n\n"
            f"Not found: {gaps or 'nothing'}.\n</answer>"
        )

    def _verdicts(self, prompt: str) -> str:
        # A long source stands in the prompt in several parts, each for a claim of its own.
        passages = dict[str, str]()
        for source, text in _PASSAGE.findall(prompt):
            passages[source] = f"{passages.get(source, '')} {text}"
        told = []
        for number, source, claim in _CLAIM.findall(prompt):
            stated = claim.split("\n")
            said = " ".join(words(stated[1] if stated[0].startswith("[") else stated[0]))
            held = said in " ".join(words(passages.get(source, "")))
            verdict = "supported" if held else "unsupported"
            reason = "It says so." if held else "The number is another one."
            told.append({"number": int(number), "reason": reason, "quote": "", "verdict": verdict})
        return json.dumps({"verdicts": told})


def has(found: Mapping[Fact, str], line: str, figure: str) -> bool:
    return any(fact.line == line and fact.figure == figure for fact in found)


def _investigate_call(lines: Sequence[str], of: str = "the") -> str:
    items = ", ".join(str(list(LINES).index(line) + 1) for line in lines)
    figures = "length, cost, opening, traffic and closed stations"
    asked = f"What are {of} {figures} of the railway lines {' and '.join(lines)}?"
    return f'<call_tool name="investigate" items="{items}">{asked}</call_tool>'


_SAID = {
    "length": "kilometres long between its two terminal stations",
    "cost": "building cost thousand crowns in all",
    "opening": "opened to passengers in",
    "traffic": "carried thousand passengers in its busiest year",
    "closure": "stations closed under the second act",
}


def query_for(line: str, figure: str, turn: int) -> str:
    more = ("", " sheet", " figures of the whole line")[turn]
    return f"{line} line {_SAID[figure]}{more}"


def with_false_number(fact: Fact) -> str:
    return fact.text.replace(fact.value, str(int(fact.value) + 7))


def _edit(prompt: str) -> str:
    """A summary from the first cited claims, and a change that brings a number of its own."""
    cites = re.findall(r"<cite id=\"S\d+\">[^<]*</cite>", prompt)
    return (
        f"<summary>{'. '.join(cites[1:4])}.</summary>\n"
        '<change n="2">The figure is 4,711 in all.</change>'
    )


class Scripted:
    """The server."""

    def __init__(
        self, seconds: float, model: Any, shown: Mapping[str, Any], world: World | None = None
    ) -> None:
        """`model` replies; `shown` is given the prompts, all or those of one kind."""
        self.port = 0
        self.world = world
        self._seconds, self._model, self._shown = seconds, model, shown
        self._log: list[tuple[str, float, float, int, int, int, str]] = []
        self._read = set[str]()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.port = writer.get_extra_info("sockname")[1]
        await answer_all(self.answer, reader, writer)

    def note(
        self, kind: str, began: float, asked: str, read: int = 0, new: int = 0, written: int = 0
    ) -> None:
        """Add what was answered to the log, with its tokens."""
        self._log.append((kind, began, time.monotonic(), read, new, written, asked))

    async def answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()
        if path.endswith("/chat/completions"):
            await self._complete(json.loads(body), writer, began)
        elif path.startswith("/search"):
            await asyncio.sleep(SEARCH_SECONDS)
            query = parse_qs(urlsplit(path).query).get("q", [""])[0]
            writer.write(json_response({"results": self.rows(query), "unresponsive_engines": []}))
            self.note("search", began, path)
        elif self.world and path in self.world.pages:
            writer.write(page_response(self.world.pages[path].html))
            self.note("page", began, path)
        elif path == "/log":
            writer.write(json_response({"log": self._log}))
        elif path == "/shown":
            told = {n: {"facts": len(s.facts), "words": s.words} for n, s in self._shown.items()}
            writer.write(json_response(told))
        else:
            writer.write(json_response({"object": "list", "data": [{"id": MODEL}]}))

    def rows(self, query: str) -> list[dict[str, str]]:
        """What a search brings: the beginnings of ten pages."""
        pages = self.world.search(query, 10) if self.world else ()
        return [
            {"title": p.title, "url": self.root + p.path, "content": " ".join(p.text.split()[:40])}
            for p in pages
        ]

    def reply(self, request: Mapping[str, Any]) -> tuple[str, str, Calls]:
        """Who is asked, and what is said or called."""
        return (*self._model.reply(request["messages"]), ())

    async def _complete(
        self, request: Mapping[str, Any], writer: asyncio.StreamWriter, began: float
    ) -> None:
        kind, text, calls = self.reply(request)
        said = [f"{m.get('content') or ''}{m.get('tool_calls') or ''}" for m in request["messages"]]
        prompt = "\n".join(said)
        new, heads = 0, ""
        for each in said:
            heads += each
            new += 0 if heads in self._read else len(each) // 4
            self._read.add(heads)
        for name, shown in self._shown.items():
            if name in ("all", kind):
                await asyncio.to_thread(shown.add, prompt)
        usage = await reply_chat(request, text, writer, began + self._seconds, 10, calls=calls)
        used = usage["prompt_tokens"], new, usage["completion_tokens"]
        self.note(kind, began, hashlib.sha256(prompt.encode()).hexdigest()[:16], *used)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.3, help="of a call")
    with suppress(KeyboardInterrupt):
        seconds, world = parser.parse_args().seconds, World()
        world.search(QUESTION, 1)  # counts all words, before anybody waits for it
        shown = {"all": Shown(world), "section": Shown(world)}
        asyncio.run(serve_until_killed(Scripted(seconds, Model(world), shown, world).serve))


if __name__ == "__main__":
    main()
