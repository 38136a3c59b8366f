"""OpenAI's interface: `/v1/models` and `/v1/chat/completions`, for text.

The last message is the question. What a run cannot do - call the caller's tools, look at pictures,
answer several times over - is refused by name; `temperature` and its like are ignored, and messages
of `system` and `developer`, earlier pictures and calls of tools are skipped. What chat programs ask
for a conversation's title, tags or next questions goes to the model as it is, without research.

During a run its progress is sent as reasoning; the report comes whole once its citations are
checked, in pieces if it is streamed. `citations` has an address for each number of a mark, in
order; `annotations` say where in the content each mark is.

A run belongs to its request: if the client disconnects, the run ends with what it has found, since
clients retry by themselves and each retry costs a run. Its results are kept, and it can be resumed.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem.agent.record.conversations import Background, EarlierTurn
from rubricem.agent.reports.cited import Cited, bracket_marks, cited_answer
from rubricem.agent.reports.report import NO_ANSWER, link, literal, notes, parts_in, prose
from rubricem.agent.research.researcher import new_thread
from rubricem.agent.serve import requests
from rubricem.agent.serve.desk import Desk, RunDesk, Work
from rubricem.agent.serve.feed import BEAT, event_stream
from rubricem.agent.serve.requests import OPENAI, RequestRefused, RunAsked, reply_of, unfit
from rubricem.agent.sources.fetch import normal
from rubricem.memory.errors import PolicyError, RubricemError
from rubricem.memory.schema import NO_USAGE, Message, Sampling, Status, Trajectory, Usage
from rubricem.memory.text import cut, one_line, split_thinking, storable

MODEL = "rubricem"
_PASSED_OVER = ("system", "developer")
LONGEST_TURN = 3000
MOST_TURNS = 6
_EMPTY: tuple[Any, ...] = (None, False, [], {}, "", "none", "auto", 0)
_OWN_TOOLS = "a run uses the tools of this server alone"
_MANY_CALLS = "the report is put together from many calls of a model"
UNSUPPORTED = {
    "tools": _OWN_TOOLS,
    "functions": _OWN_TOOLS,
    "logprobs": _MANY_CALLS,
    "top_logprobs": _MANY_CALLS,
    "audio": "only text is read and written",
    "prediction": "a report cannot be foretold",
}
TASKS = (
    "### Task:\n", "Your task is to reflect the speaker's likely facial expression",
    "Provide a concise, 5-word-or-less title for the conversation",
)  # fmt: skip
"""how what Open WebUI and LibreChat ask of a model about a conversation begins"""
ATTACHED = "### Task:\nRespond to the user query using the provided context"
"""how a question begins to which Open WebUI has put passages of a person's files"""
TASK_TOKENS = 1000
DONE = b"data: [DONE]\n\n"
GONE = 499
"""the status of a response whose client has disconnected"""
PIECE = 400
LOOKED_THROUGH = 300
"""latest runs that are searched for the one whose report a client sends back"""


class Dialogue(NamedTuple):
    """A question and the messages before it, the latest last."""

    question: str
    earlier: tuple[tuple[str, str], ...]
    """role and text"""

    def background(self) -> Background:
        """The latest messages before the question, if no run is known for them.

        Whatever an assistant said may come from private sources; what a user said is the person's.
        """
        turns = list[EarlierTurn]()
        for role, text in self.earlier[-MOST_TURNS:]:
            text = storable(cut(text, LONGEST_TURN))
            if role == "user":
                turns.append(EarlierTurn(question=text))
            else:
                asked = turns.pop().question if turns and not turns[-1].report else ""
                turns.append(EarlierTurn(question=asked, report=text))
        return Background(turns=tuple(turns), private=any(turn.report for turn in turns))


def dialogue(messages: Sequence[Mapping[str, Any]], place: str) -> Dialogue:
    """The question in a list of messages. Raises Refused unless the last is a user's text."""
    said = [(n, m) for n, m in enumerate(messages) if m.get("role") not in _PASSED_OVER]
    if not said or said[-1][1].get("role") != "user":
        raise unfit("The last message must be the user's: it is the question.", place)
    number, last = said.pop()
    question, content = _texts(last), last.get("content")
    if len(question) < (len(content) if isinstance(content, list) else 1):
        place = f"{place}.{number}.content"
        raise unfit(f"{place}: only text is read.", place, "unsupported_content")
    spoken = [(m, _texts(m)) for _, m in said if m.get("role") in ("user", "assistant")]
    earlier = ((m["role"], "\n".join(texts)) for m, texts in spoken if any(texts))
    asked, given = _apart("\n".join(question))
    return Dialogue(asked, (*given, *earlier))


