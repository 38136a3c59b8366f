"""The door: the user's settings, resolved once into the values that other code receives.

Which model answers: the embedded one, unless a server or a server's model is named. A key alone
never causes a paid call: `OPENAI_API_KEY` is in many environments for other programs, so it counts
only if a model other than an embedded one was asked for.

`Settings` ends here: code below is given a `Setup`, a model's choice or a few values. A caller that
needs other settings for a question than the process began with (the page, collecting) changes them
and resolves them here again.
"""

import re
from typing import Any, Literal

from rubricem.agent.models.limits import Endpoint
from rubricem.agent.models.opening import EmbeddedChoice, PolicyChoice, ServerChoice, whole_name
from rubricem.agent.research.setup import Setup, Stores
from rubricem.agent.settings import BUDGETS, LIMITS, SERVICE_KEYS, Settings
from rubricem.agent.sources.choice import AUTO, Sources, kept_name
from rubricem.agent.transcript.question import Ask, Budgets
from rubricem.agent.weights.catalogue import DEFAULT_MODEL, catalogue, lookup
from rubricem.agent.weights.checkpoints import is_checkpoint
from rubricem.memory.errors import SettingsError
from rubricem.memory.schema import Decoding

CHOICES = (
    "model",
    "base_url",
    "source",
    "decoding",
    "retrieval",
    "temperature",
    "attempts",
    "memory",
    "verify",
    "checker",
    "system_prompt",
    "passages",
    "passage_words",
)
"""settings that shape an answer and are stored with a run, for its resume"""
UNNAMED = {"system_prompt": "full", "passages": None, "passage_words": None}
"""values of settings that older runs did not store; other values are stored"""
OPENAI_URL = "https://api.openai.com/v1"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w./-]+)?")


def setup_of(settings: Settings) -> Setup:
    """The setup in which a question is answered under these settings.

    Raises SettingsError for incompatible settings. Looks for files, but opens none.
    """
    model = model_of(settings)
    decoding = decoding_of(settings, model)
    return Setup(
        model=model,
        reflecting=reflecting_of(settings, model),
        decoding=decoding,
        temperature=1.0 if settings.temperature is None else settings.temperature,
        attempts=settings.attempts,
        short=settings.system_prompt == "short",
        template=template_of(settings, model),
        budgets=budgets_of(settings),
        sources=Sources(
            names=settings.source,
            retrieval=retrieval_of(settings, model),
            keys=service_keys(settings),
            tool_servers=settings.mcp_servers,
            private_hosts=settings.allow_hosts,
        ),
        stores=stores_of(settings),
        memory=settings.memory,
        recalls=not _is_small(model),
        similarity_floor=settings.similarity_floor,
        least_reflection_score=settings.least_reflection_score,
        reflection_tokens=settings.reflection_tokens,
        verify=settings.verify,
        checker=settings.checker,
        checkpoints=_reveal(settings.checkpoints),
        tracing=settings.tracing,
        choices=choices_of(settings),
    )


def service_keys(settings: Settings) -> dict[str, str]:
    """The keys of search services that are set, by the sources' names."""
    found = {name: _reveal(getattr(settings, name)) for name in SERVICE_KEYS}
    return {name.removesuffix("_key"): key for name, key in found.items() if key}


def with_default_source(settings: Settings) -> Settings:
    """The settings with `auto` as their source if a server but no source is named."""
    if "source" in settings.model_fields_set or model_of(settings).embedded:
        return settings
    return settings.model_copy(update={"source": (AUTO,)})


def model_of(settings: Settings) -> PolicyChoice:
    """The model that the settings name; raises SettingsError if its key is missing."""
    key = _reveal(settings.api_key)
    if settings.base_url is not None:
        return _server_choice(settings, settings.base_url, key)
    if settings.model is None or is_embedded(settings.model):
        return EmbeddedChoice(
            settings.model or DEFAULT_MODEL,
            settings.weights_dir,
            settings.context_tokens,
            settings.threads,
            settings.slots,
            settings.tracing,
        )
    if key is None:
        raise SettingsError(
            f"The model {settings.model!r} is not an embedded one, and no server is named for it.",
            "Name its server with --base-url, or set OPENAI_API_KEY to ask OpenAI's; "
            "the embedded models are 1.5b and 0.5b.",
        )
    return _server_choice(settings, OPENAI_URL, key)


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


