"""An HTTP client for one server: every request goes to numbers that were checked.

The host that the settings name may be private, since the user named it; whatever it resolves to
by then must not be link-local or a cloud's metadata service, unless that is the very address
that was named.
"""

from contextlib import suppress

import httpx2

from agent.mcp_tools.config import ToolServer
from agent.pages.addresses import PORTS, AddressGuard, Target, parsed


class Pinned(httpx2.AsyncBaseTransport):
    """Sends each request to a number that the guard let through, under the host's own name."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._network = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        target = await self._guard.target(str(request.url))
        *others, last = target.numbers
        for number in others:
            with suppress(httpx2.ConnectError):
                return await self._network.handle_async_request(_to(request, target, number))
        return await self._network.handle_async_request(_to(request, target, last))

    async def aclose(self) -> None:
        await self._network.aclose()


def _to(request: httpx2.Request, target: Target, number: str) -> httpx2.Request:
    """The request as it is sent to a number; the one that it came from stays as it is."""
    headers = request.headers.copy()
    headers["host"] = target.url.netloc.decode("ascii")
    name = {"sni_hostname": target.url.raw_host.decode("ascii")}
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=number),
        headers=headers,
        stream=request.stream,
        extensions={**request.extensions, **name},
    )


def pinned_client(server: ToolServer) -> httpx2.AsyncClient:
    """A client with the headers of the settings; no proxy of the environment stands between."""
    url = parsed(server.url or "")
    named = f"{url.host}:{url.port or PORTS[url.scheme]}"
    return httpx2.AsyncClient(
        transport=Pinned(AddressGuard((named,))),
        headers={name: value.get_secret_value() for name, value in server.headers.items()},
        timeout=server.seconds,
    )
