from pathlib import Path

import pytest

from agent.check import Check
from agent.commands.doctor import shown
from agent.settings import Settings, load_settings
from agent.source_checks import check_service, check_sources, check_web
from tests.json_site import Answer, json_site


async def answers() -> bool:
    return True


async def silent() -> bool:
    return False


@pytest.mark.parametrize(
    ("name", "online", "state"),
    [("web", True, "ok"), ("auto", True, "ok"), ("web", False, "fault")],
)
async def test_the_web_is_needed_where_it_is_named(name: str, online: bool, state: str) -> None:
    check = await check_web(name, answers if online else silent)
    assert (check.state, bool(check.remedy)) == (state, state == "fault")


async def test_auto_works_also_without_the_web() -> None:
    check = await check_web("auto", silent)
    assert check.state == "note"
    assert "python is taken" in check.found


async def test_a_searxng_that_answers_is_fine_and_one_that_is_gone_is_a_fault(
    tmp_path: Path,
) -> None:
    settings = load_settings({"data_dir": tmp_path})
    with json_site(Answer(b"OK")) as site:
        address = "searxng:" + site.url.replace("//", "//ann:hunter2@")
        there = await check_service(address, settings)
    gone = await check_service(address, settings)
    assert (there.state, gone.state) == ("ok", "fault")
    assert there.found == f"searxng:{site.url} answers"
    assert "hunter2" not in f"{there}{gone}"


async def test_sources_are_checked_in_the_order_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(b"")

    async def probe(name: str, settings: Settings) -> Check:
        return Check("source", "ok", f"{name} was probed")

    flags = {"source": ("web", str(tmp_path), "searxng:http://a", "auto", "python")}
    checks = await check_sources(load_settings(flags), probe)
    assert [check.found.partition(":")[0] for check in checks] == [
        "web was probed",
        str(tmp_path),
        "searxng",
        "auto was probed",
        "python",
    ]


def test_a_password_in_a_sources_address_is_not_shown() -> None:
    source = ("python", "searxng:http://ann:hunter2@host:8080")
    assert shown(source) == ("python", "searxng:http://***@host:8080")