def reflecting_of(settings: Settings, model: PolicyChoice) -> PolicyChoice:
    """The model that judges the runs of a model and reflects on them.

    For the smaller embedded model it is the larger one, unless another is named: of twelve of its
    own reflections three reached the floor.
    """
    name = settings.reflect_model
    if name is None:
        name = DEFAULT_MODEL if _is_small(model) else None
    if name is None or name == model.name:
        return model
    server = None if lookup(name) else settings.base_url
    return model_of(settings.model_copy(update={"model": name, "base_url": server}))


def _is_small(model: PolicyChoice) -> bool:
    """Whether it is an embedded model smaller than the default one.

    Lessons slow it down and answer nothing (`benchmarks.bank_effect`).
    """
    return model.embedded and lookup(model.name) not in (
        None,
        lookup(DEFAULT_MODEL),
    )


def is_embedded(model: str) -> bool:
    """Whether the name can only be of weights that run in this process."""
    return (
        lookup(model) is not None
        or model.lower().endswith(".gguf")
        or model.startswith(("/", "./", "../", "~"))
        or _HUB_NAME.fullmatch(model) is not None
        or is_checkpoint(model)
    )


def _server_choice(settings: Settings, base_url: str, key: str | None) -> ServerChoice:
    return ServerChoice(
        settings.model,
        base_url,
        key,
        settings.dialect,
        settings.context_tokens,
        settings.concurrency,
        settings.timeout,
        settings.prices,
        settings.tracing,
        settings.more_servers if settings.base_url == base_url else (),
    )


def decoding_of(settings: Settings, model: PolicyChoice) -> Decoding:
    """Forced on the embedded model, free elsewhere, unless the user chose otherwise."""
    if settings.decoding == "forced" and not model.embedded:
        raise SettingsError(
            "A chat server cannot be led slot by slot: it continues messages, not tokens.",
            "Use --decoding free with it, or the embedded model.",
        )
    if settings.decoding == "auto":
        return Decoding.FORCED if model.embedded else Decoding.FREE
    return Decoding(settings.decoding)


def template_of(settings: Settings, model: PolicyChoice) -> Ask:
    """The limits of a question; a small model reads less of each passage."""
    small = {"passages": 3, "passage_words": 110} if model.embedded else {}
    limits = {name: getattr(settings, name) for name in LIMITS}
    return Ask(question="", **{**small, **{k: v for k, v in limits.items() if v is not None}})


def budgets_of(settings: Settings) -> Budgets:
    """What one question may spend."""
    return Budgets(**{name: getattr(settings, each) or None for name, each in BUDGETS.items()})


def stores_of(settings: Settings) -> Stores:
    """Where everything is kept."""
    return Stores(settings.data_dir, settings.weights_dir, settings.embedder, settings.bank_server)


def retrieval_of(
    settings: Settings, model: PolicyChoice
) -> Literal["auto", "lexical", "rerank", "hybrid"]:
    """How passages are ranked; in free decoding the model itself writes the queries."""
    if settings.retrieval == "auto" and decoding_of(settings, model) is Decoding.FREE:
        return "lexical"
    return settings.retrieval


def choices_of(settings: Settings) -> dict[str, Any]:
    """`CHOICES` as they are stored: paths are absolute, since a resume may start elsewhere."""
    choices = settings.model_dump(mode="json", include=set(CHOICES))
    if settings.base_url:
        choices["base_url"] = Endpoint.parse(settings.base_url).url  # without a password in it
    choices["source"] = [kept_name(name) for name in settings.source]
    choices["model"] = settings.model and whole_name(settings.model)
    choices["retrieval"] = retrieval_of(settings, model_of(settings))
    return {name: value for name, value in choices.items() if UNNAMED.get(name, ...) != value}


def _reveal(secret: Any) -> str | None:
    value: str | None = secret.get_secret_value() if secret else None
    return value
