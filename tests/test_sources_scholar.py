"""Semantic Scholar on replies in the shape of its paper search, served on loopback."""

import time
from typing import Any

import pytest

from agent.servers.retrying import Retry
from agent.sources.scholar import Scholar
from memory.errors import SourceError
from tests.json_site import Answer, JsonSite, json_site

PAGE = "https://www.semanticscholar.org/paper/204e3073870fae3d05bcbc2f6a8e263d9b72e776"
PAPER: dict[str, Any] = {
    "paperId": "204e3073870fae3d05bcbc2f6a8e263d9b72e776",
    "externalIds": {"DBLP": "conf/nips/VaswaniSPUJGKP17", "ArXiv": "1706.03762"},
    "url": PAGE,
    "title": "Attention is All you Need",
    "venue": "Neural Information Processing Systems",
    "year": 2017,
    "openAccessPdf": {"url": "https://arxiv.org/pdf/1706.03762", "status": "GREEN"},
    "fieldsOfStudy": ["Computer Science"],
    "tldr": {"model": "tldr@v2.0.0", "text": "A new simple network architecture."},
    "authors": [
        {"authorId": "40348417", "name": "Ashish Vaswani"},
        {"authorId": "1846258", "name": "Noam M. Shazeer"},
        {"authorId": "3877127", "name": "Niki Parmar"},
    ],
    "abstract": "The dominant sequence transduction models are based on complex networks.",
}
CLOSED: dict[str, Any] = {
    "paperId": "b1",
    "externalIds": {"DOI": "10.1000/bees"},
    "url": "https://www.semanticscholar.org/paper/b1",
    "title": "How bees dance",
    "venue": "",
    "year": None,
    "openAccessPdf": None,
    "fieldsOfStudy": None,
    "tldr": {"model": "tldr@v2.0.0", "text": "Bees dance to tell where food is."},
    "authors": [{"authorId": "1", "name": "K. Frisch"}, {"authorId": "2", "name": "M. Lindauer"}],
    "abstract": None,
}
LIMITED = Answer({"message": "Too Many Requests. Please wait.", "code": "429"}, 429)
SOON = Retry(tries=3, first=0.01, longest=0.02, total=1.0)


def reply(*papers: dict[str, Any]) -> Answer:
    return Answer({"total": len(papers), "offset": 0, "data": list(papers)})


def scholar(site: JsonSite, key: str | None = None, **options: Any) -> Scholar:
    return Scholar(key, site.url, **{"retry": SOON, **options})


async def test_a_paper_keeps_its_addresses_authors_year_and_venue() -> None:
    with json_site(reply(PAPER)) as site:
        (found,) = await scholar(site).search("attention", 5)
    assert found.title == "Attention is All you Need"
    assert found.location == "https://arxiv.org/pdf/1706.03762"
    assert found.place == (
        f"Ashish Vaswani et al., 2017, Neural Information Processing Systems, {PAGE}"
    )
    assert found.text == PAPER["abstract"]


async def test_without_abstract_and_pdf_summary_and_page_stand_in() -> None:
    with json_site(reply(CLOSED)) as site:
        (found,) = await scholar(site).search("bees", 5)
    assert (found.location, found.text) == (CLOSED["url"], "Bees dance to tell where food is.")
    assert found.place == "K. Frisch and M. Lindauer"


async def test_without_a_page_the_doi_is_the_address_and_the_title_the_text() -> None:
    bare = {"paperId": "b1", "title": "How bees dance", "externalIds": {"DOI": "10.1000/bees"}}
    with json_site(reply(bare)) as site:
        (found,) = await scholar(site).search("bees", 5)
    assert (found.location, found.text) == ("https://doi.org/10.1000/bees", "How bees dance")


async def test_years_and_fields_are_passed_through_and_hyphens_are_not() -> None:
    query = 'self-attention year:2017-2020 field:"Computer Science,Biology"'
    with json_site(reply(PAPER)) as site:
        await scholar(site).search(query, 500)
        (asked,) = site.asked
    assert asked.path == "/paper/search"
    fields = asked.params.pop("fields").split(",")
    assert {"title", "abstract", "url", "openAccessPdf", "year"} <= set(fields)
    assert asked.params == {
        "query": "self attention",
        "year": "2017-2020",
        "fieldsOfStudy": "Computer Science,Biology",
        "limit": "100",
    }
    assert "x-api-key" not in asked.headers


async def test_a_key_is_sent_in_its_header() -> None:
    with json_site(reply()) as site:
        assert await scholar(site, "k-123").search("bees", 5) == []
        assert site.asked[0].headers["x-api-key"] == "k-123"


async def test_repeated_papers_are_found_once() -> None:
    with json_site(reply(PAPER, {**PAPER, "paperId": "other"}, CLOSED)) as site:
        assert len(await scholar(site).search("bees", 5)) == 2


async def test_nothing_found_has_no_data_and_is_an_empty_list() -> None:
    with json_site(Answer({"total": 0, "offset": 0})) as site:
        assert await scholar(site).search("bees", 5) == []
        assert await scholar(site).search("year:2019", 5) == []
        assert len(site.asked) == 1


async def test_a_service_that_limits_its_callers_is_asked_again_after_its_wait() -> None:
    wait = Answer(LIMITED.body, 429, {"retry-after-ms": "100"})
    with json_site(wait, Answer(b"", 503), reply(PAPER)) as site:
        began = time.monotonic()
        assert len(await scholar(site).search("bees", 5)) == 1
        assert len(site.asked) == 3
    assert time.monotonic() - began > 0.1


@pytest.mark.parametrize(("key", "remedy"), [(None, "RUBRICEM_SCHOLAR_KEY"), ("k", "later")])
async def test_asking_again_has_an_end(key: str | None, remedy: str) -> None:
    with json_site(LIMITED) as site:
        with pytest.raises(SourceError, match=r"limits its callers \(HTTP 429\)") as caught:
            await scholar(site, key).search("bees", 5)
        assert len(site.asked) == 3
    assert remedy in caught.value.remedy


async def test_a_wait_beyond_patience_is_not_waited() -> None:
    with json_site(Answer(LIMITED.body, 429, {"retry-after": "3600"})) as site:
        began = time.monotonic()
        with pytest.raises(SourceError, match="limits its callers"):
            await scholar(site).search("bees", 5)
        assert (len(site.asked), time.monotonic() - began < 60) == (1, True)


async def test_a_refusal_is_told_in_the_services_words_and_not_repeated() -> None:
    wrong = Answer({"error": "Unrecognized or unsupported fields: [x]"}, 400)
    with json_site(wrong) as site:
        with pytest.raises(SourceError, match=r"\(HTTP 400\): Unrecognized or unsupported fields"):
            await scholar(site).search("bees", 5)
        assert len(site.asked) == 1


async def test_a_refused_key_is_named_and_not_shown() -> None:
    with (
        json_site(Answer({"message": "Forbidden"}, 403)) as site,
        pytest.raises(SourceError, match="refused the key") as caught,
    ):
        await scholar(site, "k-secret").search("bees", 5)
    assert "RUBRICEM_SCHOLAR_KEY" in caught.value.remedy
    assert "k-secret" not in f"{caught.value}{caught.value.remedy}"


async def test_silence_is_given_up_in_time() -> None:
    with (
        json_site(Answer({}, delay=0.5)) as site,
        pytest.raises(SourceError, match=r"Semantic Scholar did not answer within 0\.05 s"),
    ):
        await scholar(site, seconds=0.05).search("bees", 5)
