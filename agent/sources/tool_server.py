"""The settings of a server of tools (Model Context Protocol).

    [mcp_servers.wiki]
    command = "wiki-mcp"               # or url = "https://wiki.example/mcp"
    tools = ["search_pages", "page"]   # nothing but these is ever offered or called
    unasked = []                       # of these, what may act without a person's word

Of this process's environment a program gets only PATH, HOME and their like, and what `env` adds.
"""

import json
import re
from typing import Annotated, Self
from urllib.parse import unquote_plus, urlsplit

import httpx2
from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, model_validator

from rubricem.memory.text import digest_of

ServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,30}$")]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}$")]
SHORTEST_KEY = 6
"""characters; anything shorter is no key, and may be part of any word"""
_LOADS_CODE = re.compile(
    r"(LD|DYLD|PYTHON|PERL5|RUBY|GCONV)|(NODE_OPTIONS|BASH_ENV|ENV|JAVA_TOOL_OPTIONS)$", re.I
)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class ToolServer(BaseModel):
    """How one server is reached, and which of its tools may be used."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    command: str | None = None
    """a program that speaks the protocol on its standard input and output"""
    args: tuple[str, ...] = ()
    """arguments of the program"""
    env: dict[str, SecretStr] = {}
    """variables that the program gets besides PATH, HOME and the like"""
    url: str | None = None
    """address of a server that speaks streamable HTTP"""
    headers: dict[str, SecretStr] = {}
    """sent with each request, such as Authorization"""
    tools: tuple[ToolName, ...] = Field(min_length=1)
    """the tools that may be called"""
    unasked: tuple[ToolName, ...] = ()
    """those of them that act and are called without asking, whatever was read before"""
    public: bool = False
    """whether it is a public service: what a run has read in private sources is not sent to it, and
    what it tells may be sent to others"""
    seconds: float = Field(default=30, gt=0, le=600)
    """limit for connecting, and for each call"""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("name either a command or a url")
        unfit = {"args", "env"} if self.url else {"headers"}
        if given := sorted(unfit & self.model_fields_set):
            raise ValueError(f"{given[0]} does not go with {'url' if self.url else 'command'}")
        if self.url:
            try:
                url = httpx2.URL(self.url)
            except httpx2.InvalidURL as cause:
                raise ValueError(f"the url is no address: {cause}") from cause
            if url.scheme not in ("http", "https") or not url.host or url.userinfo:
                raise ValueError("the url must be an address such as http://localhost:8000/mcp")
        if loads := [name for name in self.env if _LOADS_CODE.match(name)]:
            raise ValueError(f"env may not set {loads[0]}, by which a program loads other code")
        if strange := sorted({*self.unasked} - {*self.tools}):
            raise ValueError(f"unasked names {strange[0]}, which is not among the tools")
        if not all(_HEADER.fullmatch(name) for name in self.headers):
            raise ValueError("a header has no such name")
        said = "".join(value.get_secret_value() for value in self.headers.values())
        if not (said.isascii() and said.isprintable()):
            raise ValueError("a header is one line of plain letters")
        return self

    def describe(self) -> dict[str, object]:
        """The fields that were set, without a program's arguments, which may include a key."""
        said = {name: getattr(self, name) for name in sorted(self.model_fields_set)}
        return said | ({"args": f"{len(self.args)}, not shown"} if self.args else {})

    def identity(self, tool: str) -> str:
        """Names a tool of this very server, whatever the settings call the server."""
        reached = [self.command, self.args, self.url, tool]
        return digest_of(json.dumps(reached), 24)

    def without_key(self, words: str) -> str:
        """Foreign text without the secrets of the address: some services take a key there."""
        for part in urlsplit(self.url or "").query.split("&"):
            value = part.partition("=")[2] or part
            for form in (value, unquote_plus(value)):
                words = words.replace(form, "***") if len(form) >= SHORTEST_KEY else words
        return words
