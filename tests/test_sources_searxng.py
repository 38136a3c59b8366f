"""SearXNG on replies in the shape of its JSON search API, served on loopback."""

import json
from typing import Any

import pytest

from agent.sources.searxng import SearXNG
from memory.errors import SettingsError, SourceError
from tests.json_site import Answer, json_site

ROW: dict[str, Any] = {
    "url": "https://en.wikipedia.org/wiki/Waggle_dance",
    "title": "Waggle dance",
    "content": "A term used in beekeeping\nfor a figure-eight dance.",
    "thumbnail": None,
    "engine": "wikipedia",
    "template": "default.html",
    "parsed_url": ["https", "en.wikipedia.org", "/wiki/Waggle_dance", "", "", ""],
    "engines": ["wikipedia", "brave"],
    "positions": [1, 2],
    "score": 3.0,
    "category": "general",
    "publishedDate": "2019-05-01T00:00:00",
}


def reply(*rows: Any, **more: Any) -> Answer:
    parts = {"answers": [], "corrections": [], "infoboxes": [], "suggestions": []}
    whole = {"query": "q", "number_of_results": 0, "results": list(rows), **parts}
    return Answer({**whole, "unresponsive_engines": [], **more})


async def test_rows_become_passages_with_address_and_date() -> None:
    other = {"url": "https://bees.example/", "title": "Bees", "content": "Hives need shade."}
    with json_site(reply(ROW, {**ROW, "engine": "brave"}, other)) as site:
        found = await SearXNG(f"{site.url}/").search("bee dance year:2019", 5)
        (asked,) = site.asked
    assert (asked.path, asked.params) == ("/search", {"q": "bee dance", "format": "json"})
    assert [p.location for p in found] == [ROW["url"], "https://bees.example/"]
    assert found[0].place == "published 2019-05-01"
    assert found[0].text == "A term used in beekeeping for a figure-eight dance."
    assert found[1].place == ""


async def test_nothing_found_is_an_empty_list() -> None:
    with json_site(reply()) as site:
        assert await SearXNG(site.url).search("bees", 5) == []


async def test_nothing_found_by_engines_that_failed_is_a_failure() -> None:
    failed = [["google", "Suspended: CAPTCHA"], ["brave", "timeout"]]
    with (
        json_site(reply(unresponsive_engines=failed)) as site,
        pytest.raises(SourceError, match=r"google \(Suspended: CAPTCHA\), brave \(timeout\)"),
    ):
        await SearXNG(site.url).search("bees", 5)


async def test_engines_that_failed_do_not_matter_where_others_found_something() -> None:
    with json_site(reply(ROW, unresponsive_engines=[["brave", "timeout"]])) as site:
        assert len(await SearXNG(site.url).search("bees", 5)) == 1


@pytest.mark.parametrize(
    ("answer", "message", "remedy"),
    [
        (Answer(b"<h1>Forbidden</h1>", 403), r"gives no JSON \(HTTP 403\)", "search.formats"),
        (Answer(b"", 429), r"limits its callers \(HTTP 429\)", "limiter"),
        (Answer(b"oops", 500), r"refused the search \(HTTP 500\)", "another source"),
        (Answer(b"", 302, {"location": "http://10.0.0.1/"}), r"\(HTTP 302\)", "another source"),
        (Answer(b"<html>welcome</html>"), "no search result of SearXNG", "address"),
        (Answer([1, 2]), "no search result of SearXNG", "address"),
        (Answer(b" " * 10_000_001), "no search result of SearXNG", "address"),
    ],
)
async def test_every_failure_is_a_sentence_and_a_remedy(
    answer: Answer, message: str, remedy: str
) -> None:
    with json_site(answer) as site, pytest.raises(SourceError, match=message) as caught:
        await SearXNG(site.url).search("bees", 5)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("answer", [Answer({}, delay=0.5), Answer(b" " * 100, drip=0.02)])
async def test_a_service_that_is_silent_or_drips_is_given_up_in_time(answer: Answer) -> None:
    with (
        json_site(answer) as site,
        pytest.raises(SourceError, match=r"SearXNG did not answer within 0\.1 s"),
    ):
        await SearXNG(site.url, seconds=0.1).search("bees", 5)


async def test_nobody_at_the_address_is_told_before_anything_is_asked() -> None:
    with json_site(reply()) as site:
        gone = SearXNG(site.url)
    with pytest.raises(SourceError, match="SearXNG cannot be reached at http://127") as caught:
        await gone.prepare()
    assert "runs" in caught.value.remedy


@pytest.mark.parametrize("status", [200, 404])
async def test_an_instance_is_ready_also_without_a_page_for_its_health(status: int) -> None:
    with json_site(Answer(b"OK", status)) as site:
        assert await SearXNG(site.url).prepare() == ()
        assert [asked.path for asked in site.asked] == ["/healthz"]


async def test_a_password_in_the_address_is_sent_and_never_told() -> None:
    with json_site(Answer({}, 401)) as site:
        address = site.url.replace("//", "//ann:hunter2@")
        with pytest.raises(SourceError) as caught:
            await SearXNG(address).search("bees", 5)
        (asked,) = site.asked
    assert asked.headers["authorization"] == "Basic YW5uOmh1bnRlcjI="
    assert "hunter2" not in f"{caught.value} {caught.value.remedy}"


@pytest.mark.parametrize("address", ["", "localhost:8080", "ftp://host", "http://"])
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(SettingsError, match="not an http or https address") as caught:
        SearXNG(address)
    assert "searxng:http://localhost:8080" in caught.value.remedy


async def test_rows_that_are_no_rows_are_left_out() -> None:
    with json_site(Answer(json.dumps({"results": ["x", None, ROW]}).encode())) as site:
        assert len(await SearXNG(site.url).search("bees", 5)) == 1
    with json_site(Answer({"results": None})) as site:
        assert await SearXNG(site.url).search("bees", 5) == []
