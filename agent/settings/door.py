"""The door: the user's settings, resolved once into the values that other code receives.

Which model answers: the embedded one, unless a server or a server's model is named. A key alone
never causes a paid call: `OPENAI_API_KEY` is in many environments for other programs, so it counts
only if a model other than an embedded one was asked for.

`Settings` ends here: code below is given a `Setup`, a model's choice or a few values. A caller that
needs other settings for a question than the process began with (the page, collecting) changes them
and resolves them here again.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import httpx2
from pydantic import SecretStr

from rubricem.agent.models import opening
from rubricem.agent.models.limits import Endpoint
from rubricem.agent.research.researcher import ask_of
from rubricem.agent.research.setup import Setup, Stores
from rubricem.agent.settings import BUDGETS, CHECKER_KEY, DEFAULT_ORIGIN, FILE_NAME, Settings
from rubricem.agent.sources import choice
from rubricem.agent.sources.tool_server import ToolServer
from rubricem.agent.transcript.question import LIMITS, SMALL, Ask, Budgets, Effort, EffortLimits
from rubricem.agent.weights.catalogue import DEFAULT_MODEL, catalogue, lookup
from rubricem.agent.weights.checkpoints import is_checkpoint
from rubricem.memory.errors import SettingsError, StoreError
from rubricem.memory.schema import Decoding

CHOICES = (
    "model", "base_url", "source", "decoding", "memory", "verify",
    "checker", "reasoning_effort", "extra_body", "effort",
)  # fmt: skip
"""settings that shape an answer and are stored with a run, for its resume"""
ATTEMPTS = 3
"""tries of a turn in free mode that breaks the scaffold"""
REFLECTION_TOKENS = {True: 700, False: 4096}
"""tokens of a reflection, of an embedded model and of a server's, which may think first"""
ANSWER_TOKENS, TURN = 16_000, 4096
"""tokens of an answer of a server's model, and of a turn of one that is asked in tokens"""
CALLS_AT_ONCE, MOST_SLOTS = 64, 256
OPENAI_URL = "https://api.openai.com/v1"
# A provider of LangChain and its model; OpenAI's own names of tuned models begin with ft:
_PROVIDED = re.compile(r"(?!ft:)[a-z][a-z0-9_]*:[^/].*(?<!\.gguf)")


def setup_of(settings: Settings) -> Setup:
    """The setup in which a question is answered under these settings.

    Raises SettingsError for incompatible settings. Looks for files, but opens none.
    """
    model = model_of(settings)
    decoding, reflecting = decoding_of(settings, model), reflecting_of(settings, model)
    named = named_sources(settings)
    return Setup(
        model=model,
        reflecting=reflecting,
        decoding=decoding,
        attempts=ATTEMPTS,
        short=False,
        template=template_of(settings, model),
        budgets=budgets_of(settings, model),
        sources=choice.Sources(
            names=(*named,),
            parts=named | {choice.kept_name(name): part for name, part in named.items()},
            keys=keys_of(settings),
            tool_servers=settings.mcp_servers,
            private_hosts=settings.allow_hosts,
        ),
        stores=stores_of(settings),
        memory=settings.memory,
        recalls=not _is_small(model),
        reflection_tokens=REFLECTION_TOKENS[reflecting.embedded],
        verify=settings.verify,
        checker=checker_of(settings),
        choices=choices_of(settings),
    )


def keys_of(settings: Settings) -> dict[str, str]:
    key = _reveal(settings.tavily_key)
    return {"tavily": key} if key else {}


