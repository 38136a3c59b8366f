"""`/v1/models` and `/v1/chat/completions`: a question asked as a chat, its report as the reply.

The last message is the question. What a run cannot do - call the caller's tools, look at
pictures, answer several times over - is refused by name. How the text is sampled is this
server's own setting, so `temperature` and its like are read and not used; messages of `system`
and `developer` speak to a chat model and are passed over.

While the run goes on its progress is sent as reasoning (`reasoning_content`); the report comes
whole once its citations are checked, cut in pieces where it is streamed. It is Markdown: what a
reader has to know first, the answer with its marks, the sources. `citations` has an address for
each number of a mark, in order; `annotations` say where in the content each mark stands.

A run belongs to its request: a client that goes away ends it with what there is, since clients
try again by themselves and each try costs a run. What there is stays, and can be resumed.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem.agent.reports.cited import Cited, CitedAnswer, Uncited, bracketed, cited_answer
from rubricem.agent.reports.report import NO_ANSWER, link, literal, marked_in, notes, prose
from rubricem.agent.research.question import LONGEST_QUESTION
from rubricem.agent.serve.desk import RunDesk, Work
from rubricem.agent.serve.refusals import OpenAIRoute, RequestRefused, Unfit, error_of
from rubricem.agent.serve.requests import RunAsked
from rubricem.memory.errors import PolicyError, RubricemError
from rubricem.memory.schema import NO_USAGE, Status, Trajectory, Usage
from rubricem.memory.text import one_line

MODEL = "rubricem"
"""the one model that there is, whatever model writes behind it"""
_PASSED_OVER = ("system", "developer")
_TEXTS = ("text", "input_text", "output_text")
LONGEST_TURN = 3000
"""characters of an earlier message, where it is told as text"""
MOST_TURNS = 6
"""earlier messages that are told so, as far as the question leaves room for them"""
_BEFORE = "What was said before this question:"

_EMPTY: tuple[Any, ...] = (None, False, [], {}, "", "none", "auto", 0)


class Asked(BaseModel):
    """The fields that both kinds of request share; unknown ones are passed over."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: str = MODEL
    stream: bool = False
    rubricem: dict[str, Any] | None = None
    """what a run may be given besides: `format`, `source`, `max_seconds` and so on"""

    def refuse(self, kinds: Mapping[str, str]) -> None:
        """Raise Unfit where the model is another, or a field asks for what there is not."""
        if self.model != MODEL:
            message = f"The model {self.model[:80]!r} does not exist; use {MODEL!r}."
            raise Unfit(message, "model", "model_not_found", 404)
        for name, said in kinds.items():
            if (self.model_extra or {}).get(name) not in _EMPTY:
                raise Unfit(f"{name} is not supported: {said}.", name, "unsupported_parameter")

    def run(self, question: str, conversation: str | None) -> RunAsked:
        """The run that is asked for; nobody is there to decide on its plan."""
        options = {**(self.rubricem or {}), "approve_plan": False, "clarify": False}
        thread = conversation or options.get("thread")
        try:
            return RunAsked.model_validate({**options, "question": question, "thread": thread})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(["rubricem", *map(str, first["loc"])])
            raise Unfit(f"{place}: {first['msg']}.", place) from error


class StreamOptions(BaseModel):
    include_usage: bool = False


class ChatAsked(Asked):
    """The body of a chat completion."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    n: int | None = None
    stream_options: StreamOptions | None = None


class ResponseAsked(Asked):
    """The body of a response."""

    input: str | list[dict[str, Any]]
    previous_response_id: str | None = None


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """One message: who said what."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A question and the messages before it, the latest last."""

    question: str
    earlier: tuple[SaidTurn, ...] = ()

    def as_question(self) -> str:
        """The question with what was said before as text, for a thread that no run is known of."""
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
    """The question of a list of messages. Raises Unfit unless a text of the user comes last."""
    turns = [
        _turn(message, f"{place}.{at}")
        for at, message in enumerate(messages)
        if message.get("role") not in _PASSED_OVER and message.get("type") != "reasoning"
    ]
    if not turns or turns[-1].role != "user":
        raise Unfit("The last message must be the user's: it is the question.", place)
    return Dialogue(turns[-1].text, tuple(turns[:-1]))


