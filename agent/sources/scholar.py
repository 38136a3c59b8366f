"""Scholarly papers, found through the Semantic Scholar Academic Graph API (paper/search).

A query may be narrowed by years and fields of study. A paper's passage is its abstract, or the
service's one-sentence summary where no abstract may be shown; its place says who wrote it and
when, its location is an address that can be opened: the open-access PDF, else the paper's page.
Callers without a key share one allowance, so calls go one at a time and wait when told to.
"""

import random
from typing import Any

from agent.servers.limiter import shared_limiters
from agent.servers.retrying import Retry, asked_wait, is_transient
from agent.sources.json_reply import Refused, Service
from agent.sources.query import Query, read_query
from agent.sources.rows import found_passages, row
from memory.interfaces import Passage

API = "https://api.semanticscholar.org/graph/v1"
RETURNED = "title,abstract,tldr,year,venue,authors,url,openAccessPdf,externalIds,fieldsOfStudy"
SECONDS = 20.0
MOST = 100
"""papers that the service returns at once"""
RETRY = Retry(tries=4, first=1.0, longest=8.0, total=20.0)


class Scholar:
    """Passages are abstracts of papers."""

    name = "scholar"

    def __init__(
        self, key: str | None = None, url: str = API, seconds: float = SECONDS, retry: Retry = RETRY
    ) -> None:
        headers = {"x-api-key": key} if key else {}
        self._service = Service("Semantic Scholar", url, seconds, headers)
        self._key = key
        self._retry = retry

    async def prepare(self) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, limit: int) -> list[Passage]:
        asked = read_query(query)
        if not asked.text:
            return []
        reply = await self._patiently(_params(asked, limit))
        papers = reply.get("data")
        found = [paper for paper in papers or [] if isinstance(paper, dict)]
        return found_passages(map(_passage, found), limit)

    async def _patiently(self, params: dict[str, str]) -> dict[str, Any]:
        """Ask again while the service is busy, as long as the waits stay within bounds."""
        limiter = shared_limiters().of(self._service.url, 1)
        waited = 0.0
        for tried in range(1, self._retry.tries + 1):
            async with limiter.slot():
                try:
                    return await self._service.get("/paper/search", params)
                except Refused as refused:
                    wait = self._retry.wait(tried, asked_wait(refused.headers), random.random())
                    waited += wait
                    last = tried == self._retry.tries or waited > self._retry.total
                    if last or not is_transient(refused.status):
                        raise self._explained(refused) from refused
                    limiter.pause(wait)
        raise AssertionError("the last try returns or raises")

    def _explained(self, refused: Refused) -> Refused:
        status = refused.status
        if status == 429:
            told = "Semantic Scholar limits its callers (HTTP 429)."
            own = "Search again later." if self._key else "Set RUBRICEM_SCHOLAR_KEY to a free key."
        elif status in (401, 403) and self._key:
            told = f"Semantic Scholar refused the key (HTTP {status})."
            own = "Correct RUBRICEM_SCHOLAR_KEY, or unset it."
        else:
            return refused
        return Refused(told, own, status, refused.headers)


def _params(asked: Query, limit: int) -> dict[str, str]:
    # Terms with a hyphen match nothing there.
    params = {"query": " ".join(asked.text.replace("-", " ").split()), "fields": RETURNED}
    if asked.years:
        params["year"] = asked.years
    if asked.fields:
        params["fieldsOfStudy"] = ",".join(asked.fields)
    return {**params, "limit": str(min(limit, MOST))}


def _passage(paper: dict[str, Any]) -> Passage:
    text = paper.get("abstract") or _inside(paper, "tldr", "text")
    page, pdf = paper.get("url"), _inside(paper, "openAccessPdf", "url")
    return row(paper.get("title"), pdf or page or _doi(paper), text, _place(paper))


def _inside(paper: dict[str, Any], name: str, part: str) -> str:
    value = paper.get(name)
    found = value.get(part) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _doi(paper: dict[str, Any]) -> str:
    doi = _inside(paper, "externalIds", "DOI")
    return f"https://doi.org/{doi}" if doi else ""


def _place(paper: dict[str, Any]) -> str:
    """As in "Vaswani et al., 2017, NeurIPS, https://www.semanticscholar.org/paper/..."."""
    names = [a["name"] for a in paper.get("authors") or [] if isinstance(a, dict) and a.get("name")]
    who = names[0] + (" et al." if len(names) > 2 else "") if names else ""
    who = " and ".join(names) if len(names) == 2 else who
    page = paper.get("url") if _inside(paper, "openAccessPdf", "url") else ""
    parts = (who, paper.get("year"), paper.get("venue"), page)
    return ", ".join(str(part) for part in parts if part)
