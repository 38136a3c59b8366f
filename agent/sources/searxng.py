"""A SearXNG instance, asked through its JSON search API (GET /search?format=json)."""

from typing import Any

from agent.servers.endpoint import Endpoint
from agent.sources.json_reply import Refused, Service
from agent.sources.query import read_query
from agent.sources.rows import found_passages, row
from memory.errors import SettingsError, SourceError
from memory.interfaces import Passage

SECONDS = 20.0


class SearXNG:
    """Passages are the excerpts that the instance's engines show of pages."""

    name = "searxng"

    def __init__(self, address: str, seconds: float = SECONDS) -> None:
        """`address` is that of the instance's first page; it may hold a user and password.

        Raises SettingsError for what is no address.
        """
        place = self._place(address)
        headers = {"authorization": place.basic} if place.basic else {}
        self._service = Service("SearXNG", place.url, seconds, headers)

    @staticmethod
    def _place(address: str) -> Endpoint:
        try:
            return Endpoint.parse(address)
        except SettingsError as cause:
            raise SettingsError(
                "The address of the SearXNG instance is not an http or https address.",
                "Give it like searxng:http://localhost:8080.",
            ) from cause

    async def prepare(self) -> tuple[str, ...]:
        """Raises SourceError where nothing answers, before a question is paid for."""
        try:
            await self._service.fetch("/healthz")
        except Refused:
            return ()  # Instances without this page still answer searches.
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        params = {"q": read_query(query).text, "format": "json"}
        try:
            reply = await self._service.get("/search", params)
        except Refused as refused:
            raise self._explained(refused) from refused
        found = found_passages(map(_passage, _rows(reply)), limit)
        if not found and (failed := _failed_engines(reply)):
            raise SourceError(
                f"SearXNG found nothing, and these of its engines failed: {failed}.",
                "Search again later, or turn on other engines in its settings.yml.",
            )
        return found

    def _explained(self, refused: Refused) -> SourceError:
        """The two refusals that an instance's own settings cause, with the setting."""
        if refused.status == 403:
            return SourceError(
                f"SearXNG at {self._service.url} gives no JSON (HTTP 403).",
                "Add json to search.formats in its settings.yml, or use an instance of your own.",
            )
        if refused.status == 429:
            return SourceError(
                f"SearXNG at {self._service.url} limits its callers (HTTP 429).",
                "Turn off its limiter for this machine, or search again later.",
            )
        return refused


def _rows(reply: dict[str, Any]) -> list[dict[str, Any]]:
    rows = reply.get("results")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _passage(found: dict[str, Any]) -> Passage:
    date = found.get("publishedDate")
    place = f"published {date[:10]}" if isinstance(date, str) and date else ""
    return row(found.get("title"), found.get("url"), found.get("content"), place)


def _failed_engines(reply: dict[str, Any]) -> str:
    """As in "google (timeout), bing (CAPTCHA)"; the service gives pairs of name and reason."""
    pairs = reply.get("unresponsive_engines") or []
    return ", ".join(f"{pair[0]} ({pair[1]})" for pair in pairs if len(pair) == 2)