def named_sources(settings: Settings) -> dict[str, str]:
    """The sources that are named, with what it holds in the place of each collection.

    By name which part of which collections it is, in words without a password; "": of none.
    Raises SettingsError for a collection that there is none of.
    """
    sets = {choice.COLLECTION + name: held for name, held in settings.collections.items()}
    if missing := [n for n in settings.source if n.startswith(choice.COLLECTION) and n not in sets]:
        near = get_close_matches(missing[0], sets, 1)
        meant = f"Did you mean {near[0]}? " if near else ""
        where = f"There is {', '.join(sets)}: see" if sets else "Write it into"
        remedy = f"{meant}{where} [collections] of {FILE_NAME}."
        raise SettingsError(f"There is no collection {missing[0]!r}.", remedy)
    uploads, found = settings.data_dir / choice.UPLOADS, dict[str, str]()
    for name in dict.fromkeys(settings.source):
        for part in sets.get(name, (name,)):
            upload = part.removeprefix(choice.UPLOADED)
            place = part if upload == part else str(uploads / upload)
            before = found.get(place)
            told = f"{before} and {name}" if before else f"{redact(part)} of the collection {name}"
            found[place] = told if name in sets and before != "" else ""
    return found


def with_default_source(settings: Settings) -> Settings:
    """The settings with `auto` as their source if a server but no source is named."""
    if "source" in settings.model_fields_set or model_of(settings).embedded:
        return settings
    found = settings.model_copy(update={"source": (choice.AUTO,)})
    found.model_fields_set.discard("source")  # nobody set it
    return found


def model_of(settings: Settings) -> opening.PolicyChoice:
    """The model that the settings name; raises SettingsError if its key is missing."""
    key, named = _reveal(settings.api_key), settings.model or ""
    if named.startswith(opening.OWN) or (not settings.base_url and _PROVIDED.fullmatch(named)):
        return _server_choice(settings, opening.LANGCHAIN, None)
    if settings.base_url is not None:
        return _server_choice(settings, settings.base_url, key)
    if settings.model is None or is_embedded(settings.model):
        return opening.EmbeddedChoice(
            settings.model or DEFAULT_MODEL,
            settings.weights_dir,
            settings.context_tokens,
            at_once=min(settings.concurrency or 1, MOST_SLOTS),
        )
    if key is None:
        raise SettingsError(
            f"The model {settings.model!r} is not an embedded one, and no server is named for it.",
            "Name its server with --base-url, or set OPENAI_API_KEY to ask OpenAI's; "
            "the embedded models are 1.5b and 0.5b.",
        )
    return _server_choice(settings, OPENAI_URL, key)


def checker_of(settings: Settings) -> Any:
    """Who checks claims. The policy's key goes to another server only if that is on its host."""
    model, at, url = settings.checker.partition("@http")
    if model.startswith(opening.OWN):
        return opening.given(model)
    here = settings.model_copy(update={"model": model, "extra_body": {}})
    if not at:
        return _server_choice(here, opening.LANGCHAIN, None) if ":" in model else model
    url = f"http{url}"
    own = settings.base_url and Endpoint.parse(settings.base_url).host == Endpoint.parse(url).host
    key = os.environ.get(CHECKER_KEY, "").strip() or (_reveal(settings.api_key) if own else None)
    return _server_choice(here, url, key)


def judging(settings: Settings, model: str | None, base_url: str | None) -> Settings:
    """Those of another model that judges; on another host it gets the key of a checker."""
    there, key = base_url or OPENAI_URL, settings.api_key
    own = Endpoint.parse(settings.base_url or there).host == Endpoint.parse(there).host
    if not own and (base_url or settings.origin("api_key") != "OPENAI_API_KEY"):
        key = SecretStr(os.environ.get(CHECKER_KEY, "").strip())
    return settings.model_copy(update={"model": model, "base_url": base_url, "api_key": key})


