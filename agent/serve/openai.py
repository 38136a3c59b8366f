"""OpenAI's interface: `/v1/models`, `/v1/chat/completions` and `/v1/responses`, for text.

The last message is the question. What a run cannot do - call the caller's tools, look at pictures,
answer several times over - is refused by name. How the text is sampled is this server's own
setting, so `temperature` and its like are accepted and ignored; messages of `system` and
`developer` are instructions to a chat model and are skipped.

During a run its progress is sent as reasoning; the report comes whole once its citations are
checked, in pieces if it is streamed. It is Markdown: what a reader has to know first, the answer
with its marks, the sources. `citations` has an address for each number of a mark, in order;
`annotations` say where in the content each mark is.

A run belongs to its request: if the client disconnects, the run ends with what it has found, since
clients retry by themselves and each retry costs a run. Its results are kept, and it can be resumed.
A response is named after its run, so a later one that names it by `previous_response_id` continues
the same thread, and any can be retrieved again.

Above 600 lines since both kinds of request start the same runs and return the same answer.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem.agent.reports.cited import Cited, CitedAnswer, bracket_marks, cited_answer
from rubricem.agent.reports.report import NO_ANSWER, link, literal, notes, parts_in, prose
from rubricem.agent.serve.desk import RunDesk, Work
from rubricem.agent.serve.feed import BEAT, event_stream
from rubricem.agent.serve.requests import OPENAI, RequestRefused, RunAsked, reply_of, unfit
from rubricem.agent.transcript.question import LONGEST_QUESTION
from rubricem.memory.errors import PolicyError, RubricemError
from rubricem.memory.schema import NO_USAGE, Status, Trajectory, Usage
from rubricem.memory.text import one_line

MODEL = "rubricem"
"""the only model there is, whichever model writes the answer"""
RESPONSE = "resp_"
"""prefix of a run's name as a response"""
_PASSED_OVER = ("system", "developer")
_TEXTS = ("text", "input_text", "output_text")
LONGEST_TURN = 3000
"""characters of an earlier message that is included as text"""
MOST_TURNS = 6
"""most earlier messages included as text, as far as the question leaves room"""
_BEFORE = "What was said before this question:"
_EMPTY: tuple[Any, ...] = (None, False, [], {}, "", "none", "auto", 0)
_OWN_TOOLS = "a run uses the tools of this server alone"
_MANY_CALLS = "the report is put together from many calls of a model"


class SaidTurn(NamedTuple):
    """One message: who said what."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A question and the messages before it, the latest last."""

    question: str
    earlier: tuple[SaidTurn, ...] = ()

    def as_question(self) -> str:
        """The question with the earlier messages as text, if no run is known for them."""
        if not self.earlier:
            return self.question
        said, room = list[str](), LONGEST_QUESTION - len(self.question) - len(_BEFORE) - 2
        for turn in reversed(self.earlier[-MOST_TURNS:]):
            text = turn.text
            if len(text) > LONGEST_TURN:
                text = text[:LONGEST_TURN] + " ..."
            line = f"{turn.role.capitalize()}: {text}"
            room -= len(line) + 2
            if room < 0:
                break
            said.append(line)
        return "\n\n".join([self.question, _BEFORE, *reversed(said)]) if said else self.question


def dialogue(messages: Sequence[Mapping[str, Any]], place: str) -> Dialogue:
    """The question in a list of messages. Raises Refused unless the last is a user's text."""
    turns = [
        _turn(message, f"{place}.{at}")
        for at, message in enumerate(messages)
        if message.get("role") not in _PASSED_OVER and message.get("type") != "reasoning"
    ]
    if not turns or turns[-1].role != "user":
        raise unfit("The last message must be the user's: it is the question.", place)
    return Dialogue(turns[-1].text, tuple(turns[:-1]))


def _turn(message: Mapping[str, Any], place: str) -> SaidTurn:
    role = message.get("role")
    if role not in ("user", "assistant") or message.get("tool_calls"):
        said = role if isinstance(role, str) else message.get("type")
        raise unfit(f"{place}: a message of {said!r} is not supported.", place)
    content = message.get("content")
    if isinstance(content, str):
        return SaidTurn(role, content)
    if not isinstance(content, list):
        raise unfit(f"{place}.content must be a text or a list of texts.", f"{place}.content")
    return SaidTurn(role, "\n".join(_part(part, f"{place}.content") for part in content))


