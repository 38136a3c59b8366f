"""Chat templates: programs that come with weights, and may never end.

A template of somebody else's is first tried in a process of its own, which bounds its memory as
well (`check_template`); what ends for those conversations may not end for others, so each rendering
is bounded in time (`in_time`). llama.cpp, in which nothing could be ended, gets none to run.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rubricem.agent.weights.checkpoints import gguf_fields
from rubricem.memory.errors import WeightsError, boundary
from rubricem.memory.schema import Message

SECONDS = 4
"""of processor time; the slowest template of a known model takes a hundredth of a second"""
_CLOCK_SECONDS = 60.0
_MOST_BYTES = 512 << 20
_LONGEST_PROMPT = 1_000_000
"""characters that a template may make of a few words"""
_TRIED = f"from {__name__} import try_template; try_template()"
_TALK = (
    Message("system", "Be brief."),
    Message("user", "Who?"),
    Message("assistant", "Nobody."),
    Message("user", "Why?"),
)
_FIELD = b"tokenizer.chat_template"
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant{{ '\\n' }}"
)
"""for weights without a template"""


def _compiled(text: str) -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(said: str) -> None:
        raise ValueError(said)

    machine = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    machine.filters["tojson"] = lambda value, **form: json.dumps(value, ensure_ascii=False, **form)
    machine.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    return machine.from_string(text)


def _endless(name: object) -> WeightsError:
    return WeightsError(
        f"the chat template of {name} does not terminate.",
        "Fetch the model from its maker, or give it the template of the model it is made of.",
    )


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
        said = [asdict(message) for message in messages]
        with boundary(WeightsError, f"the chat template of {self.name}"), in_time(self.name):
            template = _compiled(self.text or _CHATML)
            made: str = template.render(messages=said, add_generation_prompt=True, **self.tokens)
        return made


def check_template(template: str, name: str) -> None:
    """Raises WeightsError if a chat template does not end for ordinary conversations. Blocking."""
    kept = {key: os.environ[key] for key in ("PATH", "SYSTEMROOT") if key in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-W", "ignore", "-c", _TRIED],
            input=template.encode(errors="replace"),
            env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            timeout=_CLOCK_SECONDS,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        done = 1
    if done:
        raise _endless(name)


def try_template() -> None:
    """Render the template on standard input for a conversation; ends this process."""
    with suppress(ImportError):  # no such limits on this system
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    text, endless = sys.stdin.read(), False
    for some in (_TALK[1:2], _TALK[:2], _TALK):
        try:
            said = [asdict(message) for message in some]
            made = _compiled(text).render(messages=said, add_generation_prompt=True)
            endless = endless or len(made) > _LONGEST_PROMPT
        except (OverflowError, MemoryError, RecursionError):  # a range too large for the sandbox
            endless = True
        except Exception:
            continue  # what is wrong with it, whoever writes by it says
    sys.exit(endless)