def models_on_offer(settings: Settings) -> dict[str, dict[str, str | None]]:
    """The models that a question may name, the server's own first, with the settings of each.

    Only "" if another server would have to list them. Looks for files.
    """
    from rubricem.agent.weights.store import WeightsStore

    own = model_of(settings)
    named = [own.name, *settings.models]
    if own.embedded:
        here = WeightsStore(settings.weights_dir)
        fetched = [each for each in catalogue() if not here.lacks_model(each.name)]
        named += [each.name for each in fetched if each.files[0].path.endswith(".gguf")]
    found: dict[str, dict[str, str | None]] = {}
    for name in named:
        weights = lookup(name)
        server = None if weights else settings.base_url
        found.setdefault(weights.name if weights else name, {"model": name, "base_url": server})
    first = next(iter(found))
    return found | {first: {"model": settings.model, "base_url": settings.base_url}}


def reflecting_of(settings: Settings, model: opening.PolicyChoice) -> opening.PolicyChoice:
    """The model that judges the runs of a model and reflects on them: the same.

    For the smaller embedded one it is the larger: of twelve of its own reflections three were kept.
    """
    if not _is_small(model):
        return model
    return model_of(settings.model_copy(update={"model": DEFAULT_MODEL, "base_url": None}))


def _is_small(model: opening.PolicyChoice) -> bool:
    """Whether it is an embedded model smaller than the default one.

    Lessons slow it down and answer nothing (`benchmarks.bank_effect`).
    """
    return model.embedded and lookup(model.name) not in (None, lookup(DEFAULT_MODEL))


def is_embedded(model: str) -> bool:
    """Whether the name can only be of weights that run in this process."""
    return (
        lookup(model) is not None
        or model.lower().endswith(".gguf")
        or model.startswith(("/", "./", "../", "~"))
        or is_checkpoint(model)
    )


def _server_choice(settings: Settings, base_url: str, key: str | None) -> opening.ServerChoice:
    effort = settings.reasoning_effort
    return opening.ServerChoice(
        settings.model,
        base_url,
        key,
        context_tokens=settings.context_tokens,
        at_once=settings.concurrency or CALLS_AT_ONCE,
        prices=settings.prices,
        extra_body=({"reasoning_effort": effort} if effort else {}) | settings.extra_body,
    )


def decoding_of(settings: Settings, model: opening.PolicyChoice) -> Decoding:
    """Forced on the embedded model, free elsewhere, unless the user chose otherwise."""
    if settings.decoding == "forced" and not model.embedded:
        raise SettingsError(
            "A chat server cannot be led slot by slot: it continues messages, not tokens.",
            "Use --decoding free with it, or the embedded model.",
        )
    if settings.decoding == "auto":
        return Decoding.FORCED if model.embedded else Decoding.FREE
    return Decoding(settings.decoding)


def template_of(settings: Settings, model: opening.PolicyChoice) -> Ask:
    """The limits of a question; a small model reads less of each passage."""
    limits = _limits_of(settings, model)
    if settings.effort is Effort.DEEP and model.embedded:
        raise SettingsError(
            "Deep research needs a model on a server: the embedded ones cannot lead it.",
            "Name a server with --base-url, or leave --effort out.",
        )
    ask = Ask(
        question="",
        answer_format=settings.answer_format,
        effort=settings.effort,
        length=limits.length if settings.length is None else settings.length,
        tool_calls=limits.tool_calls if settings.tool_calls is None else settings.tool_calls,
        max_tokens=settings.max_tokens or (TURN if model.embedded else ANSWER_TOKENS),
        seed=settings.seed,
        approve_plan=settings.approve_plan,
        clarify=settings.clarify,
    )
    return replace(ask, passages=3, passage_words=110) if model.embedded else ask


def _limits_of(settings: Settings, model: opening.PolicyChoice) -> EffortLimits:
    return SMALL if model.embedded else LIMITS[settings.effort]


def budgets_of(settings: Settings, model: opening.PolicyChoice | None = None) -> Budgets:
    """The limits that the settings name, and those of the effort for the others.

    `model`: which answers; None: the one that the settings name.
    """
    usual = _limits_of(settings, model or model_of(settings)).budgets
    named = {name: getattr(settings, each) for name, each in BUDGETS.items()}
    for name, value in named.items():
        named[name] = getattr(usual, name) if value is None else value or None
    return Budgets(**named)


