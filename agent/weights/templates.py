"""Chat templates: programs that come with weights, and may never end.

They are rendered here, in a sandbox that bounds how long they run and what they make; llama.cpp, in
which nothing could be ended, gets none to run.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from rubricem.agent.weights.checkpoints import gguf_fields
from rubricem.memory.errors import WeightsError, boundary
from rubricem.memory.schema import Message

SECONDS = 4
"""of processor time; the slowest template of a known model takes a hundredth of a second"""
LONGEST = 10_000_000
"""characters of a prompt; the most that a product or a power may come to"""
_FIELD = b"tokenizer.chat_template"
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant{{ '\\n' }}"
)
"""for weights without a template"""


@lru_cache(8)
def _compiled(text: str) -> Any:
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class WrittenMark(Extension):
        """The tag by which templates for training mark what a model wrote: here it is no more."""

        tags = {"generation"}  # noqa: RUF012 (as jinja declares it)

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class TemplateSandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(("*", "**"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            a, b = (len(v) if isinstance(v, str | list | tuple) else abs(v) for v in (left, right))
            if (a ** min(b, 99) if operator == "**" else a * b) > LONGEST:
                raise OverflowError("the result is too large")
            return super().call_binop(context, operator, left, right)

    def refuse(said: str) -> None:
        raise ValueError(said)

    machine = TemplateSandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", WrittenMark],
    )
    machine.filters["tojson"] = lambda value, **form: json.dumps(value, ensure_ascii=False, **form)
    machine.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    return machine.from_string(text)


@contextmanager
def in_time(name: object) -> Iterator[None]:
    """End Python code that is called here, by WeightsError, once it has run for `SECONDS`."""
    end, before = time.thread_time() + SECONDS, sys.gettrace()

    def watch(frame: Any, event: str, argument: Any) -> Any:
        if time.thread_time() > end:
            raise _endless(name)
        return watch

    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


def _endless(name: object) -> WeightsError:
    return WeightsError(
        f"the chat template of {name} does not terminate.",
        "Fetch the model from its maker, or give it the template of the model it is made of.",
    )


def template_in(file: Path) -> str:
    """The chat template of a GGUF file; "" if it has none, or is none that can be read."""
    with suppress(Exception), file.open("rb") as opened:
        return bytes(gguf_fields(opened, (_FIELD,))[_FIELD]).decode(errors="replace")
    return ""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The template of one model; `tokens` are its `bos_token` and `eos_token`."""

    name: str
    text: str
    tokens: Mapping[str, str]

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt for the next reply. Raises WeightsError.

        A template that knows no system message gets its text with the first one of a user.
        """
        if len(messages) > 1 and messages[0].role == "system":
            system, user, *rest = messages
            with suppress(WeightsError):
                whole = self._render(messages)
                if system.content.strip() in whole:
                    return whole
            messages = [Message(user.role, f"{system.content}\n\n{user.content}"), *rest]
        return self._render(messages)

    def _render(self, messages: Sequence[Message]) -> str:
        said, made = [asdict(message) for message in messages], ""
        with boundary(WeightsError, f"the chat template of {self.name}"), in_time(self.name):
            own = {"tools": None, "documents": None, **self.tokens}
            pieces = _compiled(self.text or _CHATML).generate(
                messages=said, add_generation_prompt=True, **own
            )
            try:
                for piece in pieces:
                    made += piece
                    if len(made) > LONGEST:
                        raise OverflowError
            except (OverflowError, MemoryError, RecursionError):
                raise _endless(self.name) from None
        return made