def _apart(question: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A question, and the passages that were put to it, as if an assistant had told them."""
    before, _, asked = question.rpartition("</context>")
    asked = re.sub(r"</?user_query>", "", asked).strip()
    if not asked or not before.lstrip().startswith(ATTACHED):
        return question, ()
    return asked, (("assistant", before.partition("<context>")[2].strip()),)


def _texts(message: Mapping[str, Any]) -> list[str]:
    """What a message says, without its pictures and the like."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [p.get("text") for p in parts if isinstance(p, Mapping) and p.get("type") == "text"]
    return [text for text in texts if isinstance(text, str)]


def task_in(messages: Sequence[Mapping[str, Any]]) -> str:
    """The last message, where it asks for a title and the like; "" for a question."""
    text = "\n".join(_texts(messages[-1])).lstrip()
    return text if text.startswith(TASKS) and not text.startswith(ATTACHED) else ""


class ChatAsked(BaseModel):
    """The body of a chat completion; unknown fields are ignored."""

    model_config = ConfigDict(extra="allow", frozen=True)

    messages: list[dict[str, Any]] = Field(min_length=1)
    model: str = MODEL
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    n: int | None = None
    rubricem: dict[str, Any] | None = None
    """additional arguments of a run: `format`, `source`, `max_seconds` and so on"""

    def dialogue(self) -> Dialogue:
        """The question. Raises Refused if the request has a meaning that is unsupported."""
        check_model(self.model)
        more = self.model_extra or {}
        for name, said in UNSUPPORTED.items():
            if more.get(name) not in _EMPTY:
                raise unfit(f"{name} is not supported: {said}.", name, "unsupported_parameter")
        for name, text in (("response_format", {"type": "text"}), ("modalities", ["text"])):
            if more.get(name) not in (None, text):
                raise unfit(f"{name} must be text.", name, "unsupported_parameter")
        if self.n not in (None, 1):
            raise unfit("n must be 1: a run has one report.", "n", "unsupported_parameter")
        return dialogue(self.messages, "messages")

    def run(self, question: str, conversation: str | None) -> RunAsked:
        """The requested run; nobody can be asked to approve its plan."""
        options = self.rubricem or {}
        nobody = {"approve_plan": False, "clarify": False, "attended": False}
        for name in options.keys() & {"question", *nobody}:
            place, said = f"rubricem.{name}", "the last message asks, and nobody else can be asked"
            raise unfit(f"{place} is not supported: {said}.", place, "unsupported_parameter")
        asked = {"question": question, "thread": conversation or options.get("thread")}
        try:
            return RunAsked.model_validate({**options, **nobody, **asked})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(["rubricem", *map(str, first["loc"])])
            raise unfit(f"{place}: {first['msg']}.", place) from error


def check_model(name: str) -> None:
    """Raise Refused (404) unless it is the model that there is."""
    if name != MODEL:
        message = f"The model {name[:80]!r} does not exist; use {MODEL!r}."
        raise unfit(message, "model", "model_not_found", 404)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a run, for a client."""

    run: str
    conversation: str | None
    status: str
    reason: str
    content: str = ""
    annotations: tuple[dict[str, Any], ...] = ()
    """for each mark its range in the content, from `start_index` to before `end_index`"""
    citations: tuple[str, ...] = ()
    """addresses of the sources, in the order of their numbers from 1"""
    usage: Usage = NO_USAGE


def answer_of(trajectory: Trajectory, conversation: str | None) -> Answer:
    cited = cited_answer(trajectory)
    content = "".join(f"{literal(note)}\n\n" for note in notes(trajectory, cited))
    annotations: list[dict[str, Any]] = []
    for part in parts_in(cited, prose) if cited.pieces else [NO_ANSWER]:
        text = part if isinstance(part, str) else bracket_marks(part)
        if isinstance(part, Cited):
            span = {"start_index": len(content), "end_index": len(content) + len(text)}
            told = [(c.source.title, c.source.location) for c in part.citations]
            annotations += [{**span, "title": one_line(t), "url": one_line(u)} for t, u in told]
        content += text
    places = tuple(one_line(source.location) for source in cited.sources)
    sources = "\n".join(
        f"{number}. {link(source.title, source.location)} ({literal(place)})"
        for number, (source, place) in enumerate(zip(cited.sources, places, strict=True), start=1)
    )
    listed = ["**Sources**", sources] if sources else []
    return Answer(
        run=trajectory.thread,
        conversation=conversation,
        status=trajectory.status.value,
        reason=one_line(trajectory.reason),
        content="\n\n".join(filter(None, [content, *listed, prose(cited.bare)])),
        annotations=tuple(annotations),
        citations=places,
        usage=trajectory.usage,
    )


def _frame(value: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


class OpenAIRuns:
    """The runs of one desk."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk

    async def begin(self, asked: ChatAsked) -> Work:
        said = asked.dialogue()
        run = await asyncio.to_thread(self._before, said)
        if run is None:
            return await self._desk.start(asked.run(said.question, None), said.background())
        conversation = await asyncio.to_thread(self._desk.conversations.after, run)
        return await self._desk.start(asked.run(said.question, conversation.id))

    async def task(self, text: str) -> Answer:
        """What the server's model says of a task about a conversation."""
        async with self._desk.researchers.model() as policy:
            if (model := policy.chat) is None:
                said = "The embedded model answers questions alone, no tasks of chat programs."
                raise unfit(said)
            await self._desk.see_budget()
            sampling = Sampling(max_tokens=TASK_TOKENS, temperature=0.0)
            told = await model.chat([Message("user", text)], sampling)
        content = split_thinking(told.text)[1].strip()
        status = Status.FINISHED.value
        return Answer(new_thread(), None, status, "", content, usage=told.usage)

    @asynccontextmanager
    async def stop_on_leave(self, work: Work) -> AsyncIterator[None]:
        """While a client waits for it; if it is in progress when this ends, the run is stopped.

        If the server ends, the run is left to the next one.
        """
        try:
            yield
        finally:
            if work.state != "ended" and not self._desk.closing.is_set():
                # Unless it ended by itself meanwhile.
                with suppress(RubricemError):
                    await asyncio.shield(self._desk.stop(work.run))

    async def reply(self, request: Request, work: Work, form: "ChatForm") -> Response:
        """The whole completion; the run ends if the client disconnects."""

        async def whole() -> dict[str, Any]:
            async with self.stop_on_leave(work):
                lines = [line async for line in self.progress(work)]
            return form.whole(await self.answer(work), "".join(lines))

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            working.cancel()

        working, watching = asyncio.create_task(whole()), asyncio.create_task(watch())
        try:
            return JSONResponse(await working)
        except asyncio.CancelledError:
            if not watching.done():
                raise
            return Response(status_code=GONE)
        finally:
            watching.cancel()

    async def frames(self, work: Work, form: "ChatForm") -> AsyncIterator[bytes]:
        """The same in chunks."""
        async with self.stop_on_leave(work):
            yield form.chunk({"role": "assistant", "content": ""})
            async for line in self.progress(work):
                yield form.chunk({"reasoning_content": line}) if line else BEAT
        try:
            chunks = form.chunks(await self.answer(work))
        except RubricemError as error:
            chunks = iter([_frame(reply_of(error, OPENAI)[0]), DONE])
        for chunk in chunks:
            yield chunk

    async def progress(self, work: Work) -> AsyncIterator[str]:
        """Lines about progress, as it happens; "" for other news, and after a while without any."""
        async for told in self._desk.follow(work.run):
            lines = [line for event in told if (line := _line_of(event.name, event.data))]
            for line in lines or [""]:
                yield line and f"{prose(line)}\n"

    async def answer(self, work: Work) -> Answer:
        """The result of an ended run. Raises PolicyError for a failed one."""
        if work.state != "ended":
            raise RequestRefused(503, "This server ends; the run goes on when it starts again.")
        status, reason = work.outcome["status"], work.outcome["reason"]
        if status == Status.FAILED.value:
            raise PolicyError(reason)
        if work.trajectory is None:
            return Answer(work.run, work.conversation, status, reason)
        return await asyncio.to_thread(self._answer_of, work.trajectory, work.conversation)

    def _answer_of(self, trajectory: Trajectory, conversation: str | None = None) -> Answer:
        return answer_of(requests.for_others(trajectory, self._desk.settings), conversation)

    def _before(self, said: Dialogue) -> str | None:
        """The run whose answer is the last report in the dialogue; None: none is known here."""
        asked = [text for role, text in said.earlier if role == "user"]
        if not asked or said.earlier[-1][0] != "assistant":
            return None
        question, report, store = asked[-1], said.earlier[-1][1], self._desk.store
        for run in reversed(store.threads()[-LOOKED_THROUGH:]):
            try:
                same = store.request(run)["ask"]["question"].startswith(question.strip())
                if same and store.has_ended(run):
                    content = self._answer_of(store.load(run)).content
                    if content.split() == report.split():
                        return run
            except (RubricemError, LookupError, TypeError, AttributeError):
                # A damaged run is nobody's conversation.
                continue
        return None


def _line_of(name: str, held: Any) -> str:
    """An event of a run, as a line for readers; "" if there is nothing to say."""
    match name:
        case "stage":
            return f"Stage: {held['stage']}\n"
        case "plan":
            return f"Plan: {held['text']}\n"
        case "tool":
            return f"Call {held['number']}: {held['name']}: {held['query']}\n"
        case "results" if held["error"]:
            return f"It failed: {held['error']}\n"
        case "results":
            titles = "; ".join(source["title"] for source in held["sources"])
            return f"Found: {titles}\n" if titles else "Nothing was found.\n"
        case "retry":
            return f"Again: {held['reason']}\n"
        case "note" | "restart":
            return f"{held['message']}\n" if held.get("message") else ""
        case _:
            return ""


MOST_BODY = 8 << 20
"""bytes of a request, whose earlier messages may have pictures"""
routes = APIRouter(prefix="/v1", max_body_size=MOST_BODY)
_OURS = {"id": MODEL, "object": "model", "created": 0, "owned_by": "rubricem"}


@routes.get("/models")
async def models() -> dict[str, Any]:
    return {"object": "list", "data": [_OURS]}


@routes.get("/models/{name}")
async def model(name: str) -> dict[str, Any]:
    check_model(name)
    return _OURS


@routes.post("/chat/completions")
async def complete(desk: Desk, asked: ChatAsked, request: Request) -> Response:
    runs, page = OpenAIRuns(desk), str(request.base_url)
    if task := task_in(asked.messages):
        check_model(asked.model)
        answer = await runs.task(task)
        form = ChatForm(answer.run, asked, page)
        if not asked.stream:
            return JSONResponse(form.whole(answer))
        return event_stream(form.chunks(answer))
    work = await runs.begin(asked)
    form = ChatForm(work.run, asked, page)
    if asked.stream:
        return event_stream(runs.frames(work, form))
    return await runs.reply(request, work, form)


class ChatForm:
    """A run as a chat completion, or as the chunks of one."""

    def __init__(self, run: str, asked: ChatAsked, page: str) -> None:
        """`page`: the address of this server's page."""
        self._page = page
        self._counted = bool((asked.stream_options or {}).get("include_usage"))
        self._head = {
            "id": f"chatcmpl-{run}",
            "object": "chat.completion.chunk" if asked.stream else "chat.completion",
            "created": int(time.time()),
            "model": MODEL,
            **({"usage": None} if asked.stream and self._counted else {}),
        }

    def chunk(self, delta: Mapping[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return _frame({**self._head, **more, "choices": [choice]})

    def chunks(self, answer: Answer) -> Iterator[bytes]:
        """The answer, its outcome and the end of the stream."""
        for at in range(0, len(answer.content), PIECE):
            yield self.chunk({"content": answer.content[at : at + PIECE]})
        delta = {"annotations": self._annotations(answer)}
        yield self.chunk(delta, _finish_reason(answer), **_outcome(answer))
        if self._counted:
            yield _frame({**self._head, "choices": [], "usage": _usage_of(answer.usage)})
        yield DONE

    def whole(self, answer: Answer, reasoning: str = "") -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": answer.content,
            "refusal": None,
            "reasoning_content": reasoning,
            "annotations": self._annotations(answer),
        }
        reason = _finish_reason(answer)
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        more = {"choices": [choice], "usage": _usage_of(answer.usage)}
        return {**self._head, **more, **_outcome(answer)}

    def _annotations(self, answer: Answer) -> list[dict[str, Any]]:
        """For each mark an address that opens: of a file it is the run's on this server's page."""
        own = f"{self._page}#/run/{answer.run}"
        return [
            {
                "type": "url_citation",
                "url_citation": {**each, "url": each["url"] if normal(each["url"]) else own},
            }
            for each in answer.annotations
        ]


def _finish_reason(answer: Answer) -> str:
    return "stop" if Status(answer.status).whole else "length"


def _outcome(answer: Answer) -> dict[str, Any]:
    """What OpenAI's own fields do not say: addresses by number, which run it was, how it ended."""
    told = {"run": answer.run, "thread": answer.conversation, "status": answer.status}
    return {"citations": list(answer.citations), "rubricem": {**told, "reason": answer.reason}}


def _usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
