"""Which kind of server listens at an address, and opening it to be asked in token ids.

A server says what it is in `/v1/models` (`owned_by`), or by answering at a path of its own. One
that is none of these kinds, or does not tokenise, is asked as a chat server.
"""

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from agent.servers.dialects import MakeDialect, ServedModel, TokenDialect
from agent.servers.limiter import Limiter
from agent.servers.llama_server import LlamaServer
from agent.servers.model_server import ModelServer
from agent.servers.prices import Price
from agent.servers.retrying import AttemptError, Retry
from agent.servers.sglang import SGLang
from agent.servers.token_server import TokenServer
from agent.servers.vllm import VLLM
from memory.errors import PolicyError
from memory.interfaces import Message

Kind = Literal["vllm", "sglang", "llama.cpp"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAKES: Mapping[Kind, MakeDialect] = {"vllm": VLLM, "sglang": SGLang, "llama.cpp": LlamaServer}
OWNERS: Mapping[str, Kind] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}
SIGNS: Mapping[Kind, tuple[str, str]] = {
    "sglang": ("/get_model_info", "model_path"),
    "llama.cpp": ("/props", "default_generation_settings"),
    "vllm": ("/version", "version"),
}
"""a path under the root, and a field that only this kind's reply has"""


async def kind_of(http: ModelServer) -> Kind | None:
    """What the server is, or None. Raises AttemptError where nobody answers."""
    try:
        owners = {str(model.get("owned_by", "")) for model in await http.models()}
    except AttemptError as failed:
        _unless_away(failed)
        owners = set()
    for owner, kind in OWNERS.items():
        if owner in owners:
            return kind
    for kind, (path, field) in SIGNS.items():
        try:
            reply = await http.get(f"{http.root}{path}")
        except AttemptError as failed:
            _unless_away(failed)
            continue
        if isinstance(reply, dict) and field in reply:
            return kind
    return None


async def open_tokens(
    http: ModelServer,
    kind: Kind | None,
    *,
    context_tokens: int,
    limiter: Limiter,
    price: Price | None,
    timeout: float,
    tell: Callable[[str], None] = lambda line: None,
    retry: Retry | None = None,
) -> TokenServer | None:
    """The server as a policy of tokens; None where it is none and no kind was named.

    `context_tokens` counts where the server does not tell its own. Raises PolicyError where
    nobody answers, or the server is not of the kind that was named.
    """
    url = http.server.endpoint.url
    try:
        if (found := kind or await kind_of(http)) is None:
            return None
        dialect = MAKES[found](http, http.server.model)
        served = await _served(http, dialect)
    except AttemptError as failed:
        if kind is not None or failed.away:
            raise PolicyError(str(failed), failed.remedy) from None
        tell(f"{url} is asked as a chat server, since it gives no token ids: {failed}")
        return None
    tell(f"{url} is asked in token ids, as {found} takes them")
    return TokenServer(
        http,
        dialect,
        served,
        context_tokens=served.context_tokens or context_tokens,
        limiter=limiter,
        price=price,
        timeout=timeout,
        retry=retry,
    )


async def _served(http: ModelServer, dialect: TokenDialect) -> ServedModel:
    """What the server says of its model, once it has shown that it tokenises."""
    try:
        await dialect.render([Message("user", "?")])
        return await dialect.facts()
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise http.server.unexpected(error) from None


def _unless_away(failed: AttemptError) -> None:
    """A path that a server does not know tells what it is not; one that is away tells nothing."""
    if failed.away:
        raise failed