def _part(part: Any, place: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in _TEXTS or not isinstance(part.get("text"), str):
        raise unfit(
            f"{place}: a part of type {kind!r} is not supported: only text is read.",
            place,
            "unsupported_content",
        )
    text: str = part["text"]
    return text


class Asked(BaseModel):
    """The fields that both kinds of request share; unknown ones are ignored."""

    model_config = ConfigDict(extra="allow", frozen=True)

    unsupported: ClassVar[Mapping[str, str]] = {}
    """fields for unsupported features, and why they are unsupported"""

    model: str = MODEL
    stream: bool = False
    rubricem: dict[str, Any] | None = None
    """additional arguments of a run: `format`, `source`, `max_seconds` and so on"""

    def check(self, plain: Mapping[str, bool]) -> None:
        """Raise Refused if a field requests something unsupported; `plain`: asks for text alone."""
        if self.model != MODEL:
            message = f"The model {self.model[:80]!r} does not exist; use {MODEL!r}."
            raise unfit(message, "model", "model_not_found", 404)
        for name, said in self.unsupported.items():
            if (self.model_extra or {}).get(name) not in _EMPTY:
                raise unfit(f"{name} is not supported: {said}.", name, "unsupported_parameter")
        for name, text_alone in plain.items():
            if not text_alone:
                raise unfit(f"{name} must be text.", name, "unsupported_parameter")

    def run(self, question: str, conversation: str | None) -> RunAsked:
        """The requested run; nobody can be asked to approve its plan."""
        options = {**(self.rubricem or {}), "approve_plan": False, "clarify": False}
        conversation = conversation or options.get("thread")
        try:
            return RunAsked.model_validate(
                {**options, "question": question, "thread": conversation}
            )
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(["rubricem", *map(str, first["loc"])])
            raise unfit(f"{place}: {first['msg']}.", place) from error


class StreamOptions(BaseModel):
    include_usage: bool = False


class ChatAsked(Asked):
    """The body of a chat completion."""

    unsupported = {
        "tools": _OWN_TOOLS,
        "functions": _OWN_TOOLS,
        "logprobs": _MANY_CALLS,
        "top_logprobs": _MANY_CALLS,
        "audio": "only text is read and written",
        "prediction": "a report cannot be foretold",
    }
    messages: list[dict[str, Any]] = Field(min_length=1)
    n: int | None = None
    stream_options: StreamOptions | None = None

    def dialogue(self) -> Dialogue:
        """The question. Raises Refused if the request has a meaning that is unsupported."""
        more = self.model_extra or {}
        plain = {
            "response_format": more.get("response_format") in (None, {"type": "text"}),
            "modalities": more.get("modalities") in (None, ["text"]),
        }
        self.check(plain)
        if self.n not in (None, 1):
            raise unfit("n must be 1: a run has one report.", "n", "unsupported_parameter")
        return dialogue(self.messages, "messages")


class ResponseAsked(Asked):
    """The body of a response."""

    unsupported = {
        "tools": _OWN_TOOLS,
        "background": "the run would be stopped when the client goes; use POST /api/runs",
        "conversation": "use previous_response_id",
        "prompt": "there are no stored prompts",
        "top_logprobs": _MANY_CALLS,
    }
    input: str | list[dict[str, Any]]
    previous_response_id: str | None = None

    def dialogue(self) -> Dialogue:
        """The question. Raises Refused if the request has a meaning that is unsupported."""
        text = (self.model_extra or {}).get("text")
        form = text.get("format") if isinstance(text, dict) else None
        self.check({"text.format": form in (None, {}, {"type": "text"})})
        return (
            Dialogue(self.input) if isinstance(self.input, str) else dialogue(self.input, "input")
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a run, for a client."""

    run: str
    conversation: str | None
    """its conversation"""
    status: str
    reason: str
    content: str = ""
    annotations: tuple[dict[str, Any], ...] = ()
    """for each mark its range in the content, from `start_index` to before `end_index`"""
    citations: tuple[str, ...] = ()
    """addresses of the sources, in the order of their numbers from 1"""
    usage: Usage = NO_USAGE

    @property
    def whole(self) -> bool:
        """Whether nothing cut it short."""
        return Status(self.status).whole

    def outcome_fields(self) -> dict[str, Any]:
        """What no other field says: which run it was, and its outcome."""
        told = {"run": self.run, "thread": self.conversation, "status": self.status}
        return {**told, "reason": self.reason}


def answer_of(trajectory: Trajectory, conversation: str | None) -> Answer:
    """The answer of a run that ended, normally or early."""
    cited = cited_answer(trajectory)
    content, annotations = _content(trajectory, cited)
    return Answer(
        run=trajectory.thread,
        conversation=conversation,
        status=trajectory.status.value,
        reason=one_line(trajectory.reason),
        content=content,
        annotations=annotations,
        citations=tuple(one_line(source.location) for source in cited.sources),
        usage=trajectory.usage,
    )


def _content(trajectory: Trajectory, cited: CitedAnswer) -> tuple[str, tuple[dict[str, Any], ...]]:
    content = "".join(f"{literal(note)}\n\n" for note in notes(trajectory, cited))
    annotations: list[dict[str, Any]] = []
    for part in parts_in(cited, prose) if cited.pieces else [NO_ANSWER]:
        text = part if isinstance(part, str) else bracket_marks(part)
        if isinstance(part, Cited):
            span = {"start_index": len(content), "end_index": len(content) + len(text)}
            told = [(c.source.title, c.source.location) for c in part.citations]
            annotations += [{**span, "title": one_line(t), "url": one_line(u)} for t, u in told]
        content += text
    sources = [
        f"{number}. {link(source.title, source.location)} ({literal(one_line(source.location))})"
        for number, source in enumerate(cited.sources, start=1)
    ]
    listed = ["**Sources**", "\n".join(sources)] if sources else []
    parts = [content, *listed, prose(cited.bare)]
    return "\n\n".join(filter(None, parts)), tuple(annotations)


DONE = b"data: [DONE]\n\n"
GONE = 499
"""the status of a response whose client has disconnected"""
PIECE = 400
"""characters of a report that are sent at once"""


def _frame(value: Mapping[str, Any], event: str = "") -> bytes:
    named = f"event: {event}\n" if event else ""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{named}data: {text}\n\n".encode()


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


async def _unless_gone(request: Request, work: Awaitable[dict[str, Any]]) -> Response:
    """The response that `work` returns; it is cancelled if the client disconnects."""

    async def wait_until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(wait_until_gone())
    try:
        await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return Response(status_code=GONE)
        return JSONResponse(working.result())
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


class ReplyForm(Protocol):
    """How one kind of interface represents a run: as events, or as a whole."""

    def begin_reply(self) -> Iterator[bytes]: ...

    def add_progress(self, line: str) -> bytes:
        """A line of progress, which is also kept for the whole response."""

    def failure(self, error: RubricemError) -> Iterator[bytes]: ...

    def finish_reply(self, answer: Answer) -> Iterator[bytes]:
        """The events of a run that ended with a report."""

    def render_reply(self, answer: Answer) -> dict[str, Any]:
        """The same as one response."""


LOOKED_THROUGH = 300
"""latest runs that are searched for the one whose report a client sends back"""


class OpenAIRuns:
    """The runs of one desk."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk

    async def begin(self, asked: Asked, said: Dialogue, run: str | None = None) -> Work:
        """Begin a run for the question, following another run if one is given or quoted."""
        if run is None:
            run = await asyncio.to_thread(self._before, said)
        if run is None:
            return await self._desk.start(asked.run(said.as_question(), None))
        conversation = await asyncio.to_thread(self._desk.conversations.after, run)
        return await self._desk.start(asked.run(said.question, conversation.id))

    @asynccontextmanager
    async def stop_on_leave(self, work: Work) -> AsyncIterator[None]:
        """While a client waits for it; if it is in progress when this ends, the run is stopped.

        If the server ends, the run is left to the next one.
        """
        try:
            yield
        finally:
            if not work.heard.over and not self._desk.closing.is_set():
                # Unless it ended by itself meanwhile.
                with suppress(RubricemError):
                    await asyncio.shield(self._desk.stop(work.run))

    async def reply(self, request: Request, work: Work, form: ReplyForm, stream: bool) -> Response:
        """The response to a client: a stream of events, or the whole at the end."""
        if stream:
            return event_stream(self._frames(work, form))

        async def whole() -> dict[str, Any]:
            async with self.stop_on_leave(work):
                async for line in self.progress(work):
                    form.add_progress(line)
            return form.render_reply(await self.answer(work.run, work.conversation))

        return await _unless_gone(request, whole())

    async def _frames(self, work: Work, form: ReplyForm) -> AsyncIterator[bytes]:
        async with self.stop_on_leave(work):
            for event in form.begin_reply():
                yield event
            async for line in self.progress(work):
                yield form.add_progress(line) if line else BEAT
        try:
            answer = await self.answer(work.run, work.conversation)
        except RubricemError as error:
            for event in form.failure(error):
                yield event
            return
        for event in form.finish_reply(answer):
            yield event

    async def progress(self, work: Work) -> AsyncIterator[str]:
        """Lines about progress, as it happens; "" after a while without any."""
        async for told in work.heard.follow():
            if self._desk.closing.is_set():
                return
            if not told:
                yield ""
            for name, held in told:
                if line := _line_of(name, held):
                    yield line

    async def answer(self, run: str, conversation: str | None) -> Answer:
        """The result of an ended run. Raises PolicyError for a failed one."""
        if await asyncio.to_thread(self._desk.store.has_ended, run):
            trajectory = await asyncio.to_thread(self._desk.store.load, run)
            if trajectory.status is Status.FAILED:
                raise PolicyError(trajectory.reason)
            return await asyncio.to_thread(answer_of, trajectory, conversation)
        status, reason = await self._read_outcome(run)
        if status == Status.FAILED.value:
            raise PolicyError(reason)
        return Answer(run, conversation, status, reason)

    async def _read_outcome(self, run: str) -> tuple[str, str]:
        """From its events, how a run without a stored trajectory ended."""
        work = self._desk.live.get(run)
        if work is not None and not work.heard.over:
            raise RequestRefused(503, "This server ends; the run goes on when it starts again.")
        if work is not None:
            told = work.heard.said
        else:
            log = await self._desk.log(run)
            told = [
                (event.name, dict(event.data)) for event in await log.read(max(log.last - 8, 0))
            ]
        last = [held for name, held in told if name == "finished"]
        return (last[-1]["status"], last[-1]["reason"]) if last else ("failed", "")

    def _before(self, said: Dialogue) -> str | None:
        """The run whose answer is the last report in the dialogue; None: none is known here."""
        asked = [turn.text for turn in said.earlier if turn.role == "user"]
        if not asked or said.earlier[-1].role != "assistant":
            return None
        question, report, store = asked[-1], said.earlier[-1].text, self._desk.store
        for run in reversed(store.threads()[-LOOKED_THROUGH:]):
            try:
                same = store.request(run)["ask"]["question"].startswith(question.strip())
                if same and store.has_ended(run):
                    content = answer_of(store.load(run), None).content
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


def router(desk: RunDesk) -> APIRouter:
    routes, runs = APIRouter(prefix="/v1"), OpenAIRuns(desk)
    own = {"id": MODEL, "object": "model", "created": 0, "owned_by": "rubricem"}

    @routes.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [own]}

    @routes.get("/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        Asked(model=name).check({})
        return own

    @routes.post("/chat/completions")
    async def complete(asked: ChatAsked, request: Request) -> Response:
        work = await runs.begin(asked, asked.dialogue())
        return await runs.reply(request, work, ChatEvents(work, asked), asked.stream)

    @routes.post("/responses")
    async def respond(asked: ResponseAsked, request: Request) -> Response:
        said, previous = asked.dialogue(), asked.previous_response_id
        run = await _run_of(desk, previous, 400) if previous is not None else None
        work = await runs.begin(asked, said, run)
        events = ResponseEvents(RESPONSE + work.run, work.began, previous)
        return await runs.reply(request, work, events, asked.stream)

    @routes.get("/responses/{identifier}")
    async def read(identifier: str) -> dict[str, Any]:
        run = await _run_of(desk, identifier, 404)
        began = await asyncio.to_thread(desk.store.asked_at, run)
        events = ResponseEvents(identifier, began, None)
        if run in desk.live and not desk.live[run].heard.over:
            return events.response("in_progress")
        try:
            return events.render_reply(await runs.answer(run, None))
        except RubricemError as error:
            return events.render_failure(error)

    return routes


async def _run_of(desk: RunDesk, identifier: str, status: int) -> str:
    """The run that a response is named after; Refused with this status if there is none."""
    run = identifier.removeprefix(RESPONSE)
    with suppress(RequestRefused):
        if run != identifier:
            await desk.check_run(run)
            return run
    previous = status == 400
    raise unfit(
        f"There is no response {identifier[:80]!r}.",
        "previous_response_id" if previous else None,
        "previous_response_not_found" if previous else "not_found",
        status,
    )


class ChatEvents:
    """A run as a chat completion, or as the chunks of one."""

    def __init__(self, work: Work, asked: ChatAsked) -> None:
        self._reasoning = ""
        self._counted = asked.stream_options is not None and asked.stream_options.include_usage
        self._head = {
            "id": f"chatcmpl-{work.run}",
            "object": "chat.completion.chunk" if asked.stream else "chat.completion",
            "created": int(time.time()),
            "model": MODEL,
            **({"usage": None} if asked.stream and self._counted else {}),
        }

    def begin_reply(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def add_progress(self, line: str) -> bytes:
        self._reasoning += line
        return self._chunk({"reasoning_content": line})

    def failure(self, error: RubricemError) -> Iterator[bytes]:
        yield _frame(reply_of(error, OPENAI)[0])
        yield DONE

    def finish_reply(self, answer: Answer) -> Iterator[bytes]:
        for piece in _pieces(answer.content):
            yield self._chunk({"content": piece})
        last = {"citations": list(answer.citations), "rubricem": answer.outcome_fields()}
        yield self._chunk({"annotations": _annotations(answer)}, _reason(answer), **last)
        if self._counted:
            yield _frame({**self._head, "choices": [], "usage": _usage_of(answer.usage)})
        yield DONE

    def render_reply(self, answer: Answer) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": answer.content,
            "refusal": None,
            "reasoning_content": self._reasoning,
            "annotations": _annotations(answer),
        }
        whole = {"message": message, "finish_reason": _reason(answer), "logprobs": None}
        return {
            **self._head,
            "choices": [{"index": 0, **whole}],
            "usage": _usage_of(answer.usage),
            "citations": list(answer.citations),
            "rubricem": answer.outcome_fields(),
        }

    def _chunk(self, delta: Mapping[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return _frame({**self._head, **more, "choices": [choice]})


def _reason(answer: Answer) -> str:
    return "stop" if answer.whole else "length"


def _annotations(answer: Answer) -> list[dict[str, Any]]:
    return [{"type": "url_citation", "url_citation": a} for a in answer.annotations]


def _usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


REASONING, MESSAGE = 0, 1
"""indices of the two items of the output"""


class ResponseEvents:
    """The events of one response, numbered from 0."""

    def __init__(self, identifier: str, created: datetime, previous: str | None) -> None:
        self._reasoning = ""
        self._id = identifier
        self._created = created
        self._previous = previous
        self._number = -1

    def response(self, status: str, **more: Any) -> dict[str, Any]:
        """The response object as clients read it."""
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created.timestamp(),
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "metadata": {},
            "model": MODEL,
            "output": [],
            "parallel_tool_calls": False,
            "previous_response_id": self._previous,
            "reasoning": {"effort": None, "summary": None},
            "store": True,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
            **more,
        }

    def render_reply(self, answer: Answer) -> dict[str, Any]:
        """The response of a run that ended with a report."""
        more = {} if answer.whole else {"incomplete_details": {"reason": "max_output_tokens"}}
        read, written = answer.usage.prompt_tokens, answer.usage.completion_tokens
        cached = {"cached_tokens": answer.usage.cached_tokens, "cache_write_tokens": 0}
        usage = {
            "input_tokens": read,
            "input_tokens_details": cached,
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        }
        return self.response(
            "completed" if answer.whole else "incomplete",
            output=[self._thoughts(), self._message(answer)],
            usage=usage,
            rubricem=answer.outcome_fields(),
            **more,
        )

    def render_failure(self, error: RubricemError) -> dict[str, Any]:
        told = {"code": "server_error", "message": error.told()}
        return self.response("failed", error=told)

    def begin_reply(self) -> Iterator[bytes]:
        waiting = self.response("in_progress")
        yield self._event("response.created", response=waiting)
        yield self._event("response.in_progress", response=waiting)
        item = {"id": self._item("rs"), "type": "reasoning", "summary": []}
        yield self._event("response.output_item.added", output_index=REASONING, item=item)
        yield self._summary("part.added", part={"type": "summary_text", "text": ""})

    def add_progress(self, line: str) -> bytes:
        self._reasoning += line
        return self._summary("text.delta", delta=line)

    def failure(self, error: RubricemError) -> Iterator[bytes]:
        yield self._event("response.failed", response=self.render_failure(error))

    def finish_reply(self, answer: Answer) -> Iterator[bytes]:
        """The end of the reasoning, the message, and the whole response."""
        yield self._summary("text.done", text=self._reasoning)
        yield self._summary("part.done", part={"type": "summary_text", "text": self._reasoning})
        yield self._done_event(REASONING, self._thoughts())
        empty = self._message(answer, "in_progress") | {"content": []}
        yield self._event("response.output_item.added", output_index=MESSAGE, item=empty)
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield self._content("content_part.added", part=part)
        for piece in _pieces(answer.content):
            yield self._content("output_text.delta", delta=piece, logprobs=[])
        whole = self._message(answer)
        [part] = whole["content"]
        for at, annotation in enumerate(part["annotations"]):
            yield self._content(
                "output_text.annotation.added", annotation_index=at, annotation=annotation
            )
        yield self._content("output_text.done", text=answer.content, logprobs=[])
        yield self._content("content_part.done", part=part)
        yield self._done_event(MESSAGE, whole)
        response = self.render_reply(answer)
        yield self._event(f"response.{response['status']}", response=response)

    def _thoughts(self) -> dict[str, Any]:
        summary = [{"type": "summary_text", "text": self._reasoning}] if self._reasoning else []
        return {"id": self._item("rs"), "type": "reasoning", "summary": summary}

    def _message(self, answer: Answer, status: str = "") -> dict[str, Any]:
        annotations = [{"type": "url_citation", **a} for a in answer.annotations]
        part = {
            "type": "output_text",
            "text": answer.content,
            "annotations": annotations,
            "logprobs": [],
        }
        return {
            "id": self._item("msg"),
            "type": "message",
            "role": "assistant",
            "status": status or ("completed" if answer.whole else "incomplete"),
            "content": [part],
        }

    def _item(self, kind: str) -> str:
        return f"{kind}_{self._id}"

    def _summary(self, name: str, **more: Any) -> bytes:
        return self._event(
            f"response.reasoning_summary_{name}",
            item_id=self._item("rs"),
            output_index=REASONING,
            summary_index=0,
            **more,
        )

    def _content(self, name: str, **more: Any) -> bytes:
        return self._event(
            f"response.{name}",
            item_id=self._item("msg"),
            output_index=MESSAGE,
            content_index=0,
            **more,
        )

    def _done_event(self, place: int, item: dict[str, Any]) -> bytes:
        return self._event("response.output_item.done", output_index=place, item=item)

    def _event(self, name: str, **more: Any) -> bytes:
        self._number += 1
        return _frame({"type": name, "sequence_number": self._number, **more}, name)
