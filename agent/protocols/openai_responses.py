"""`/v1/responses`: a question and its report as OpenAI's newer interface has them, for text.

A response is named after its run, so a later one that names it by `previous_response_id` goes on
with the same thread, and any can be read again.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response

from agent.protocols.openai_asked import Dialogue, ResponseAsked, dialogue
from agent.protocols.openai_errors import OpenAIRoute, Unfit, error_of
from agent.protocols.openai_response_events import ResponseEvents
from agent.protocols.openai_runs import Runs
from agent.protocols.openai_streams import BEAT, streamed, unless_gone
from agent.serve.desk import RunDesk
from agent.serve.refusals import Refused
from agent.serve.work import Work
from memory.errors import RubricemError

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
    routes, runs = APIRouter(prefix="/v1/responses", route_class=OpenAIRoute), Runs(desk)

    @routes.post("")
    async def respond(asked: ResponseAsked, request: Request) -> Response:
        said = _checked(asked)
        work = await _begun(runs, asked, said)
        events = ResponseEvents(PREFIX + work.run, work.began, asked.previous_response_id)
        if asked.stream:
            return streamed(_frames(runs, work, events))
        return await unless_gone(request, _response(runs, work, events))

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
            return events.failed(error_of(error)["message"])

    async def _begun(runs: Runs, asked: ResponseAsked, said: Dialogue) -> Work:
        if asked.previous_response_id is None:
            return await runs.begin(asked, said)
        run = _run_of(asked.previous_response_id, 400)
        await _known(desk, run, asked.previous_response_id, 400)
        return await runs.begin_after(asked, said.question, run)

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
    except Refused as error:
        raise _unknown(identifier, status) from error


def _unknown(identifier: str, status: int) -> Unfit:
    code = "previous_response_not_found" if status == 400 else "not_found"
    param = "previous_response_id" if status == 400 else None
    return Unfit(f"There is no response {identifier[:80]!r}.", param, code, status)


async def _response(runs: Runs, work: Work, events: ResponseEvents) -> dict[str, Any]:
    async with runs.held(work):
        async for line in runs.progress(work):
            events.reasoning += line
    return events.ended(await runs.answer(work.run, work.conversation))


async def _frames(runs: Runs, work: Work, events: ResponseEvents) -> AsyncIterator[bytes]:
    async with runs.held(work):
        for frame in events.begun():
            yield frame
        async for line in runs.progress(work):
            yield events.thought(line) if line else BEAT
    try:
        answer = await runs.answer(work.run, work.conversation)
    except RubricemError as error:
        yield events.failure(error_of(error)["message"])
        return
    for frame in events.written(answer):
        yield frame
