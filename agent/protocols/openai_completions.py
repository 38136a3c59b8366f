"""`/v1/models` and `/v1/chat/completions`: a question asked as a chat, its report as the reply.

While the run goes on its progress is sent as reasoning (`reasoning_content`); the report comes
whole once its citations are checked, cut in pieces where it is streamed.
"""

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from agent.protocols.openai_answer import Answer
from agent.protocols.openai_asked import MODEL, ChatAsked, Dialogue, dialogue
from agent.protocols.openai_errors import OpenAIRoute, Unfit, error_of
from agent.protocols.openai_runs import Runs
from agent.protocols.openai_streams import (
    BEAT,
    DONE,
    frame,
    pieces,
    streamed,
    unless_gone,
)
from agent.serve.desk import RunDesk
from agent.serve.work import Work
from memory.errors import RubricemError
from memory.schema import Usage

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
    routes, runs = APIRouter(prefix="/v1", route_class=OpenAIRoute), Runs(desk)

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
        if asked.stream:
            return streamed(_chunks(runs, work, asked))
        return await unless_gone(request, _completion(runs, work))

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


async def _completion(runs: Runs, work: Work) -> dict[str, Any]:
    reasoning = ""
    async with runs.held(work):
        async for line in runs.progress(work):
            reasoning += line
    answer = await runs.answer(work.run, work.conversation)
    message = {
        "role": "assistant",
        "content": answer.content,
        "refusal": None,
        "reasoning_content": reasoning,
        "annotations": _annotations(answer),
    }
    choice = {"index": 0, "message": message, "finish_reason": _reason(answer), "logprobs": None}
    return {
        **_head(work, "chat.completion"),
        "choices": [choice],
        "usage": usage_of(answer.usage),
        "citations": list(answer.citations),
        "rubricem": answer.told(),
    }


async def _chunks(runs: Runs, work: Work, asked: ChatAsked) -> AsyncIterator[bytes]:
    wanted = asked.stream_options is not None and asked.stream_options.include_usage
    head = _head(work, "chat.completion.chunk") | ({"usage": None} if wanted else {})
    async with runs.held(work):
        yield _chunk(head, {"role": "assistant", "content": ""})
        async for line in runs.progress(work):
            yield _chunk(head, {"reasoning_content": line}) if line else BEAT
    try:
        answer = await runs.answer(work.run, work.conversation)
    except RubricemError as error:
        yield frame({"error": error_of(error)})
        yield DONE
        return
    for piece in pieces(answer.content):
        yield _chunk(head, {"content": piece})
    last = {"citations": list(answer.citations), "rubricem": answer.told()}
    yield _chunk({**head, **last}, {"annotations": _annotations(answer)}, _reason(answer))
    if wanted:
        yield frame({**head, "choices": [], "usage": usage_of(answer.usage)})
    yield DONE


def _chunk(head: Mapping[str, Any], delta: Mapping[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    return frame({**head, "choices": [choice]})


def _head(work: Work, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{work.run}",
        "object": kind,
        "created": int(time.time()),
        "model": MODEL,
    }


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