def _turn(message: Mapping[str, Any], place: str) -> SaidTurn:
    role = message.get("role")
    if role not in ("user", "assistant") or message.get("tool_calls"):
        said = role if isinstance(role, str) else message.get("type")
        raise Unfit(f"{place}: a message of {said!r} is not supported.", place)
    content = message.get("content")
    if isinstance(content, str):
        return SaidTurn(role, content)
    if not isinstance(content, list):
        raise Unfit(f"{place}.content must be a text or a list of texts.", f"{place}.content")
    return SaidTurn(role, "\n".join(_part(part, f"{place}.content") for part in content))


def _part(part: Any, place: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in _TEXTS or not isinstance(part.get("text"), str):
        raise Unfit(
            f"{place}: a part of type {kind!r} is not supported: only text is read.",
            place,
            "unsupported_content",
        )
    text: str = part["text"]
    return text


_PLACE = re.compile("\ufdd2(\\d+)\ufdd3")
"""where a mark will stand: noncharacters, which no text keeps"""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A mark in the content: characters from `start` to before `end`."""

    start: int
    end: int
    title: str
    url: str

    def told(self) -> dict[str, Any]:
        return {
            "start_index": self.start,
            "end_index": self.end,
            "title": self.title,
            "url": self.url,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run came to, for a client."""

    run: str
    thread: str | None
    """its conversation"""
    status: str
    reason: str
    content: str = ""
    annotations: tuple[Annotation, ...] = ()
    citations: tuple[str, ...] = ()
    """addresses of the sources, in the order of their numbers from 1"""
    usage: Usage = NO_USAGE

    @property
    def whole(self) -> bool:
        """Whether nothing cut it short."""
        return self.status in (Status.FINISHED, Status.NO_EVIDENCE)

    def told(self) -> dict[str, Any]:
        """What is of no other field: which run it was, and how it came out."""
        told = {"run": self.run, "thread": self.thread, "status": self.status}
        return {**told, "reason": self.reason}


def answer_of(trajectory: Trajectory, thread: str | None) -> Answer:
    """The answer of a run that ended, well or early."""
    cited = cited_answer(trajectory)
    content, annotations = _content(trajectory, cited)
    return Answer(
        run=trajectory.thread,
        thread=thread,
        status=trajectory.status.value,
        reason=one_line(trajectory.reason),
        content=content,
        annotations=annotations,
        citations=tuple(one_line(source.location) for source in cited.sources),
        usage=trajectory.usage,
    )


def _content(trajectory: Trajectory, cited: CitedAnswer) -> tuple[str, tuple[Annotation, ...]]:
    pieces: list[Cited | Uncited] = []

    def hold(piece: Cited | Uncited) -> str:
        pieces.append(piece)
        return f"\ufdd2{len(pieces) - 1}\ufdd3"

    body = marked_in(cited, prose, hold) if cited.pieces else NO_ANSWER
    held = "\n\n".join([*map(literal, notes(trajectory, cited)), body])
    content, annotations, end = "", list[Annotation](), 0
    for place in _PLACE.finditer(held):
        content += held[end : place.start()]
        piece, end = pieces[int(place[1])], place.end()
        mark = bracketed(piece)
        if isinstance(piece, Cited):
            span = len(content), len(content) + len(mark)
            annotations += [
                Annotation(*span, one_line(c.source.title), one_line(c.source.location))
                for c in piece.citations
            ]
        content += mark
    sources = [
        f"{number}. {link(source.title, source.location)} ({literal(one_line(source.location))})"
        for number, source in enumerate(cited.sources, start=1)
    ]
    listed = ["**Sources**", "\n".join(sources)] if sources else []
    parts = [content + held[end:], *listed, prose(cited.bare)]
    return "\n\n".join(filter(None, parts)), tuple(annotations)


BEAT = b":\n\n"
"""a comment: the connection stands"""
DONE = b"data: [DONE]\n\n"
GONE = 499
"""the status of a reply that nobody waits for"""
PIECE = 400
"""characters of a report that are sent at once"""


def frame(value: Mapping[str, Any], event: str = "") -> bytes:
    named = f"event: {event}\n" if event else ""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{named}data: {text}\n\n".encode()


def pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


async def _unless_gone(request: Request, work: Awaitable[dict[str, Any]]) -> Response:
    """The reply that the work comes to; it is cancelled when the client goes away."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(gone())
    try:
        await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return Response(status_code=GONE)
        return JSONResponse(working.result())
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


class Form(Protocol):
    """How one kind of interface tells of a run: in events, or as a whole."""

    reasoning: str
    """the lines of progress so far"""

    def begun(self) -> Iterator[bytes]: ...

    def thought(self, line: str) -> bytes: ...

    def failure(self, error: RubricemError) -> Iterator[bytes]: ...

    def written(self, answer: Answer) -> Iterator[bytes]:
        """The events of a run that ended with a report."""

    def ended(self, answer: Answer) -> dict[str, Any]:
        """The same as one reply."""


LOOKED_THROUGH = 300
"""of the latest runs, for the one whose report a client sends back"""
Event = tuple[str, Any]


class OpenAIRuns:
    """The runs of one desk."""

    def __init__(self, desk: RunDesk) -> None:
        self._desk = desk

    async def begin(self, asked: Asked, said: Dialogue) -> Work:
        """Begin a run for the question, in the conversation that its earlier messages are of."""
        conversation = await asyncio.to_thread(self._conversation, said)
        question = said.question if conversation else said.as_question()
        return await self._desk.start(asked.run(question, conversation))

    async def begin_after(self, asked: Asked, question: str, run: str) -> Work:
        """Begin a run in the conversation of another, right after it. Refused where none is."""
        await self._desk.known(run)
        conversation = (await asyncio.to_thread(self._desk.conversations.after, run)).id
        return await self._desk.start(asked.run(question, conversation))

    @asynccontextmanager
    async def held(self, work: Work) -> AsyncIterator[None]:
        """While a client waits for it; the run is stopped if it goes on when this ends.

        Where the server ends, the run is left to the next one.
        """
        try:
            yield
        finally:
            if not work.heard.over and not self._desk.closing.is_set():
                # Unless it ended by itself meanwhile.
                with suppress(RubricemError):
                    await asyncio.shield(self._desk.stop(work.run))

    async def reply(self, request: Request, work: Work, form: "Form", stream: bool) -> Response:
        """What a client is sent: a stream of events, or the whole at its end."""
        if stream:
            headers = {"X-Accel-Buffering": "no"}
            frames = self._frames(work, form)
            return StreamingResponse(frames, media_type="text/event-stream", headers=headers)
        return await _unless_gone(request, self._whole(work, form))

    async def _whole(self, work: Work, form: "Form") -> dict[str, Any]:
        async with self.held(work):
            async for line in self.progress(work):
                form.reasoning += line
        return form.ended(await self.answer(work.run, work.conversation))

    async def _frames(self, work: Work, form: "Form") -> AsyncIterator[bytes]:
        async with self.held(work):
            for event in form.begun():
                yield event
            async for line in self.progress(work):
                yield form.thought(line) if line else BEAT
        try:
            answer = await self.answer(work.run, work.conversation)
        except RubricemError as error:
            for event in form.failure(error):
                yield event
            return
        for event in form.written(answer):
            yield event

    async def progress(self, work: Work) -> AsyncIterator[str]:
        """Lines on what is done, as it is done; "" where nothing was for a while."""
        async for told in work.heard.follow():
            if self._desk.closing.is_set():
                return
            if not told:
                yield ""
            for name, held in told:
                if line := line_of(name, held):
                    yield line

    async def answer(self, run: str, conversation: str | None) -> Answer:
        """What an ended run came to. Raises PolicyError for one that failed."""
        if await asyncio.to_thread(self._desk.store.ended, run):
            trajectory = await asyncio.to_thread(self._desk.store.load, run)
            if trajectory.status is Status.FAILED:
                raise PolicyError(trajectory.reason)
            return await asyncio.to_thread(answer_of, trajectory, conversation)
        status, reason = await self._finished(run)
        if status == Status.FAILED.value:
            raise PolicyError(reason)
        return Answer(run, conversation, status, reason)

    async def _finished(self, run: str) -> tuple[str, str]:
        """How a run ended of which no trajectory is kept, as its events tell it."""
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

    def _conversation(self, said: Dialogue) -> str | None:
        """The conversation that goes on; None where no run of it is known here."""
        asked = [turn.text for turn in said.earlier if turn.role == "user"]
        reports = [turn.text for turn in said.earlier if turn.role == "assistant"]
        if not asked or not reports or said.earlier[-1].role != "assistant":
            return None
        run = self._reported(asked[-1], reports[-1])
        return self._desk.conversations.after(run).id if run else None

    def _reported(self, question: str, report: str) -> str | None:
        """The run whose answer was this report."""
        store = self._desk.store
        for run in reversed(store.threads()[-LOOKED_THROUGH:]):
            try:
                same = store.request(run)["ask"]["question"].startswith(question.strip())
                if same and store.ended(run):
                    content = answer_of(store.load(run), None).content
                    if content.split() == report.split():
                        return run
            except (RubricemError, LookupError, TypeError, AttributeError):
                # A damaged run is nobody's thread.
                continue
        return None


def line_of(name: str, held: Any) -> str:
    """An event of a run, as a line of what a reader may follow; "" for what is none."""
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


_REFUSED = {
    "tools": "a run uses the tools of this server alone",
    "functions": "a run uses the tools of this server alone",
    "logprobs": "the report is put together from many calls of a model",
    "top_logprobs": "the report is put together from many calls of a model",
    "audio": "only text is read and written",
    "prediction": "a report cannot be foretold",
}
_PLAIN: tuple[Any, ...] = (None, {"type": "text"})


def router(desk: RunDesk) -> APIRouter:
    routes, runs = APIRouter(prefix="/v1", route_class=OpenAIRoute), OpenAIRuns(desk)

    @routes.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model()]}

    @routes.get("/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        ChatAsked(model=name, messages=[{}]).refuse({})
        return _model()

    @routes.post("/chat/completions")
    async def complete(asked: ChatAsked, request: Request) -> Response:
        work = await runs.begin(asked, _checked(asked))
        return await runs.reply(request, work, ChatEvents(work, asked), asked.stream)

    return routes


def _model() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": 0, "owned_by": "rubricem"}


def _checked(asked: ChatAsked) -> Dialogue:
    asked.refuse(_REFUSED)
    if asked.n not in (None, 1):
        raise Unfit("n must be 1: a run has one report.", "n", "unsupported_parameter")
    more = asked.model_extra or {}
    if more.get("response_format") not in _PLAIN:
        raise Unfit("response_format must be text.", "response_format", "unsupported_parameter")
    if more.get("modalities") not in (None, ["text"]):
        raise Unfit("modalities must be text.", "modalities", "unsupported_parameter")
    return dialogue(asked.messages, "messages")


class ChatEvents:
    """A run as a chat completion, or as the chunks of one."""

    def __init__(self, work: Work, asked: ChatAsked) -> None:
        self.reasoning = ""
        self._counted = asked.stream_options is not None and asked.stream_options.include_usage
        self._head = {
            "id": f"chatcmpl-{work.run}",
            "object": "chat.completion.chunk" if asked.stream else "chat.completion",
            "created": int(time.time()),
            "model": MODEL,
            **({"usage": None} if asked.stream and self._counted else {}),
        }

    def begun(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def thought(self, line: str) -> bytes:
        return self._chunk({"reasoning_content": line})

    def failure(self, error: RubricemError) -> Iterator[bytes]:
        yield frame({"error": error_of(error)})
        yield DONE

    def written(self, answer: Answer) -> Iterator[bytes]:
        for piece in pieces(answer.content):
            yield self._chunk({"content": piece})
        last = {"citations": list(answer.citations), "rubricem": answer.told()}
        yield self._chunk({"annotations": _annotations(answer)}, _reason(answer), **last)
        if self._counted:
            yield frame({**self._head, "choices": [], "usage": usage_of(answer.usage)})
        yield DONE

    def ended(self, answer: Answer) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": answer.content,
            "refusal": None,
            "reasoning_content": self.reasoning,
            "annotations": _annotations(answer),
        }
        whole = {"message": message, "finish_reason": _reason(answer), "logprobs": None}
        return {
            **self._head,
            "choices": [{"index": 0, **whole}],
            "usage": usage_of(answer.usage),
            "citations": list(answer.citations),
            "rubricem": answer.told(),
        }

    def _chunk(self, delta: Mapping[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return frame({**self._head, **more, "choices": [choice]})


def _reason(answer: Answer) -> str:
    return "stop" if answer.whole else "length"


def _annotations(answer: Answer) -> list[dict[str, Any]]:
    return [{"type": "url_citation", "url_citation": a.told()} for a in answer.annotations]


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
