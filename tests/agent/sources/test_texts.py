# ruff: noqa: E501, RUF001
"""Light markups, TeX, RTF, data, subtitles and archives: what is read is what they say."""

import base64
import bz2
import gzip
import json
import lzma
import tarfile
from collections.abc import Sequence
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from rubricem.agent.sources.readers import READERS, read
from rubricem.agent.sources.readers.document import BlockKind, Document, Input
from rubricem.memory.errors import SourceError

NOTE, TABLE, LIST, CODE = BlockKind.NOTE, BlockKind.TABLE, BlockKind.LIST, BlockKind.CODE


def told(name: str, content: str | bytes) -> Document:
    return read(Input.of_bytes(name, content.encode() if isinstance(content, str) else content))


def of_kind(document: Document, *kinds: BlockKind) -> list[str]:
    return [b.text for s in document.sections for b in s.blocks if b.kind in kinds]


def text_of(document: Document) -> str:
    return "\n".join(section.text for section in document.sections)


def test_no_level_of_a_text_is_too_deep_to_be_told() -> None:
    listed = "".join(f"{'  ' * level}- level {level}\n" for level in range(100))
    text = text_of(told("a.md", f"{listed}\n{'>' * 90} quoted\n"))
    assert [level for level in range(100) if f"- level {level}" not in text] == []
    assert text.endswith("quoted")
    assert text_of(told("a.md", "<a" + " b" * 30_000)).startswith("<a b b")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.md", "---\ntitle: Third trial\ndate: 2023-05-17\ntags: [pump, seal]\n---\n\nIt wore out.\n"),
        ("a.org", "#+TITLE: Third trial\n#+DATE: 2023-05-17\n#+FILETAGS: :pump:seal:\nIt wore out.\n"
                  ":PROPERTIES:\n:ID: secret\n:END:\n# secret\n"),
        ("a.adoc", "= Third trial\n:revdate: 2023-05-17\n:keywords: pump, seal\n\nIt wore out.\n// secret\n"),
        ("a.rst", "Third trial\n===========\n:Date: 2023-05-17\n:Tags: pump, seal\n\nIt wore out.\n\n.. secret\n"),
    ],
)  # fmt: skip
def test_tags_and_the_date_are_found_as_text(name: str, content: str) -> None:
    document = told(name, content)
    text = text_of(document)
    assert document.title == "Third trial" and "secret" not in text
    assert "2023-05-17" in text and "pump" in text and text.endswith("It wore out.")
    assert not any("2023" in name for section in document.sections for name in section.path)


