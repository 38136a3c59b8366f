import time
from pathlib import Path
from typing import Any

import pytest

from agent.auto_source import settled, web_answers, with_default_source
from agent.clients import reserve
from agent.events import Event, SourceProgress
from agent.settings import Settings, load_settings
from memory.errors import SettingsError
from tests.json_site import Answer, json_site

SERVER = "http://127.0.0.1:9/v1"


def auto(tmp_path: Path, *source: str) -> Settings:
    flags: dict[str, Any] = {"base_url": SERVER, "data_dir": tmp_path, "source": source}
    return load_settings(flags)


async def online() -> bool:
    return True


async def offline() -> bool:
    return False


async def never() -> bool:
    raise AssertionError("the web was probed")


@pytest.mark.parametrize(
    ("flags", "source"),
    [
        ({"base_url": SERVER}, ("auto",)),
        ({"model": "gpt-x", "api_key": "k"}, ("auto",)),
        ({}, ("python",)),
        ({"model": "0.5b"}, ("python",)),
        ({"base_url": SERVER, "source": ("python",)}, ("python",)),
    ],
)
def test_auto_is_the_default_where_a_server_answers(
    flags: dict[str, Any], source: tuple[str, ...]
) -> None:
    assert with_default_source(load_settings(flags)).source == source


async def test_the_web_is_taken_where_it_answers_and_that_is_said(tmp_path: Path) -> None:
    told: list[Event] = []
    settings = await settled(auto(tmp_path, "auto"), None, told.append, online)
    assert settings.source == ("web",)
    assert told == [SourceProgress("source: the web, which answered in 0.0 s")]


async def test_the_libraries_are_taken_where_it_does_not_and_that_is_said(tmp_path: Path) -> None:
    told: list[Event] = []
    settings = await settled(auto(tmp_path, "auto"), None, told.append, offline)
    assert settings.source == ("python",)
    (event,) = told
    assert isinstance(event, SourceProgress)
    assert "the web did not answer" in event.message and "--source" in event.message


async def test_what_auto_takes_joins_the_other_sources_once(tmp_path: Path) -> None:
    settings = await settled(auto(tmp_path, "papers", "auto", "web"), None, answers=online)
    assert settings.source == ("papers", "web")


async def test_nothing_is_probed_where_sources_are_named(tmp_path: Path) -> None:
    settings = auto(tmp_path, "python", "web")
    assert await settled(settings, None, answers=never) == settings


async def test_a_thread_goes_on_with_what_it_took_whatever_the_web_does_now(
    tmp_path: Path,
) -> None:
    first = await settled(auto(tmp_path, "auto"), "mine", answers=online)
    reserve(first, "mine", "How?")
    again = await settled(auto(tmp_path, "auto"), "mine", answers=never)
    assert again.source == ("web",)
    with pytest.raises(SettingsError, match="cannot name a thread"):
        await settled(auto(tmp_path, "auto"), "a/b", answers=never)


async def test_one_address_that_answers_is_enough() -> None:
    with json_site(Answer({}, 503)) as bad, json_site(Answer(b"", 200)) as good:
        assert await web_answers([bad.url, good.url])
        assert not await web_answers([bad.url])
    assert not await web_answers([good.url])


async def test_a_page_that_sends_elsewhere_answers() -> None:
    with json_site(Answer(b"", 301, {"location": "https://elsewhere.example/"})) as site:
        assert await web_answers([site.url])


async def test_silence_is_waited_for_no_longer_than_allowed() -> None:
    with json_site(Answer(b"", delay=60.0)) as site:
        began = time.monotonic()
        assert not await web_answers([site.url, site.url], seconds=0.1)
        assert time.monotonic() - began < 30
