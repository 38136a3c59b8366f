"""The user's settings, and where each of them came from.

Four layers, the first that sets a value wins: flags, the environment (`RUBRICEM_*`), one file, and
the defaults below. The file is the one that `--config` or `RUBRICEM_CONFIG` names, else the user's
own `rubricem.toml`, and before that the `page.toml` beside it, which the page of a server writes;
one in the working directory is read only if it is named, since a folder from elsewhere may bring
it. `OPENAI_BASE_URL` and `OPENAI_API_KEY` come last: they provide a server and a key that nothing
else names.

An invalid setting is reported in a sentence that shows no key and no password.
"""

import json
import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import httpx2
import platformdirs
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)

from rubricem.agent.sources.tool_server import ServerName, ToolServer
from rubricem.agent.transcript.question import Effort
from rubricem.agent.weights.catalogue import DEFAULT_EMBEDDER
from rubricem.memory.errors import SettingsError
from rubricem.memory.runs import plain_bytes, refuse_strangers
from rubricem.memory.schema import AnswerFormat
from rubricem.memory.text import one_line

_NOT_SHOWN = {
    "api_key", "tavily_key", "mcp_servers", "base_url", "source", "collections", "checker",
}  # fmt: skip
"""settings whose values may hold a key or a password"""


FILE_NAME, PAGE_FILE_NAME = "rubricem.toml", "page.toml"
PREFIX = "RUBRICEM_"
DEFAULT_ORIGIN = "default"
_FLAG_NAMES = {"answer_format": "format", "allow_hosts": "allow_host"}
"""flags that are not called like their setting"""
_AS_JSON = {
    "prices": 'Write it as {"model": [prompt, cached, completion]}, in dollars a million tokens.',
    "mcp_servers": 'Write it as {"name": {"url": "http://...", "tools": ["..."]}}.',
    "extra_body": 'Write it as {"name": value}, with what the server reads.',
    "collections": 'Write it as {"name": ["folder", "upload:name"]}.',
}
CHECKER_KEY = PREFIX + "CHECKER_KEY"
_NOT_SETTINGS = {"debug", "config", "checker_key"}
"""`RUBRICEM_*` variables that are no settings"""
NAMED_FILE: ContextVar[Path | None] = ContextVar("NAMED_FILE", default=None)
"""the file of `--config`"""
SET_SO: ContextVar[frozenset[str]] = ContextVar("SET_SO", default=frozenset())
"""the settings that `--set` gives, and no flag of their own"""
LOG = logging.getLogger(__name__)
"""what a person has to know of their files and variables; the command line prints it"""

BUDGETS = {"tokens": "max_total_tokens", "seconds": "max_seconds", "cost": "max_cost"}
"""budget of a run -> its setting, in which 0 is no limit"""
Price = tuple[
    Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]
]
"""prompt, cached prompt and completion, in US dollars for a million tokens"""
Word = Annotated[str, Field(pattern=r"^[\w.-]+$")]
NoCollection = Annotated[str, Field(pattern="^[^@]")]
_WANTED = {
    r"^[\w.-]+$": "it should be of letters, digits, _ . and -",
    "^[^@]": "it should be a source, not a collection",
    "^[a-z]+$": "it should be a word in small letters",
}
"""what a pattern wants"""