@pytest.mark.parametrize(
    ("name", "content", "blocks"),
    [
        ("a.org", "It has 5*3*2 parts, =[[a]]=, [[x.png][a view]]. +gone+\nIt runs[fn:a].\n\n"
                  "- one\n\n  more of one\n  : x = 1\n- Term :: Its\n  meaning.\n\n[fn:a] By\nAda.\n",
         ["It has 5*3*2 parts, [[a]], a view. It runs[1].", "- one\n  more of one\n  x = 1",
          "Term\n    Its meaning.", "[1] By Ada."]),
        ("a.adoc", ":x: Pump\n\n{x} 7footnote:n[By Ada.] and footnote:n[] it.\n\n* one\n** deep\n+\n----\nx = 1\n----\n"
                   "\n* two\n\nTerm::\n  Its\n  meaning.\n\n[NOTE]\n====\nWear gloves.\n====\n",
         ["Pump 7[1] and [1] it.", "- one\n  - deep\n    x = 1\n- two", "Term\n    Its meaning.",
          "Note: Wear gloves.", "[1] By Ada."]),
        ("a.rst", "One [1]_, two [#]_.\n\n.. versionadded:: 3.5\n\n   It may::\n\n      x = 1\n\n"
                  ".. deprecated:: 4.0\n\n* one\n\n  more of one\n\nTerm\n  Its meaning.\n\n"
                  ".. [1] By Ada.\n.. [#] By Bo.\n",
         ["One[1], two[2].", "New in version 3.5: It may:", "x = 1", "Deprecated since version 4.0",
          "- one\n  more of one", "Term\n    Its meaning.", "[1] By Ada.", "[2] By Bo."]),
        ("a.tex", "One % gone\n\nTwo\\footnote{By Ada.} \\sout{gone}cases.\\begin{itemize}\\item one\n\nmore of one\\end{itemize}"
                  "\\begin{tabular}{ll}a&b\\\\\\hline\\multicolumn{2}{c}{c}\\\\[2pt]d&\\end{tabular}",
         ["One", "Two[1] cases.", "- one\n  more of one", "c\na: d", "[1] By Ada."]),
        ("a.rtf", r"{\rtf1 {\pard One.\par}{\pard\li360\fi-360 \bullet\tx360\tab one\par}"
                  r"{\pard\li720\fi-360 \endash\tab deep\par}{\v gone}}",
         ["One.", "- one\n  - deep"]),
    ],
)  # fmt: skip
def test_blocks_stand_in_their_order_and_within_each_other(
    name: str, content: str, blocks: Sequence[str]
) -> None:
    assert [b.text for s in told(name, content).sections for b in s.blocks] == blocks


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.adoc", '[cols=","]\n|===\n|site |hours\n\n.2+|Bonn |41\n|12\n2+|7\n|===\n'),
        ("a.tex", r"\begin{tabular}{ll}site&hours\\\cmidrule(lr){1-2}\multirow{2}{*}{Bonn}&41\\&12\\"
                  r"\multicolumn{2}{c}{7}\end{tabular}"),
        ("a.rtf", r"{\rtf1\trowd\cellx1\cellx2\intbl site\cell hours\cell\row"
                  r"\trowd\clvmgf\cellx1\cellx2\intbl Bonn\cell 41\cell\row"
                  r"\trowd\clvmrg\cellx1\cellx2\intbl\cell 12\cell\row"
                  r"\trowd\clmgf\cellx1\clmrg\cellx2\intbl 7\cell\cell\row}"),
    ],
)  # fmt: skip
def test_merged_cells_say_the_same_in_each_row_and_column(name: str, content: str) -> None:
    rows = "\n".join(of_kind(told(name, content), TABLE)).splitlines()
    assert rows[:2] == ["site: Bonn | hours: 41", "site: Bonn | hours: 12"]
    assert "7" in text_of(told(name, content)).splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.org", "3. one\n4. two\n"),
        ("a.rst", "3. one\n#. two\n"),
        ("a.rtf", r"{\rtf1{\pard\li9{\pntext 3.}one\par}{\pard\li9{\pntext 4.}two\par}}"),
    ],
)
def test_a_list_counts_from_its_first_number(name: str, content: str) -> None:
    assert of_kind(told(name, content), LIST) == ["3. one\n4. two"]
    letters = told("a.rst", "a. one\nb. two\n\nText.\n\n(i) one\n(ii) two\n")
    assert of_kind(letters, LIST) == ["a. one\nb. two", "i. one\nii. two"]


def test_front_matter_may_be_toml_or_broken() -> None:
    toml = told("a.md", '+++\ntitle = "Trial"\ndate = 2023-05-17\ntags = ["a"]\n+++\n\nText.\n')
    assert toml.title == "Trial" and "2023-05-17" in text_of(toml)
    other = told("d.md", '---json\n{"title": "Trial"}\n---\n\nText.\n')
    assert other.title == "Trial" and text_of(other).endswith("Text.")
    broken = told("b.md", "---\ntitle: Trial: the third\nx: [\n---\n\nText.\n")
    assert broken.title == "Trial: the third"
    assert text_of(broken).endswith("Text.")
    assert told("c.md", "---\n\nA rule above.\n\n---\nText.\n").title == "c"


