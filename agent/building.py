"""A researcher put together from its parts: once for a command, several over one model to serve.

Nothing is opened here but what costs nothing: the policy and the sources are handed in.
"""

from typing import Any

from agent.banking import recaller_of
from agent.events import Listener
from agent.graph import Decoder
from agent.pages.reader import open_pages
from agent.policy import Policy
from agent.researcher import Researcher
from agent.run import Ask
from agent.settings import Settings
from agent.sources.names import is_beyond
from agent.tracing import traced_researcher
from agent.verifying.opening import verifier_of
from memory.interfaces import Sampling, SearchTool
from memory.runs import RunStore
from memory.schema import Decoding


def built(
    settings: Settings,
    policy: Policy,
    decoding: Decoding,
    search_tool: SearchTool,
    template: Ask,
    choices: dict[str, Any],
    listener: Listener,
) -> Researcher:
    """The researcher of these settings over a policy and sources that its caller closes."""
    researcher = Researcher(
        policy=policy,
        decoder=decoder_of(settings, decoding),
        decoding=decoding,
        search_tool=search_tool,
        store=RunStore(settings.data_dir),
        template=template,
        choices=choices,
        recaller=recaller_of(settings, policy.context_tokens, listener),
        pages=open_pages(settings.data_dir / "pages", settings.allow_hosts),
        beyond=any(map(is_beyond, settings.source)),
        verifier=verifier_of(settings, policy),
    )
    return traced_researcher(researcher, settings.tracing)


def decoder_of(settings: Settings, decoding: Decoding) -> Decoder:
    """What leads the policy through the stages."""
    if decoding is Decoding.FORCED:
        from agent.forced import ForcedDecoder

        return ForcedDecoder()
    from agent.free import FreeDecoder

    temperature = 1.0 if settings.temperature is None else settings.temperature
    return FreeDecoder(Sampling(temperature=temperature), settings.attempts)
