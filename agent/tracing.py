"""OpenTelemetry spans of runs, by the GenAI semantic conventions; off unless asked for.

    invoke_agent rubricem        one question: conversation, model, tokens, status
      execute_tool search        one search or page that was opened
      chat MODEL                 one call of a model: tokens, finish reason

On by the setting `tracing`, or by the standard variables that name an exporter. Spans go to the
tracer provider of the process; where it has none, one that exports by OTLP is set up, which the
extra `otel` brings. What was asked and written is in no span, unless
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says so. Where tracing is off nothing is
wrapped, so it costs nothing.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rubricem.agent.research.events import Event, Listener, ToolCalled, ToolReturned, ignore
from rubricem.memory.errors import SettingsError
from rubricem.memory.interfaces import Completion, Message, Sampling
from rubricem.memory.schema import Status, Trajectory, Usage

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanKind, Tracer

    from rubricem.agent.research.question import Ask
    from rubricem.agent.research.researcher import Researcher

NAME = "rubricem"
EXPORTERS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURING = ("true", "1", "span_only", "span_and_event")
_FINISHED = {"stop": "stop", "eos": "stop", "length": "length", "repetition": "repetition"}


def is_on(chosen: bool) -> bool:
    """Whether spans are wanted: by the setting, or by a variable of OpenTelemetry."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    named = [os.environ.get(name, "") for name in EXPORTERS]
    return chosen or any(value not in ("", "none") for value in named)


def traced_model(model: Any, chosen: bool) -> Any:
    """The same model; from now on each of its calls is a span, where spans are wanted."""
    if is_on(chosen):
        tracer = _tracer()
        for name in ("chat", "complete"):
            if (call := getattr(model, name, None)) is not None:
                setattr(model, name, _chat_spans(tracer, model.name, call))
    return model


def traced_researcher(researcher: "Researcher", chosen: bool) -> "Researcher":
    """The same researcher; from now on each of its questions is a span, where they are wanted."""
    if is_on(chosen):
        asking = _AskSpans(_tracer(), researcher.policy.name, researcher.ask)
        researcher.ask = asking.ask  # type: ignore[method-assign]
    return researcher


def _tracer() -> "Tracer":
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        _export()
    return trace.get_tracer(NAME)


def _export() -> None:
    """Set up a provider that sends what it gets where the standard variables say."""
    from opentelemetry import trace

    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ImportError as cause:
        raise SettingsError(
            "Tracing needs the extra `otel`.", 'Install it: pip install "rubricem[otel]"'
        ) from cause
    kind = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if kind not in ("otlp", "console"):
        raise SettingsError(
            f"OTEL_TRACES_EXPORTER cannot be {kind!r} here.", "Use `otlp`, `console` or `none`."
        )
    name = os.environ.get("OTEL_SERVICE_NAME") or NAME
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    # Standard output is for answers.
    exporter = OTLPSpanExporter() if kind == "otlp" else ConsoleSpanExporter(out=sys.stderr)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