def test_directives_of_sphinx_keep_their_text() -> None:
    document = told(
        "a.rst",
        "Top\n---\n\n.. note:: Be careful,\n   very.\n\n.. py:function:: f(x)\n\n   Does f.\n\n"
        ".. versionadded:: 3.5\n   The *thing*.\n\nSee :class:`~a.b.Seal` and `site <http://x>`_.\n"
        "\n.. toctree::\n\n   gone\n",
    )
    text = text_of(document)
    for said in ("Note: Be careful, very.", "f(x)\n    Does f.", "New in version 3.5: The thing."):
        assert said in text
    assert "See Seal and site." in text
    assert "gone" not in text


def test_subtitles_are_running_text_with_their_times_as_place() -> None:
    vtt = told(
        "a.vtt",
        "WEBVTT\n\n1\n00:01.000 --> 00:04.000\n<v Ann>The seal\nwore out\n\n"
        "00:05.000 --> 00:07.500 align:start\n<i>in May.</i>\n",
    )
    (block,) = vtt.sections[0].blocks
    assert (block.text, block.place) == ("Ann: The seal wore out in May.", "00:01 to 00:07")


def test_lines_of_json_are_rows_and_what_is_none_is_told() -> None:
    document = told("a.jsonl", '{"trial": 3, "flow": 12}\nbroken\n{"trial": 4, "flow": 42}\n')
    assert of_kind(document, TABLE) == ["trial: 3 | flow: 12\ntrial: 4 | flow: 42"]
    assert "1 of its 3 lines" in document.note
    assert text_of(told("a.jsonl", "no data\n")) == "no data"


def test_words_among_the_elements_of_xml_are_running_text() -> None:
    assert "note: Some bold words" in text_of(
        told("a.xml", "<r><note>Some <b>bold</b> words</note></r>")
    )
    several = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 99}">' for n in range(1, 9))
    for entities in (f'<!ENTITY e0 "aaaa">{several}', '<!ENTITY e8 SYSTEM "file:///etc/passwd">'):
        with pytest.raises(SourceError, match="is no XML"):
            told("a.xml", f"<!DOCTYPE r [{entities}]><r><t>&e8; seen</t></r>")


def test_of_a_long_mailbox_the_first_mails_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricem.agent.sources.readers.pages.mail.MOST_MAILS", 1)
    mails = b"".join(b"From a\nSubject: S%d\n\nText %d.\n\n" % (n, n) for n in range(4))
    document = told("a.mbox", mails)
    assert [s.heading for s in document.sections] == ["S0"]
    assert document.note == "read in part: not the last 3 mails"
    with pytest.raises(SourceError, match=r"a\.mbox is no mailbox"):
        told("a.mbox", "no mail\n")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.mdx", "import X from './x'\n\n# Top\n\n<Tabs>\n\nText. {/* gone */}\n\n</Tabs>\n", "Text."),
        ("a.json", '{"a": 1, // litres\n}', '{"a": 1, // litres\n}'),
        ("a.html", "<table><tr><td><b>Name</b><td>Ann<tr><td><b>Age</b><td>31</table>",
         "Name: Ann\nAge: 31"),
        ("a.mbox", "From a\nSubject: One\n\nIt wore.\n\nFrom b\nSubject: Two\n\nFrom May.\n",
         "It wore.\nFrom May."),
        ("a.rtf", r"{\rtf1\ansi{\fonttbl{\f1\fcharset204 A;}}It is {\f1\'cd\'e0}.}", "It is На."),
        ("a.rtf", r"{\rtf1{\shp{\*\shpinst{\sp{\sv 9}}{\shptxt In a box.\par}}}}", "In a box."),
        ("a.rst", ".. list-table::\n   :header-rows: 1\n\n   * - part\n     - hours\n   * - seal\n     - 9\n",
         "part: seal | hours: 9"),
        ("a.atom", "<feed xmlns='a'><entry><content type='xhtml'><div xmlns='x'>Was <b>41</b>.</div>"
                   "</content></entry></feed>", "Was 41."),
        ("a.tex", r"\'{e}t\'e, \SI{42}{\litre\per\minute} ``so''---\verb|a_b| \iffalse gone \fi end",
         "été, 42 litre/minute “so”—a_b end"),
        ("a.org", "| <r> | <l5> |\n| a | b |\n|---+---|\n| 1 | 2 |\n\n\\alpha is.\n", "a: 1 | b: 2\n\nα is."),
        ("a.adoc", "[%header,format=csv]\n|===\na,b\n1,2\n|===\n", "a: 1 | b: 2"),
        ("a.md", "```math\n\\frac{p}{q}\n```\nSo \\(x^{2}\\) \\(or so\\) ![a view](x.png).",
         "(p)/(q)\n\nSo x^2 (or so) [image: a view] ."),
        ("b.md", "`[[a]]` costs $5 at 10$^{-3}$ m, $6.", "[[a]] costs $5 at 10^-3 m, $6."),  # no formula, nor a link
        ("a.html", "seen <dialog>not</dialog><dialog style='top: 0'>nor</dialog><img alt='a view'>"
                   "<a href='x'><img alt='a link'></a>", "seen [image: a view]"),
    ],
)  # fmt: skip
def test_what_only_some_kinds_have_is_told_as_well(name: str, content: str, said: str) -> None:
    assert text_of(told(name, content)) == said