def stores_of(settings: Settings) -> Stores:
    return Stores(settings.data_dir, settings.weights_dir, settings.embedder)


def choices_of(settings: Settings) -> dict[str, Any]:
    """`CHOICES` as they are stored: paths are absolute, since a resume may start elsewhere."""
    choices = settings.model_dump(mode="json", include=set(CHOICES))
    if settings.base_url:
        choices["base_url"] = Endpoint.parse(settings.base_url).url  # without a password in it
    choices["source"] = [choice.kept_name(name) for name in named_sources(settings)]
    choices["model"] = settings.model and opening.absolute_name(settings.model)
    return choices


def setup_of_run(
    settings: Settings,
    request: Mapping[str, Any],
    models: Iterable[Mapping[str, str | None]],
    budgets: Mapping[str, Any],
    restored: bool = False,
) -> Setup:
    """The setup in which a stored run goes on, its template the question as it was asked.

    `models`: which model and server may answer. What shaped the answer is the run's; so are its
    budgets, unless others are given. A `restored` run has the budgets of these settings, and may
    name no other checker. Raises SettingsError if these settings cannot give that, StoreError for a
    request that is damaged or of a newer version.
    """
    try:
        stored, asked = request["choices"], ask_of(request)
        stored["model"]  # one that is lost would be taken for the embedded one
        kept = {name: stored[name] for name in CHOICES if name in stored}
        kept.setdefault("effort", Effort.STANDARD)  # runs of earlier versions name none
        ours: dict[str, Any] = {"checker": settings.checker, "extra_body": settings.extra_body}
        if not restored:
            ours = {each: getattr(asked.budgets, name) or 0 for name, each in BUDGETS.items()}
        here = {name: getattr(settings, name) for name in Settings.model_fields}
        if settings.origin("max_tokens") != DEFAULT_ORIGIN:
            # An answer that was cut off is gone on with under a larger limit.
            asked = replace(asked, max_tokens=settings.max_tokens or asked.max_tokens)
        for named in models:
            setup = setup_of(Settings(**{**here, **kept, **ours, **budgets, **named}))
            short = stored.get("system_prompt") == "short"  # chosen in versions up to 0.1.0
            if not short and all(setup.choices[name] == value for name, value in kept.items()):
                return replace(setup, template=asked)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            "The request of the run cannot be read.", "Ask the question again."
        ) from error
    remedy = "Resume it where it was asked, or ask the question again."
    if restored:
        remedy = "It came with a copy: have its model and checker in the settings, or ask it again."
    raise SettingsError(
        "The run was asked of another model, or with settings that are not to be had here.", remedy
    )


def redact(value: object) -> object:
    """A setting's value, fit to be shown to anyone: without keys and passwords."""
    if isinstance(value, SecretStr):
        return "set, and not shown"
    if isinstance(value, tuple):
        return tuple(map(redact, value))
    if isinstance(value, ToolServer):
        value = value.describe()
    if isinstance(value, Mapping):
        return {name: redact(held) for name, held in value.items()}
    for prefix in (choice.SEARXNG, choice.GIT):
        if isinstance(value, str) and value.startswith(prefix):
            return prefix + str(redact(value.removeprefix(prefix)))
    return without_password(value) if isinstance(value, str) and "://" in value else value


def without_password(url: str) -> str:
    """The address as it may be shown to anyone: a query may contain a key as well."""
    parsed = httpx2.URL(url)
    if parsed.userinfo:
        parsed = parsed.copy_with(username="***", password="")
    if not parsed.userinfo and not parsed.query:
        return url  # as it was written: file:///x would lose two of its slashes
    return str(parsed.copy_with(query=b"***")) if parsed.query else str(parsed)


def _reveal(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None
