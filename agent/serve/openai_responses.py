"""`/v1/responses`: a question and its report as OpenAI's newer interface has them, for text.

A response is named after its run, so a later one that names it by `previous_response_id` goes on
with the same thread, and any can be read again.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request, Response

from rubricem.agent.serve.desk import RunDesk
from rubricem.agent.serve.openai import (
    MODEL,
    Answer,
    Dialogue,
    OpenAIRuns,
    ResponseAsked,
    dialogue,
    frame,
    pieces,
)
from rubricem.agent.serve.refusals import OpenAIRoute, RequestRefused, Unfit, error_of
from rubricem.memory.errors import RubricemError
from rubricem.memory.schema import Usage

REASONING, MESSAGE = 0, 1
"""places of the two items of the output"""


class ResponseEvents:
    """Follows one response; numbers its events from 0."""

    def __init__(self, identifier: str, created: float, previous: str | None) -> None:
        self.reasoning = ""
        self._id = identifier
        self._created = created
        self._previous = previous
        self._number = -1

    def response(self, status: str, **more: Any) -> dict[str, Any]:
        """The object as clients read it."""
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
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

    def ended(self, answer: Answer) -> dict[str, Any]:
        """The response of a run that ended with a report."""
        more = {} if answer.whole else {"incomplete_details": {"reason": "max_output_tokens"}}
        return self.response(
            "completed" if answer.whole else "incomplete",
            output=[self._thoughts(), self._message(answer)],
            usage=_usage(answer.usage),
            rubricem=answer.told(),
            **more,
        )

    def failed(self, error: RubricemError) -> dict[str, Any]:
        told = {"code": "server_error", "message": error_of(error)["message"]}
        return self.response("failed", error=told)

    def begun(self) -> Iterator[bytes]:
        waiting = self.response("in_progress")
        yield self._event("response.created", response=waiting)
        yield self._event("response.in_progress", response=waiting)
        item = {"id": self._item("rs"), "type": "reasoning", "summary": []}
        yield self._event("response.output_item.added", output_index=REASONING, item=item)
        yield self._summary("part.added", part={"type": "summary_text", "text": ""})

    def thought(self, line: str) -> bytes:
        self.reasoning += line
        return self._summary("text.delta", delta=line)

    def failure(self, error: RubricemError) -> Iterator[bytes]:
        yield self._event("response.failed", response=self.failed(error))

    def written(self, answer: Answer) -> Iterator[bytes]:
        """The end of the reasoning, the message, the whole response."""
        yield self._summary("text.done", text=self.reasoning)
        yield self._summary("part.done", part={"type": "summary_text", "text": self.reasoning})
        yield self._done(REASONING, self._thoughts())
        empty = self._message(answer, "in_progress") | {"content": []}
        yield self._event("response.output_item.added", output_index=MESSAGE, item=empty)
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield self._content("content_part.added", part=part)
        for piece in pieces(answer.content):
            yield self._content("output_text.delta", delta=piece, logprobs=[])
        whole = self._message(answer)
        [part] = whole["content"]
        for at, annotation in enumerate(part["annotations"]):
            yield self._content(
                "output_text.annotation.added", annotation_index=at, annotation=annotation
            )
        yield self._content("output_text.done", text=answer.content, logprobs=[])
        yield self._content("content_part.done", part=part)
        yield self._done(MESSAGE, whole)
        response = self.ended(answer)
        yield self._event(f"response.{response['status']}", response=response)

    def _thoughts(self) -> dict[str, Any]:
        summary = [{"type": "summary_text", "text": self.reasoning}] if self.reasoning else []
        return {"id": self._item("rs"), "type": "reasoning", "summary": summary}

    def _message(self, answer: Answer, status: str = "") -> dict[str, Any]:
        annotations = [{"type": "url_citation", **a.told()} for a in answer.annotations]
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

    def _done(self, place: int, item: dict[str, Any]) -> bytes:
        return self._event("response.output_item.done", output_index=place, item=item)

    def _event(self, name: str, **more: Any) -> bytes:
        self._number += 1
        return frame({"type": name, "sequence_number": self._number, **more}, name)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


PREFIX = "resp_"
_REFUSED = {
    "tools": "a run uses the tools of this server alone",
    "background": "the run would be stopped when the client goes; use POST /api/runs",
    "conversation": "use previous_response_id",
    "prompt": "there are no stored prompts",
    "top_logprobs": "the report is put together from many calls of a model",
}
_PLAIN: tuple[Any, ...] = (None, {}, {"type": "text"})


def router(desk: RunDesk) -> APIRouter:
    routes, runs = APIRouter(prefix="/v1/responses", route_class=OpenAIRoute), OpenAIRuns(desk)

    @routes.post("")
    async def respond(asked: ResponseAsked, request: Request) -> Response:
        said, previous = _checked(asked), asked.previous_response_id
        if previous is None:
            work = await runs.begin(asked, said)
        else:
            run = _run_of(previous, 400)
            await _known(desk, run, previous, 400)
            work = await runs.begin_after(asked, said.question, run)
        events = ResponseEvents(PREFIX + work.run, work.began, previous)
        return await runs.reply(request, work, events, asked.stream)

    @routes.get("/{identifier}")
    async def read(identifier: str) -> dict[str, Any]:
        run = _run_of(identifier, 404)
        await _known(desk, run, identifier, 404)
        began = await asyncio.to_thread(desk.store.asked_at, run)
        events = ResponseEvents(identifier, began.timestamp(), None)
        if run in desk.live and not desk.live[run].heard.over:
            return events.response("in_progress")
        try:
            return events.ended(await runs.answer(run, None))
        except RubricemError as error:
            return events.failed(error)

    return routes


def _checked(asked: ResponseAsked) -> Dialogue:
    asked.refuse(_REFUSED)
    text = (asked.model_extra or {}).get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if form not in _PLAIN:
        raise Unfit("text.format must be text.", "text.format", "unsupported_parameter")
    if isinstance(asked.input, str):
        return Dialogue(asked.input)
    return dialogue(asked.input, "input")


def _run_of(identifier: str, status: int) -> str:
    if not identifier.startswith(PREFIX):
        raise _unknown(identifier, status)
    return identifier.removeprefix(PREFIX)


async def _known(desk: RunDesk, run: str, identifier: str, status: int) -> None:
    try:
        await desk.known(run)
    except RequestRefused as error:
        raise _unknown(identifier, status) from error


def _unknown(identifier: str, status: int) -> Unfit:
    code = "previous_response_not_found" if status == 400 else "not_found"
    param = "previous_response_id" if status == 400 else None
    return Unfit(f"There is no response {identifier[:80]!r}.", param, code, status)