def test_aliases_of_yaml_do_not_grow_without_end() -> None:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
    with pytest.raises(SourceError):
        told("a.yaml", f"a0: &a0 [{{x: 1}}, {{x: 2}}]\n{levels}\n")


def test_a_notebook_is_its_cells_without_pictures() -> None:
    picture = base64.b64encode(b"\x89PNG" * 5000).decode()
    cells = [
        {"cell_type": "markdown", "source": ["# Pump\n", "Seal ![x](data:image/png;base64,", picture, ")"]},
        {"cell_type": "code", "source": "print(42)", "outputs": [
            {"output_type": "stream", "text": ["\x1b[31m42\x1b[0m\n"]},
            {"output_type": "display_data", "data": {"image/png": picture, "text/plain": ["<Figure>"]}},
            {"output_type": "execute_result", "data": {
                "text/html": "<table><tr><th>part</th></tr><tr><td>seal</td></tr></table>",
                "text/plain": "gone"}},
            {"output_type": "display_data", "data": {
                "text/html": "Mean <b>4</b>", "text/plain": "<IPython.core.display.HTML object>"}},
            {"output_type": "display_data", "data": {
                "text/latex": "$\\frac{1}{2}$", "text/plain": "gone"}},
            {"output_type": "error", "ename": "ValueError", "evalue": "\x1b[31mred\x1b[0m"}]},
    ]  # fmt: skip
    document = told("a.ipynb", json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}))
    text = text_of(document)
    assert document.title == "Pump"
    assert of_kind(document, CODE) == ["print(42)", "42", "ValueError: red"]
    assert of_kind(document, TABLE) == ["part: seal"]
    assert "Mean 4" in text and "(1)/(2)" in text and "<Figure>" not in text
    assert "Seal" in text and picture[:40] not in text and "gone" not in text
    with pytest.raises(SourceError):
        told("a.ipynb", "{}")


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ("# Title\n\nText.\n", ("Title",)),
        ("Title\n=====\n\nText.\n", ("Title",)),
        ("<!DOCTYPE html><h1>Title</h1><p>Text.", ("Title",)),
        ("Text.\n", ()),
    ],
)
def test_a_file_without_a_suffix_is_what_it_holds(content: str, path: Sequence[str]) -> None:
    section = told("README", content).sections[-1]
    assert (section.path, section.text) == (path, "Text.")


