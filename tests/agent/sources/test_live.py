"""The services themselves, for a machine with a network: `python -m pytest -m live`.

They show whether the shapes that the other tests rely on are still the real ones.
"""

import os

import pytest

from rubricem.agent.sources.web import Scholar, SearXNG, Web

pytestmark = pytest.mark.live


async def test_the_web_search_finds_pages() -> None:
    found = await Web().search("waggle dance of honey bees", 5)
    assert any("danc" in f"{p.title} {p.text}".lower() for p in found)
    assert all(p.location.startswith("http") for p in found)


async def test_scholar_finds_papers_of_a_year_and_a_field() -> None:
    query = 'attention is all you need year:2017 field:"Computer Science"'
    found = await Scholar().search(query, 5)
    assert found and all("2017" in p.place for p in found)
    assert all(p.location.startswith("http") for p in found)


@pytest.mark.skipif("SEARXNG_URL" not in os.environ, reason="SEARXNG_URL names no instance")
async def test_a_searxng_instance_finds_pages() -> None:
    tool = SearXNG(os.environ["SEARXNG_URL"])
    assert await tool.prepare() == ()
    assert await tool.search("waggle dance of honey bees", 5)
