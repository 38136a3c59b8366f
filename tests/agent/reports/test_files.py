"""Reports as files, written whole or not at all."""

import io
import os
import sys
from pathlib import Path

import pypdf
import pypdfium2
import pytest

from rubricem.agent.reports.page import _refusing, check_report_path, pdf, render, write_report
from rubricem.memory.errors import SettingsError, StoreError, install_of
from rubricem.memory.schema import Trajectory
from tests.agent.reports.runs import CITED, DOUBTED, RECALLING
from tests.support.values import BOUND, run_of, source, trajectory


@pytest.mark.parametrize(
    ("suffix", "begins"),
    [(".md", b"# How"), (".html", b"<!doctype html>"), (".json", b"{"), (".HTML", b"<!doctype"),
     (".PDF", b"%PDF-"), (".bib", b"@misc{"), (".ris", b"TY  - GEN")],
)  # fmt: skip
def test_reports_are_written_by_suffix_in_the_place_of_what_was_there(
    tmp_path: Path, suffix: str, begins: bytes
):
    path = tmp_path / f"report{suffix}"
    path.write_text("old " * 10_000)
    write_report(trajectory(CITED), path)
    assert path.read_bytes().startswith(begins) and b"old old" not in path.read_bytes()
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("run", [trajectory(CITED), DOUBTED, RECALLING])
def test_a_json_file_is_the_trajectory_itself_and_a_symbolic_link_stays_one(
    tmp_path: Path, run: Trajectory
):
    (tmp_path / "run.json").symlink_to(tmp_path / "real.json")
    write_report(run, tmp_path / "run.json")
    text = (tmp_path / "real.json").read_text(encoding="utf-8")
    assert Trajectory.model_validate_json(text) == run
    assert (tmp_path / "run.json").is_symlink()


@pytest.mark.parametrize("name", ["report", "report.doc", "report.txt"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path: Path, name: str):
    with pytest.raises(SettingsError, match=name) as refused:
        write_report(trajectory(CITED), tmp_path / name)
    assert ".md, .html, .pdf, .json, .bib or .ris" in refused.value.remedy
    assert os.listdir(tmp_path) == []


def test_a_path_that_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.md").mkdir()
    for path in (tmp_path / "file" / "a.md", tmp_path / "folder.md"):
        with pytest.raises(StoreError) as refused:
            check_report_path(path)
        assert str(tmp_path) in str(refused.value) and refused.value.remedy
    with pytest.raises(StoreError) as refused:
        write_report(trajectory(CITED), tmp_path / ("n" * 300 + ".md"))
    assert "another folder" in refused.value.remedy


def test_on_paper_stand_the_question_the_answer_and_the_numbers():
    reader = pypdf.PdfReader(io.BytesIO(pdf(run_of())))
    words = " ".join(" ".join(page.extract_text() for page in reader.pages).split())
    assert "How does lru_cache evict?" in words
    assert "The least recently used entry goes first." in words
    assert "Passages found" in words and "Look up lru_cache." not in words


@pytest.mark.parametrize("columns", [4, 7, 12])
def test_no_table_is_cut_off_at_the_edge_of_the_paper(columns: int):
    cells = ["autovacuum_vacuum_insert_scale_factor", "A sentence of several words.", "12,345.67"]
    row = "|".join(cells[n % 3] for n in range(columns))
    table = f"|{'|'.join(map(str, range(columns)))}|\n|{'-|' * columns}\n|{row}|"
    for sheet in pypdfium2.PdfDocument(pdf(trajectory(f"{CITED}\n\n{table}\n"))):
        text = sheet.get_textpage()
        boxes = [text.get_charbox(n) for n in range(text.count_chars())]
        assert max(right for _, _, right, _ in boxes) <= sheet.get_width() - 40


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


def test_without_weasyprint_or_pango_it_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(SettingsError, match="weasyprint") as refused:
        check_report_path(tmp_path / "report.pdf")
    assert refused.value.remedy == f"Install it: {install_of('pdf')}"
    check_report_path(tmp_path / "report.html")
    (tmp_path / "weasyprint.py").write_text("raise OSError('cannot load library libpango')")
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingsError, match="Pango") as refused:
        check_report_path(tmp_path / "report.pdf")
    assert "libpango" in refused.value.remedy


PAPER = source(1, BOUND, "A {B} & 50%\nof_it", "https://doi.org/10.1000/ab_c?x=1")


@pytest.mark.parametrize(
    ("suffix", "held"),
    [
        (".bib",
         "@misc{rubricem-run-1-1,\n  title = {{A \\{B\\} \\& 50\\% of\\_it}},\n"
         "  url = {https://doi.org/10.1000/ab_c?x=1},\n  doi = {10.1000/ab_c},\n"
         "  urldate = {2026-08-05},\n  note = {line 3}\n}\n"),
        (".ris",
         "TY  - ELEC\r\nTI  - A {B} & 50% of_it\r\nUR  - https://doi.org/10.1000/ab_c?x=1\r\n"
         "DO  - 10.1000/ab_c\r\nY2  - 2026/08/05\r\nN1  - line 3\r\nER  - \r\n\r\n"),
    ],
)  # fmt: skip
def test_cited_sources_are_given_to_reference_managers(suffix: str, held: str):
    uncited = source(2, BOUND, "U", "u.md")
    assert render(trajectory(CITED, sources=(PAPER, uncited)), suffix) == held