def zipped(parts: dict[str, bytes]) -> bytes:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.json", '{"flow": 5, "flow": 7, "most": NaN, "ok": true, "none": null, "n": [1, 2]}',
         "flow: 5, 7\nmost: NaN\nok: true\nnone: null\nn: 1, 2"),
        ("a.yaml", "flow: 5\nflow: 7\n", "flow: 5\nflow: 7"),
        ("a.yaml", "# Litres\n# a minute.\nflow: 5\nmost: 7  # at 20 °C\nlast: 'a#b'\n",
         "flow: 5\nmost: 7\nlast: a#b\n# Litres\n# a minute.\nflow: 5\nmost: 7  # at 20 °C"),
        ("a.xml", "<a><para>It gave 42<footnote><para>By hand.</para></footnote> l at"
                  " 10<superscript>-3</superscript> m.</para></a>",
         "para: It gave 42 [By hand.] l at 10^-3 m."),
        ("a.xml", "<a><p>Do<lb/>this:<list><item>one</item><item>two<note>Late.</note></item></list>now</p></a>",
         "p:\n\nDo this:\n\none\n\ntwo [Late.]\n\nnow"),
        ("a.tex", r"It is so.\footnotetext{By Ada.}", "It is so.[1]\n\n[1] By Ada."),
        ("a.xml", "<!DOCTYPE a [<!ENTITY co 'Acme Ltd.'>]><a><p>By &co; in K&ouml;ln</p></a>",
         "p: By Acme Ltd. in Köln"),
        ("a.xml", "<a><description>a List&lt;Text&gt; of it</description></a>",
         "description: a List<Text> of it"),
        ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nso the pump\n\nNOTE gone\n\n"
                  "00:02.000 --> 00:04.000\nso the pump\nfailed\n",
         "so the pump failed"),
        ("a.md", "So 2*3*4 = 24, 2**3 and 4**5, *.txt or *.md, a List<Text> or `List<T>`, <your-name>"
                 " and <Tab>in</Tab> <BR>it; $2*3*4$ is *so*.",
         "So 2*3*4 = 24, 2**3 and 4**5, *.txt or *.md, a List<Text> or List<T>, <your-name> and in it;"
         " 2*3*4 is so."),
        ("a.tex", r"So \unknown{one}{two} \textbf{im}peller, \SIrange{5}{10}{\celsius}, 5\nicefrac{1}{2}, \ang{45}.",
         "So one two impeller, 5 to 10 celsius, 5 1/2, 45°."),
        ("a.tex", r"\title{Creep\thanks{By KR.}}\author{Bo \and Ada}\date{May 2018}\begin{document}\IEEEPARstart{G}{ates}"
                  r" cost \EUR{30} \~{} \^{}.\begin{block}{Lesson}Wait.\end{block}\end{document}",
         "Bo Ada\n\nMay 2018\n\nGates cost €30 ~ ^.\n\nLesson\n\nWait.\n\nBy KR."),
        ("a.tex", r"\begin{tabular}{ll}part & use \\ \midrule rotor & none \\ \end{tabular}", "part: rotor | use: none"),
        ("a.adoc", "[start=4]\n. four\n\n[%header,format=csv]\n|===\npart,cost\nB1,\"1,200\"\n|===\n\n[quote, Ada, Notes]\n____\nSo.\n____\n",
         "4. four\n\npart: B1 | cost: 1,200\n\nAda, Notes\n\nSo."),
        ("a.ics", "SUMMARY:Oil\\, water\\; more\\nto\r\n day", "SUMMARY:Oil, water; more today"),
        ("a.adoc", ":v: 2\n\nOf {v}, not \\{v}, a ((seal))(((seal,ring))).", "Of 2, not {v}, a seal."),
    ],
)  # fmt: skip
def test_nothing_is_lost_glued_or_taken_for_a_mark(name: str, content: str, text: str) -> None:
    assert text_of(told(name, content)) == text