@contextmanager
def _span(
    tracer: "Tracer", name: str, kind: "SpanKind", attributes: dict[str, Any]
) -> Iterator["Span"]:
    """A current span; what is raised inside is told by its type alone, as it may quote a prompt."""
    with tracer.start_as_current_span(
        name,
        kind=kind,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            _fail(span, type(error).__qualname__)
            raise


def _fail(span: "Span", kind: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def _chat_spans(
    tracer: "Tracer", name: str, call: Callable[..., Awaitable[Completion]]
) -> Callable[..., Awaitable[Completion]]:
    """The `chat` or `complete` of a model, in spans."""
    from opentelemetry.trace import SpanKind

    told = _model(name)
    kind = SpanKind.CLIENT if "server.address" in told else SpanKind.INTERNAL

    async def traced(asked: Sequence[Any], sampling: Sampling, *more: Any) -> Completion:
        attributes = {"gen_ai.operation.name": "chat", **told, **_sampled(sampling)}
        with _span(tracer, f"chat {told['gen_ai.request.model']}", kind, attributes) as span:
            span.set_attributes(_said(asked))
            completion = await call(asked, sampling, *more)
            reason = _FINISHED[completion.stop_reason]
            span.set_attribute("gen_ai.response.finish_reasons", [reason])
            span.set_attributes(_used(completion.usage))
            if _captures():
                written = _messages([Message("assistant", completion.text)], reason)
                span.set_attribute("gen_ai.output.messages", written)
            return completion

    return traced


def _model(name: str) -> dict[str, str]:
    """A model's attributes; a server's model is called `model@host`."""
    model, _, host = name.partition("@")
    if not host:
        return {"gen_ai.provider.name": "llama.cpp", "gen_ai.request.model": model}
    # The conventions name the flavour of the interface, whoever serves it.
    return {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
        "server.address": host,
    }


def _sampled(sampling: Sampling) -> dict[str, int | float]:
    told: dict[str, int | float] = {
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
    }
    return told if sampling.seed is None else told | {"gen_ai.request.seed": sampling.seed}


def _used(usage: Usage) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }


def _captures() -> bool:
    return os.environ.get(CAPTURE, "").lower() in _CAPTURING


def _said(asked: Sequence[Any]) -> dict[str, str]:
    """The messages of a call, where they may be told; token ids are no text."""
    messages = [message for message in asked if isinstance(message, Message)]
    if not messages or not _captures():
        return {}
    return {"gen_ai.input.messages": _messages(messages)}


def _messages(messages: Sequence[Message], finished: str = "") -> str:
    end = {"finish_reason": finished} if finished else {}
    told = [
        {"role": m.role, "parts": [{"type": "text", "content": m.content}], **end} for m in messages
    ]
    return json.dumps(told, ensure_ascii=False)


class _AskSpans:
    """`Researcher.ask` in a span, with one inside it for each tool call."""

    def __init__(
        self, tracer: "Tracer", policy: str, ask: Callable[..., Awaitable[Trajectory]]
    ) -> None:
        self._tracer = tracer
        self._ask = ask
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": NAME}
        self._attributes = agent | _model(policy)

    async def ask(
        self,
        ask: "Ask",
        thread: str | None = None,
        listener: Listener = ignore,
        *more: Any,
        **options: Any,
    ) -> Trajectory:
        from opentelemetry.trace import SpanKind

        attributes = dict(self._attributes)
        if _captures():
            attributes["gen_ai.input.messages"] = _messages([Message("user", ask.question)])
        name = f"invoke_agent {NAME}"
        with _span(self._tracer, name, SpanKind.INTERNAL, attributes) as span:
            tools = _ToolSpans(self._tracer, span, listener)
            try:
                trajectory = await self._ask(ask, thread, tools.hear, *more, **options)
            finally:
                tools.end("cut")
            span.set_attributes(_ended(trajectory))
            if trajectory.status is Status.FAILED:
                _fail(span, "failure")
            return trajectory


class _ToolSpans:
    """A span from each tool's call to its return, by the events of one run."""

    def __init__(self, tracer: "Tracer", parent: "Span", listener: Listener) -> None:
        self._tracer = tracer
        self._parent = parent
        self._listener = listener
        self._open: Span | None = None

    def hear(self, event: Event) -> None:
        if isinstance(event, ToolCalled):
            self._begin(event)
        elif isinstance(event, ToolReturned):
            if self._open is not None:
                self._open.set_attribute("rubricem.sources", len(event.sources))
            self.end("tool_error" if event.error else "")
        self._listener(event)

    def _begin(self, event: ToolCalled) -> None:
        from opentelemetry.trace import set_span_in_context

        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": str(event.number),
        }
        if _captures():
            asked = json.dumps({"query": event.query}, ensure_ascii=False)
            attributes["gen_ai.tool.call.arguments"] = asked
        within = set_span_in_context(self._parent)
        self._open = self._tracer.start_span(
            f"execute_tool {event.name}", within, attributes=attributes
        )

    def end(self, error: str = "") -> None:
        """End what is open; `error` says what kind of failure that was."""
        if self._open is not None:
            if error:
                _fail(self._open, error)
            self._open.end()
            self._open = None


def _ended(trajectory: Trajectory) -> Mapping[str, Any]:
    told: dict[str, Any] = {
        "gen_ai.conversation.id": trajectory.thread,
        "rubricem.status": trajectory.status.value,
        "rubricem.ended_by": trajectory.ended_by,
        "rubricem.tool_calls": trajectory.tool_calls,
        **_used(trajectory.usage),
    }
    if _captures():
        answered = [Message("assistant", trajectory.transcript())]
        told["gen_ai.output.messages"] = _messages(answered, trajectory.status.value)
    return told
