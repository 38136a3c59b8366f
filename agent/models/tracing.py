"""OpenTelemetry spans of runs, by the GenAI semantic conventions; off by default.

    invoke_agent rubricem        one question: conversation, model, tokens, status
      execute_tool search        one search or page that was opened
      chat MODEL                 one call of a model: tokens, finish reason

The setting `tracing` turns it on, or the standard variables that name an exporter. Spans go to the
tracer provider of the process; if there is none, one that exports by OTLP is set up, with the extra
`otel`. Prompts and replies are in no span, unless
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says so. If tracing is off nothing is wrapped, so
it costs nothing.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rubricem.agent.transcript.events import Event, Listener, ToolCalled, ToolReturned
from rubricem.memory.errors import SettingsError, import_extra
from rubricem.memory.schema import Completion, Message, Sampling, Status, Trajectory, Usage

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanKind, Tracer


NAME = "rubricem"
EXPORTERS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURING = ("true", "1", "span_only", "span_and_event")
_FINISHED = {"stop": "stop", "eos": "stop", "length": "length", "repetition": "repetition"}


def _is_on(chosen: bool) -> bool:
    """Whether spans are wanted: by the setting, or by a variable of OpenTelemetry."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    named = [os.environ.get(name, "") for name in EXPORTERS]
    return chosen or any(value not in ("", "none") for value in named)


def trace_model(model: Any, chosen: bool) -> Any:
    """The same model; if spans are wanted, each of its calls is one from now on."""
    if _is_on(chosen):
        tracer = _tracer()
        for name in ("chat", "complete"):
            if (call := getattr(model, name, None)) is not None:
                setattr(model, name, _chat_spans(tracer, model.name, call))
    return model


async def trace_run(
    answer: Callable[[Listener], Awaitable[Trajectory]],
    policy: str,
    question: str,
    listener: Listener,
    chosen: bool,
) -> Trajectory:
    """The result of `answer`, in a span with one inside it for each tool call in its events.

    Without spans if none are wanted.
    """
    if not _is_on(chosen):
        return await answer(listener)
    from opentelemetry.trace import SpanKind

    tracer = _tracer()
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": NAME}
    asked = _message_attributes("input", [Message("user", question)])
    attributes = {**agent, **_model(policy), **asked}
    with _span(tracer, f"invoke_agent {NAME}", SpanKind.INTERNAL, attributes) as span:
        tools = _ToolSpans(tracer, span, listener)
        try:
            trajectory = await answer(tools.hear)
        finally:
            tools.end("cut")
        status, said = trajectory.status, Message("assistant", trajectory.transcript())
        span.set_attributes(
            {
                "gen_ai.conversation.id": trajectory.thread,
                "rubricem.status": status.value,
                "rubricem.ended_by": trajectory.ended_by,
                "rubricem.tool_calls": trajectory.tool_calls,
                **_usage_attributes(trajectory.usage),
                **_message_attributes("output", [said], status.value),
            }
        )
        if status is Status.FAILED:
            _fail(span, "failure")
        return trajectory


def _tracer() -> "Tracer":
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        _export()
    return trace.get_tracer(NAME)


def _export() -> None:
    """Set up a provider that exports to where the standard variables say."""
    import_extra("opentelemetry.exporter.otlp.proto.http", "otel", "Tracing")
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

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
    """A current span; of an exception only the type is recorded, as it may quote a prompt."""
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
    """The `chat` or `complete` of a model, with a span for each call."""
    from opentelemetry.trace import SpanKind

    told = _model(name)
    kind = SpanKind.CLIENT if "server.address" in told else SpanKind.INTERNAL

    async def call_in_span(asked: Sequence[Any], sampling: Sampling, *more: Any) -> Completion:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            **told,
            **_message_attributes(
                "input", [message for message in asked if isinstance(message, Message)]
            ),
        }
        if sampling.seed is not None:
            attributes["gen_ai.request.seed"] = sampling.seed
        with _span(tracer, f"chat {told['gen_ai.request.model']}", kind, attributes) as span:
            completion = await call(asked, sampling, *more)
            reason = _FINISHED[completion.stop_reason]
            span.set_attribute("gen_ai.response.finish_reasons", [reason])
            span.set_attributes(_usage_attributes(completion.usage))
            span.set_attributes(
                _message_attributes("output", [Message("assistant", completion.text)], reason)
            )
            return completion

    return call_in_span


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


def _usage_attributes(usage: Usage) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }


def _captures() -> bool:
    return os.environ.get(CAPTURE, "").lower() in _CAPTURING


def _message_attributes(
    side: str, messages: Sequence[Message], finished: str = ""
) -> dict[str, str]:
    """Messages that went in or came out, if they may be recorded; token ids are no text."""
    if not messages or not _captures():
        return {}
    end = {"finish_reason": finished} if finished else {}
    told = [
        {"role": m.role, "parts": [{"type": "text", "content": m.content}], **end} for m in messages
    ]
    return {f"gen_ai.{side}.messages": json.dumps(told, ensure_ascii=False)}


class _ToolSpans:
    """A span for each tool call until its return, from the events of one run."""

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
        """End open spans; `error` names the kind of failure."""
        if self._open is not None:
            if error:
                _fail(self._open, error)
            self._open.end()
            self._open = None
