"""One OpenTelemetry span for each run, by the GenAI semantic conventions: `invoke_agent rubricem`.

It tells conversation, model, tokens and status. The standard variables that name an exporter turn
it on. Spans go to the tracer provider of the process; if there is none, one that exports by OTLP is
set up, with the extra `otel`. Prompts and replies are in no span.

LangSmith, which LangGraph and LangChain tell the texts of a run, is told nothing.
"""

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from rubricem.memory.errors import SettingsError, import_extra
from rubricem.memory.schema import Trajectory

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

NAME = "rubricem"
EXPORTERS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)


def untold() -> AbstractContextManager[None]:
    """Keeps what is done within from LangSmith, whose variables are set for other programs."""
    from langsmith import tracing_context

    return tracing_context(enabled=False)


async def trace_run(answer: Callable[[], Awaitable[Trajectory]], policy: str) -> Trajectory:
    """The result of `answer`, in a span where OpenTelemetry's variables ask for them."""
    named = [os.environ.get(name, "") for name in EXPORTERS]
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if off or all(value in ("", "none") for value in named):
        with untold():
            return await answer()
    with (
        untold(),
        _tracer().start_as_current_span(
            f"invoke_agent {NAME}",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": NAME,
                **_model_attributes(policy),
            },
            # Of an exception only the type is recorded, as it may quote a prompt.
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
    ):
        try:
            trajectory = await answer()
        except BaseException as error:
            _fail(span, type(error).__qualname__)
            raise
        span.set_attributes(_outcome(trajectory))
        if trajectory.failed:
            _fail(span, "failure")
        return trajectory


def _tracer() -> "Tracer":
    import_extra("opentelemetry.trace", "otel", "Tracing")
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
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    kind = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if kind != "otlp":
        raise SettingsError(f"OTEL_TRACES_EXPORTER cannot be {kind!r}.", "Use `otlp` or `none`.")
    name = os.environ.get("OTEL_SERVICE_NAME") or NAME
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def _fail(span: "Span", kind: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def _model_attributes(name: str) -> dict[str, str]:
    """A model's attributes; a server's model is called `model@host`."""
    model, _, host = name.partition("@")
    provider = "openai" if host else "llama.cpp"
    told = {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
    return told | ({"server.address": host} if host else {})


def _outcome(trajectory: Trajectory) -> dict[str, Any]:
    usage = trajectory.usage
    return {
        "gen_ai.conversation.id": trajectory.thread,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "rubricem.status": trajectory.status.value,
        "rubricem.ended_by": trajectory.ended_by,
        "rubricem.tool_calls": trajectory.tool_calls,
    }