class Settings(BaseModel):
    """Every setting. Building one reads no environment and no file: `load_settings` does."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )

    model: str | None = None
    """a name of the catalogue, a .gguf file, or a server's model; if no server is named, also
    `provider:model` of LangChain, such as `anthropic:claude-sonnet-4-5`"""
    models: tuple[str, ...] = ()
    """other models that a question on the page may choose: of the same server, or embedded ones,
    of which those that were downloaded may be chosen anyway"""
    base_url: str | None = None
    """an OpenAI-compatible server, including `/v1`"""
    api_key: SecretStr | None = None
    """for the host of `base_url`; RUBRICEM_CHECKER_KEY is for another that checks or judges"""
    source: tuple[str, ...] = ("python",)
    """what is searched: `python`, `web`, `scholar`, `arxiv`, `pubmed`, `wikipedia`, `wikipedia:de`,
    `tavily`, `searxng:URL`, `git:URL`, `history` (what earlier runs found), `auto`, a package's
    own, or folders, from where you are; separated by commas in the environment. With a server but
    no source it is `auto`."""
    collections: dict[Word, Annotated[tuple[NoCollection, ...], Field(min_length=1)]] = {}
    """sets of sources, folders, `upload:NAME` and others, that `--source @NAME` searches"""
    tavily_key: SecretStr | None = None
    """a key of Tavily's search, for the source `tavily`"""
    allow_hosts: tuple[str, ...] = ()
    """private hosts, or host:port, whose pages may be read"""
    effort: Effort = Effort.STANDARD
    """how widely a server's model researches: `quick`, `standard`, or `deep`, by several
    investigations at once"""
    length: int | None = Field(default=None, ge=200, le=1_000_000)
    """characters of a long report, about; None: 1,500, 8,000 or 24,000, by the effort"""
    tool_calls: int | None = Field(default=None, ge=1, le=1000)
    """searches, opened pages and other tool calls per question, or per investigation; None: 4, 30
    or 30, by the effort; 10 with an embedded model"""
    max_total_tokens: int | None = Field(default=None, ge=0)
    """tokens per question, read (unless from a cache) and written; 0: no limit; None: 60,000,
    300,000 or 1,000,000, by the effort; 200,000 with an embedded model"""
    max_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """seconds per question; 0: no limit; None: 120, 1,200 or 3,600, by the effort; 900 with an
    embedded model"""
    max_cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """US dollars per question, if a price is known; 0: no limit; None: 0.2, 1 or 8, by the
    effort"""
    answer_format: AnswerFormat = AnswerFormat.LONG
    """form of the answer; `exact`: the last line is the bare answer"""
    decoding: Literal["auto", "forced", "free"] = "auto"
    """`auto`: forced on an embedded model, free on a server"""
    embedder: str = DEFAULT_EMBEDDER
    """the embedding model of the bank, and, where it is there, of ordering what a search by words
    found: `all-minilm-l6-v2`, a package's own, or a folder of sentence-transformers"""
    verify: Literal["off", "mark", "repair"] = "mark"
    """check claims against their sources; `mark`: the report shows what fails; `repair`: its
    sentence is also rewritten or removed"""
    checker: str = "auto"
    """`auto`: the policy's model and lexical rules; `lexical`: only the rules; `MODEL@URL`: a model
    on another server, or one of LangChain's as for `model`"""
    approve_plan: bool = False
    """a person decides on the plan before it is followed; without a terminal it is approved"""
    clarify: bool = False
    """the model may ask one question before it plans"""
    memory: Literal["on", "off", "read-only"] = "read-only"
    """`read-only`: use what earlier runs taught; `on`: also learn from this run"""
    data_dir: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("rubricem", appauthor=False)
    )
    """runs, bank, indexes and uploads; by default the platform's place for user data"""
    weights_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("rubricem")) / "weights"
    )
    """downloaded weights; by default in the platform's place for caches"""
    context_tokens: int = Field(default=8192, ge=2048, le=10_000_000)
    """context of an embedded model"""
    max_tokens: int | None = Field(default=None, ge=16, le=10_000_000)
    """tokens of an answer, without those of thinking: an answer that a server cuts is gone on with
    up to so many; None: 16,000, or 4,096 in a turn of a model that is asked in tokens"""
    reasoning_effort: str | None = Field(default=None, pattern="^[a-z]+$")
    """how long a server's model thinks, where it can be told: `minimal`, `low`, `medium`, `high`"""
    extra_body: dict[str, Any] = {}
    """what a server is sent in every request beside the usual, or in its place, such as
    `{chat_template_kwargs = {enable_thinking = false}}` for Qwen3 on vLLM"""
    concurrency: int | None = Field(default=None, ge=1)
    """calls in flight to one server, or runs at once on an embedded model, each with its own
    context (64 at most); None: 64, or one"""
    prices: dict[str, Price] = {}
    """by a server's model: prompt, cached prompt, completion; US dollars per million tokens"""
    mcp_servers: dict[ServerName, ToolServer] = {}
    """MCP servers whose tools the model may call besides the search, by name"""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """seed of the sampling"""

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    def origin(self, name: str) -> str:
        """Where the value of a setting came from, in words: flag, variable, file or default."""
        return self._origins.get(name, DEFAULT_ORIGIN)

    @field_validator("*", mode="before")
    @classmethod
    def _is_plain(cls, value: object) -> object:
        # A program names a folder or a file by its path.
        if isinstance(value, PurePath):
            value = str(value)
        elif isinstance(value, (list, tuple)):
            value = [str(each) if isinstance(each, PurePath) else each for each in value]
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode()
        except (UnicodeEncodeError, RecursionError) as cause:
            raise ValueError("it is no text in UTF-8, or nested too deeply") from cause
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str) and os.path.expanduser(each).startswith("~"):
                raise ValueError("it begins with the home directory of nobody known here")
        return value

    @field_validator("model", "base_url", "api_key", "tavily_key", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        # A key from a file may end in a line end, which no header can carry.
        return (value.strip() or None) if isinstance(value, str) else value

    @field_validator("api_key", "tavily_key")
    @classmethod
    def _fits_a_header(cls, value: SecretStr | None) -> SecretStr | None:
        key = value.get_secret_value() if value else ""
        if not (key.isascii() and key.isprintable()):
            raise ValueError("it must be one line of plain letters, as a header carries no others")
        return value

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        return None if value is None else _address(value)

    @field_validator("source", "models", "allow_hosts", mode="before")
    @classmethod
    def _is_list(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value

    @field_validator("source")
    @classmethod
    def _has_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(name.strip() for name in value)
        if not names or not all(names):
            raise ValueError("must name at least one source, such as `python`, `web` or a folder")
        return names

    @field_validator("checker")
    @classmethod
    def _is_checker(cls, value: str) -> str:
        model, at, url = value.partition("@http")
        if not (value in ("auto", "lexical") or (model and at) or re.match(r"[a-z]\w*:.", value)):
            raise ValueError("must be `auto`, `lexical`, MODEL@URL or PROVIDER:MODEL")
        if "@" in url:
            raise ValueError(f"its key belongs into {CHECKER_KEY}, not into its address")
        return f"{model}@{_address(at[1:] + url)}" if at else value

    @field_validator("allow_hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        hosts = tuple(host.strip() for host in value if host.strip())
        if any(re.search(r"[/@\s*]", host) for host in hosts):
            raise ValueError("must be hosts such as wiki.local or wiki.local:8080")
        return hosts

    @field_validator("data_dir", "weights_dir")
    @classmethod
    def _expand(cls, value: Path) -> Path:
        return value.expanduser().absolute()


@cache
def retired() -> dict[str, str]:
    """Settings of earlier versions, and what is so instead."""
    return tomllib.loads((files(__package__) / "retired.toml").read_text(encoding="utf-8"))


def load_settings(
    flags: Mapping[str, Any] | None = None,
    page: Mapping[str, Any] | None = None,
    *,
    arguments: bool = False,
) -> Settings:
    """The settings in force; a flag that is None or () counts as not given.

    `page`: tried in place of what the page of a server has set. `arguments`: what is called flags
    are arguments of a Python function. Raises SettingsError that names the invalid flag, argument,
    variable or file, and what is allowed.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    servers: dict[str, str] = {}
    try:
        for name, value, origin in _layers(flags or {}, page, arguments):
            if name not in values:
                values[name], origins[name] = value, origin
            if name == "base_url":
                servers[origin] = host_of(str(value))
        for name, variable in (("base_url", "OPENAI_BASE_URL"), ("api_key", "OPENAI_API_KEY")):
            if name not in values and os.environ.get(variable, "").strip():
                values[name], origins[name] = os.environ[variable], variable
        settings = Settings(**values)
        named = origins.get("api_key", "")
        host = servers.get(PREFIX + "BASE_URL" if named.startswith(PREFIX) else named)
        if host and settings.base_url and host_of(settings.base_url) != host:
            LOG.warning("The key of %s is not sent to another server than %s.", named, host)
            settings = Settings(**{k: v for k, v in values.items() if k != "api_key"})
    except ValidationError as cause:
        raise _explain(cause, values, origins) from cause
    except RuntimeError as cause:
        raise SettingsError(
            "This user has no home directory.",
            "Set HOME, or RUBRICEM_DATA_DIR and RUBRICEM_WEIGHTS_DIR.",
        ) from cause
    refuse_strangers(settings.data_dir)
    settings._origins.update(origins)
    for line in notices():
        LOG.warning("%s", line)
    return settings


def host_of(address: str) -> str:
    """Its host, with the port if it names one."""
    return address.partition("://")[2].partition("/")[0].rpartition("@")[2].lower()


def _address(value: str) -> str:
    """Raises ValueError if it is no http(s) address."""
    try:
        url = httpx2.URL(value.strip())
    except httpx2.InvalidURL as cause:
        raise ValueError(f"is no address: {cause}") from cause
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
        raise ValueError("must be an address such as http://localhost:8000/v1")
    return value.strip().rstrip("/")


def meanings() -> dict[str, str]:
    """The docstring below each setting, as one line; in a file, None is a key that is left out."""
    told = {name: field.description or "" for name, field in Settings.model_fields.items()}
    return {
        name: " ".join(text.split()).replace("None:", "not set:") for name, text in told.items()
    }


def _explain(
    error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]
) -> SettingsError:
    """The first error, with its layer, its name and what is allowed."""
    faults = error.errors(include_url=False, include_input=False)
    # A name that is unknown may be why another is missing.
    first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    name, *inside = (str(part) for part in first["loc"] if part != "[key]")
    origin = origins[name]
    if first["type"] == "extra_forbidden":
        if name in retired():
            said = f"{origin}: {name} is no longer a setting."
            return SettingsError(said, f"Leave it out: {retired()[name]}.")
        # Of a server of tools a key within it may be the wrong one.
        known = ToolServer.model_fields if inside else Settings.model_fields
        wrong = inside[-1] if inside else name
        near = get_close_matches(wrong.lower(), known, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        what = (
            f"key {wrong!r} in {'.'.join([name, *inside[:-1]])}" if inside else f"setting {name!r}"
        )
        said = f"{origin}: there is no {what}{meant}."
        return SettingsError(said, f"Allowed are {', '.join(known)}.")
    place = f"{origin}: {name}" if origin.endswith(".toml") else origin
    where = f" (at {'.'.join(inside)})" if inside else ""
    shown = one_line(repr(values[name]), 200)
    plain = name in ("base_url", "source", "checker") and not {*"@?"} & {*shown}
    got = f" {shown}" if plain or name not in _NOT_SHOWN else " as given"
    wrong = _WANTED.get(first.get("ctx", {}).get("pattern", ""), first["msg"])
    wrong = re.sub(r"^(Input|Tuple) should", "it should", wrong.removeprefix("Value error, "))
    wrong = wrong.replace("tuple", "list")
    return SettingsError(f"{place} cannot be{got}{where}: {wrong}.", f"Correct {place}.")


def settings_file() -> Path | None:
    """The file that is read, or None. Raises SettingsError if it was named and is not there."""
    if named := _named_file():
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            raise SettingsError(f"There is no settings file {path}.", "Name one that exists.")
        return path
    own = _own_file(FILE_NAME)
    return own if own is not None and own.exists() else None


def page_file() -> Path | None:
    """Where the page of a server writes settings; None where a file was named, or without a home.

    A named file is the whole: nothing that was clicked together elsewhere is added to it.
    """
    return None if _named_file() else _own_file(PAGE_FILE_NAME)


def page_values() -> dict[str, Any]:
    """What the page of a server has set."""
    path = page_file()
    return _read(path) if path is not None and path.exists() else {}


def _named_file() -> str:
    return str(NAMED_FILE.get() or os.environ.get(PREFIX + "CONFIG", "").strip())


def _own_file(name: str) -> Path | None:
    try:
        return platformdirs.user_config_path("rubricem", appauthor=False) / name
    except RuntimeError:  # a user without a home
        return None


def notices() -> Iterator[str]:
    """What is there and not read: a file of the working directory, and unknown variables."""
    if os.path.exists(FILE_NAME) and (here := Path(FILE_NAME).absolute()) != settings_file():
        yield f"{here} is not read: name it by --config {FILE_NAME}, or in {PREFIX}CONFIG"
    for variable in sorted(filter(_ours, os.environ)):
        name = variable[len(PREFIX) :].lower()
        if name in retired():
            yield f"{variable} is no longer a setting: {retired()[name]}"
        elif name not in Settings.model_fields and name not in _NOT_SETTINGS:
            near = get_close_matches(name, Settings.model_fields, n=1)
            meant = f"; did you mean {PREFIX}{near[0].upper()}?" if near else ""
            yield f"{variable} names no setting{meant}"


def _layers(
    flags: Mapping[str, Any], page: Mapping[str, Any] | None, arguments: bool
) -> Iterator[tuple[str, Any, str]]:
    """Each setting that a layer names, its value and origin, the first layer first.

    An empty variable counts as not set.
    """
    for name, value in flags.items():
        if value not in (None, ()):
            flag = "--" + _FLAG_NAMES.get(name, name).replace("_", "-")
            flag = f"--set {name}" if name in SET_SO.get() else flag
            yield name, value, f"{name}=..." if arguments else flag
    for variable, text in os.environ.items():
        name = variable[len(PREFIX) :].lower()
        if text and _ours(variable) and name in Settings.model_fields:
            yield name, _parse(variable, text) if name in _AS_JSON else text, variable.upper()
    for name, value in (page_values() if page is None else page).items():
        yield name, value, str(page_file()) if page is None else name
    if (path := settings_file()) is not None:
        for name, value in _read(path).items():
            yield name, value, str(path)


def _ours(name: str) -> bool:
    return name.upper().startswith(PREFIX)


def _parse(variable: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as cause:
        remedy = _AS_JSON[variable[len(PREFIX) :].lower()]
        raise SettingsError(f"{variable.upper()} is not valid JSON.", remedy) from cause


MOST_BYTES = 262_144


def _read(path: Path) -> dict[str, Any]:
    try:
        text = plain_bytes(path, MOST_BYTES + 1).decode("utf-8-sig")
        if len(text) > MOST_BYTES:
            raise ValueError("it is too large")
        return tomllib.loads(text)
    except OSError as cause:
        message = f"{path} cannot be read: {cause.strerror or cause}."
        raise SettingsError(message, "Make the file readable, or remove it.") from cause
    except (ValueError, RecursionError) as cause:
        why = "it is nested too deeply" if isinstance(cause, RecursionError) else cause
        message = f"{path} is not valid TOML: {why}."
        line = 'Write one setting a line, as in: model = "1.5b"'
        coded = isinstance(cause, UnicodeError)
        raise SettingsError(message, "Save it as UTF-8." if coded else line) from cause
