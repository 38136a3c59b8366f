"""What a model server's failure means to the person who asked, and what to do about it.

A server's own words are quoted only where they help, cut short and without the API key, which
some servers repeat in their refusals.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.servers.endpoint import Endpoint
from agent.servers.retrying import AttemptError, asked_wait, is_transient
from memory.printable import one_line

QUOTED_CHARACTERS = 300

_CONTEXT = re.compile(
    r"context[_ ]*(length|size|window)|maximum context|exceeds? the .{0,30}context"
    r"|prompt is too long",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|credit balance", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Server:
    """A server as its failures are told: its address, the model asked for, the key's variable."""

    endpoint: Endpoint
    model: str
    key_variable: str
    key: str = field(default="", repr=False)

    def quote(self, words: str) -> str:
        """The server's words, printable, cut short, key and the address's password blanked."""
        words = one_line(words)
        secrets = [self.key, (self.endpoint.basic or "").removeprefix("Basic ")]
        for secret in filter(None, secrets):
            words = words.replace(secret, "[key]")
        return words if len(words) <= QUOTED_CHARACTERS else words[:QUOTED_CHARACTERS] + " ..."

    def unreachable(self) -> AttemptError:
        return AttemptError(
            f"no model server answers at {self.endpoint.url}",
            "Start the server, or correct its address (base_url).",
            again=True,
            away=True,
        )

    def silent(self, seconds: float) -> AttemptError:
        return AttemptError(
            f"the model server at {self.endpoint.url} sent nothing for {seconds:g} s",
            "Look whether it is overloaded, or allow it a longer time-out.",
            again=True,
            silent=True,
            away=True,
        )

    def cut(self, why: str) -> AttemptError:
        quoted = f" ({self.quote(why)})" if why else ""
        return AttemptError(
            f"the model server at {self.endpoint.url} broke off in the middle of a reply{quoted}",
            "Look into the server's log, and ask again.",
            again=True,
        )

    def garbled(self) -> AttemptError:
        return AttemptError(
            f"what {self.endpoint.url} sent is no OpenAI-compatible chat completion",
            "Correct the address (base_url); most servers want it to end in /v1.",
            again=True,
        )

    def unexpected(self, fault: Exception) -> AttemptError:
        return AttemptError(
            f"what {self.endpoint.url} sent is not what its kind of server sends "
            f"({type(fault).__name__}: {self.quote(str(fault))})",
            "Name another dialect, or ask it as a plain chat server: --dialect openai.",
            again=True,
        )

    def refused(self, status: int, complaint: str, headers: Mapping[str, str]) -> AttemptError:
        """The failure that an HTTP status and the server's words stand for."""
        if status in (401, 403):
            return self._locked(status)
        if _CONTEXT.search(complaint):
            return self.too_long()
        if status == 429 and _QUOTA.search(complaint):
            return self._exhausted()
        if is_transient(status):
            return self._busy(status, complaint, asked_wait(headers))
        return AttemptError(
            f"the model server at {self.endpoint.url} rejected the request ({status}): "
            f"{self.quote(complaint)}",
            "Correct what it names, or use another model or server.",
            again=False,
        )

    def filtered(self) -> AttemptError:
        return AttemptError(
            f"the content filter of {self.endpoint.url} withheld the reply",
            "Word the question differently, or use another model.",
            again=False,
        )

    def wordless(self) -> AttemptError:
        return AttemptError(
            f"{self.model} at {self.endpoint.url} sent an empty reply",
            "Ask again, or use another model.",
            again=True,
        )

    def endless_thought(self, tokens: int) -> AttemptError:
        return AttemptError(
            f"{self.model} spent all its {tokens} tokens on thinking and wrote no reply",
            "Allow it more tokens (max_tokens), or use a model that thinks less.",
            again=False,
        )

    def no_model(self, known: list[str]) -> AttemptError:
        """`known` are the ids that the server lists; empty if it lists none."""
        if known:
            listed = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
            remedy = f"It has: {listed}."
        else:
            remedy = "Correct the model's name, or the address; most servers want it to end in /v1."
        return AttemptError(
            f"the model server at {self.endpoint.url} has no model {self.model!r} (404)",
            remedy,
            again=False,
        )

    def too_long(self) -> AttemptError:
        return AttemptError(
            f"the conversation no longer fits the context length of {self.model}",
            "Allow fewer tool calls or shorter passages, or use a model with a longer context.",
            again=False,
        )

    def _locked(self, status: int) -> AttemptError:
        if self.key:
            what = f"refused the API key from {self.key_variable}"
            remedy = f"Set {self.key_variable} to a key that is valid for this server and model."
        else:
            what = "wants an API key and none is set"
            remedy = f"Set {self.key_variable} to a key of this server."
        return AttemptError(
            f"the model server at {self.endpoint.url} {what} ({status})", remedy, again=False
        )

    def _exhausted(self) -> AttemptError:
        return AttemptError(
            f"the account at {self.endpoint.url} has no quota left (429)",
            "Add credit there, use another key, or use another model.",
            again=False,
        )

    def _busy(self, status: int, complaint: str, asked: float | None) -> AttemptError:
        if crowded := status == 429 or (status == 503 and asked is not None):
            what, remedy = "limits its callers", "Ask later, or let fewer calls run at once."
        else:
            what, remedy = f"failed: {self.quote(complaint)}", "Look into the server's log."
        return AttemptError(
            f"the model server at {self.endpoint.url} {what} ({status})",
            remedy,
            again=True,
            asked=asked,
            crowded=crowded,
            away=True,
        )