def test_the_titles_of_frames_are_headings_and_what_says_when_they_are_shown_is_none() -> None:
    frames = (
        r"\begin{frame}<1>[t]{Seals}\only<2->{Worn.}\end{frame}\frame{\frametitle{Rotors} New.}"
    )
    document = told("a.tex", rf"\documentclass{{beamer}}\begin{{document}}{frames}\end{{document}}")
    assert [(s.path, s.text) for s in document.sections] == [
        (("Seals",), "Worn."), (("Rotors",), "New."),
    ]  # fmt: skip


def test_an_archive_is_its_files_under_their_paths() -> None:
    inner = zipped({"deep.txt": b"Deep text.", "deeper.zip": zipped({"gone.txt": b"gone"})})
    document = told(
        "a.zip",
        zipped(
            {"b/notes.md": b"# Top\n\nText.", "in.zip": inner, ".git/x.md": b"gone", "x.dat": b"\0"}
        ),
    )
    assert [(s.path, s.text) for s in document.sections] == [
        (("b/notes.md", "Top"), "Text."),
        (("in.zip/deep.txt",), "Deep text."),
    ]
    assert "in.zip/deeper.zip" in document.note and "x.dat" in document.note


def tarred(parts: dict[str, bytes], mode: str = "w") -> bytes:
    made = BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tar", tarred({"b/n.md": b"# Top\n\nText.", "x.dat": b"\0"})),
        ("a.tar.gz", tarred({"b/n.md": b"# Top\n\nText.", "x.dat": b"\0"}, "w:gz")),
        ("a.tgz", tarred({"b/n.md": b"# Top\n\nText.", "x.dat": b"\0"}, "w:gz")),
        ("a.tar.xz", tarred({"b/n.md": b"# Top\n\nText.", "x.dat": b"\0"}, "w:xz")),
        (
            "a.zip",
            zipped({"b.tar.bz2": tarred({"n.md": b"# Top\n\nText.", "x.dat": b"\0"}, "w:bz2")}),
        ),
    ],
)
def test_a_tar_is_its_files_however_it_is_packed(name: str, content: bytes) -> None:
    document = told(name, content)
    [section] = document.sections
    assert section.path[0].endswith("n.md") and section.path[1:] == ("Top",)
    assert section.text == "Text." and "x.dat" in document.note and "link" not in document.note


def test_a_packed_file_is_what_it_holds() -> None:
    for suffix, pack in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        document = told(f"policy.txt{suffix}", pack(b"A policy."))
        assert [(s.path, s.text) for s in document.sections] == [(("policy.txt",), "A policy.")]
        assert document.title == "policy.txt"
        for wrong in (pack(b"A policy.")[:-9], pack(b"\0" * 2_000_000), b"none of it"):
            with pytest.raises(SourceError) as refused:
                told(f"policy.txt{suffix}", wrong)
            assert refused.value.remedy


def test_bombs_and_broken_archives_are_refused() -> None:
    for content in (
        zipped({"a.txt": b"\0" * 20_000_000}),
        zipped({f"{n}.txt": b"x" for n in range(1001)}),
        zipped({"a.dat": b"x"}),
        b"PK\x03\x04 broken",
    ):
        with pytest.raises(SourceError) as refused:
            told("a.zip", content)
        assert refused.value.remedy


def test_a_program_is_code_with_its_lines() -> None:
    document = told("a.py", "x = 1\n" * 50)
    assert [section.heading for section in document.sections] == ["lines 1-40", "lines 41-50"]
    assert of_kind(document, CODE)[1] == "\n".join(["x = 1"] * 10)


def test_long_texts_are_read_in_parts_that_know_their_headings() -> None:
    body = "".join(f"## Part {n}\n\n{'word ' * 2000}\n\n" for n in range(50))
    document = told("a.md", f"# Top\n\n{body}")
    assert [s.path for s in document.sections] == [("Top", f"Part {n}") for n in range(50)]


def test_every_kind_has_a_reader() -> None:
    from pkgutil import resolve_name

    for reader in {*READERS.values()}:
        assert callable(resolve_name(f"rubricem.agent.sources.readers.{reader}"))
