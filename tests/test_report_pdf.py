"""A report as a PDF: what stands in it, that nothing is loaded for it, what is said without it."""

import io
import sys
from pathlib import Path

import pypdf
import pytest

from agent.reports.pdf import _refusing, pdf
from agent.reports.report import check_report_path, write_report
from memory.errors import SettingsError
from tests.judged import run_of


def words_of(content: bytes) -> str:
    reader = pypdf.PdfReader(io.BytesIO(content))
    return " ".join(" ".join(page.extract_text() for page in reader.pages).split())


def test_it_holds_the_question_the_answer_and_the_numbers():
    words = words_of(pdf(run_of()))
    assert "How does lru_cache evict?" in words
    assert "The least recently used entry goes first." in words
    assert "Passages found" in words and "Look up lru_cache." not in words


def test_it_is_written_like_the_other_forms(tmp_path: Path):
    write_report(run_of(), tmp_path / "report.PDF")
    assert (tmp_path / "report.PDF").read_bytes().startswith(b"%PDF-")
    assert [path.name for path in tmp_path.iterdir()] == ["report.PDF"]


@pytest.mark.parametrize(
    "markup",
    [
        '<img src="{}">',
        '<link rel="stylesheet" href="{}">',
        '<style>@import "{}"; p {{ background: url({}) }}</style><p>x</p>',
        '<link rel="attachment" href="{}">',
        '<object data="{}"></object>',
    ],
)
def test_nothing_is_read_and_nobody_is_asked_while_it_is_made(
    markup: str, tmp_path: Path, forbidden_attempts: list[str]
):
    import weasyprint

    secret = tmp_path / "secret.txt"
    secret.write_text("p { content: 'secret' }")
    opened: list[str] = []

    def watch(event: str, args: tuple[object, ...]) -> None:
        if watching and event == "open" and args[0] == str(secret):
            opened.append(str(args[0]))

    watching = True
    sys.addaudithook(watch)
    for address in (secret.as_uri(), "http://203.0.113.1/x", "ftp://203.0.113.1/x"):
        html = markup.replace("{{", "{").replace("}}", "}").replace("{}", address)
        made = weasyprint.HTML(string=html, url_fetcher=_refusing()).write_pdf()
        assert b"secret" not in made
    watching = False
    assert opened == [] and forbidden_attempts == []


def test_without_weasyprint_the_extra_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(SettingsError, match="weasyprint") as refused:
        check_report_path(tmp_path / "report.pdf")
    assert refused.value.remedy == "Install it: pip install 'rubricem[pdf]'"
    check_report_path(tmp_path / "report.html")


def test_without_pango_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "weasyprint.py").write_text("raise OSError('cannot load library libpango')")
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingsError, match="Pango") as refused:
        check_report_path(tmp_path / "report.pdf")
    assert "libpango" in refused.value.remedy
