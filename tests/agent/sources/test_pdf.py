"""What a person reads on a page of a PDF is what is searched and quoted, in the same order."""

import zlib
from collections.abc import Callable, Sequence
from io import BytesIO

import pytest

from rubricem.agent.sources.readers import read
from rubricem.agent.sources.readers.document import BlockKind, Document, Input
from rubricem.agent.sources.readers.pdf.glyphs import _known
from rubricem.memory.errors import SourceError
from tests.support.pdfs import FONTS, Drawn, Ruled, drawing, grid, lines_at, pdf, raw_pdf

HALVES = (
    ["The pump of site Bonn ran for", "three hundred hours before its",
     "seal wore out in May 2023. The", "rotor showed no damage and was", "kept in service."],
    ["The valve of site Kiel was closed", "by hand after the alarm on the",
     "second of June. Its spring had", "broken; a new spring was ordered",
     "from the maker in Ulm."],
)  # fmt: skip
WHOLE = [" ".join(half) for half in HALVES]
ROWS = [["part", "hours", "cause", "site"], ["seal", "300", "wear", "Bonn"],
        ["rotor", "900", "", "Kiel"], ["valve", "", "spring broken", "Ulm"]]  # fmt: skip
TOLD = ["part: seal | hours: 300 | cause: wear | site: Bonn",
        "part: rotor | hours: 900 | site: Kiel",
        "part: valve | cause: spring broken | site: Ulm"]  # fmt: skip
COLUMNS = [60, 160, 240, 380]


def document(content: bytes, name: str = "report.pdf") -> Document:
    return read(Input.of_bytes(name, content))


def blocks(*page: Drawn | Ruled) -> list[tuple[BlockKind, str]]:
    sections = document(drawing(page)).sections
    return [(block.kind, block.text) for section in sections for block in section.blocks]


def texts(*page: Drawn | Ruled) -> list[str]:
    return [text for _, text in blocks(*page)]


def cells(rows: Sequence[Sequence[str]], xs: Sequence[float], bold: bool = False) -> list[Drawn]:
    """Each row 20 points below the last, from 700 down."""
    return [
        Drawn(x, 700 - 20 * n, cell, bold=bold and not n)
        for n, row in enumerate(rows)
        for x, cell in zip(xs, row, strict=True)
        if cell
    ]


def of_unicode(named: bytes, text: str) -> str:
    """The text of a page whose font says so what its letters are."""
    written = drawing([Drawn(60, 700, text)])
    meant = b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <FF>"
    meant += b" endcodespacerange " + named + b" endcmap end"
    from pypdf import PdfReader, PdfWriter, generic

    writer, stream, out = (
        PdfWriter(PdfReader(BytesIO(written))),
        generic.DecodedStreamObject(),
        BytesIO(),
    )
    stream.set_data(meant)
    font = writer.pages[0]["/Resources"]["/Font"]["/F1"].get_object()
    font[generic.NameObject("/ToUnicode")] = writer._add_object(stream)
    writer.write(out)
    return "\n".join(section.text for section in document(out.getvalue()).sections)


def by_rows(left: Sequence[Drawn], right: Sequence[Drawn]) -> list[Drawn]:
    return [drawn for pair in zip(left, right, strict=True) for drawn in pair]


@pytest.mark.parametrize("order", [by_rows, lambda left, right: [*left, *right]])
def test_columns_are_read_one_after_the_other_and_what_spans_them_between(
    order: Callable[[list[Drawn], list[Drawn]], list[Drawn]],
):
    def columns(y: float) -> list[Drawn]:
        return order(lines_at(60, y, HALVES[0]), lines_at(310, y, HALVES[1]))

    page = [
        Drawn(150, 760, "Wear of seals and of springs at two sites, as it was seen", 10),
        *columns(720),
        Drawn(100, 640, "Fig. 1: the pump and, to its right, the valve of the other site."),
        *columns(600),
    ]
    assert texts(*page) == [page[0].text, *WHOLE, page[11].text, *WHOLE]


def test_cells_with_borders_of_their_own_are_those_of_a_table() -> None:
    drawn = list[str]()
    for n, row in enumerate([["Day", "seen"], ["Mon", ""], ["", "rain"]]):
        for at, cell in enumerate(row):
            x, y = 60 + 61.5 * at, 700 - 21.5 * n
            drawn.append(f"{x} {y} 60 20 re {x + 1} {y + 1} 58 18 re f*")
            drawn.append(f"BT /F1 10 Tf {x + 4} {y + 6} Td ({cell}) Tj ET")
    (section,) = document(raw_pdf(["\n".join(drawn).encode()])).sections
    assert section.text == "Day: Mon\nseen: rain"


def test_forms_say_what_is_typed_into_them() -> None:
    from pypdf import PdfReader, PdfWriter, generic

    def object_of(**entries: object) -> dict[generic.NameObject, generic.PdfObject]:
        return {generic.NameObject(f"/{name}"): value for name, value in entries.items()}

    writer = PdfWriter(PdfReader(BytesIO(pdf(["Town"]))))
    box = generic.ArrayObject(map(generic.FloatObject, (60, 90, 160, 110)))
    fonts = writer.pages[0]["/Resources"]
    form = generic.DecodedStreamObject()
    form.set_data(b"BT /F1 12 Tf 0 10 Td (Ghent) Tj ET")
    form.update(object_of(Subtype=generic.NameObject("/Form"), Type=generic.NameObject("/XObject")))
    form.update(object_of(BBox=generic.ArrayObject(map(generic.FloatObject, (0, 0, 100, 20)))))
    form.update(object_of(Resources=fonts))
    look = generic.DictionaryObject(object_of(N=writer._add_object(form)))
    field = generic.DictionaryObject(object_of(Rect=box, AP=look, F=generic.NumberObject(4)))
    field.update(
        object_of(Subtype=generic.NameObject("/Widget"), Type=generic.NameObject("/Annot"))
    )
    writer.pages[0].update(object_of(Annots=generic.ArrayObject([writer._add_object(field)])))
    out = BytesIO()
    writer.write(out)
    (section,) = document(out.getvalue()).sections
    assert section.text == "Town Ghent"


def test_comments_are_told_on_a_page_that_keeps_its_size() -> None:
    noted = "/Annots[<</Type/Annot/Subtype/Text/Rect[9 9 29 29]/Contents(Ask Bo\\rof it.)>>]"
    content = drawing([Drawn(500, 793, "Top right")]).split(b"stream\n")[1].split(b"\nend")[0]
    (section,) = document(raw_pdf([zlib.decompress(content)], page=noted)).sections
    assert section.text == "Top right\n\n[comment] Ask Bo of it."


def test_letters_of_formulas_are_told_though_each_is_drawn_as_two_halves() -> None:
    # As new fonts of formulas have x: a letter beyond 16 bits.
    named = b"1 beginbfchar <78> <D835DC65> endbfchar"
    assert of_unicode(named, "Let x = x + 2.") == "Let x = x + 2."


def test_letters_that_run_leftwards_are_told_so_though_they_are_drawn_from_the_left() -> None:
    named = b"3 beginbfchar <61> <0647> <62> <0627> <63> <0645> endbfchar"
    assert of_unicode(named, "abc") == "\u0645\u0627\u0647"


def test_a_table_goes_on_overleaf_under_its_header() -> None:
    rows = [["No.", "part", "site"], *([f"{n}", f"part {n}", "Bonn"] for n in range(1, 9))]
    xs, foot = [60, 160, 240], Drawn(300, 40, "page 1 of 2")
    ruled = grid([55, 155, 235, 400], range(595, 720, 20))
    pages = ([*cells(rows[:5], xs), *ruled, foot], [*cells(rows[5:], xs), *ruled])
    sections = document(drawing(*pages)).sections
    assert sections[-1].text.splitlines()[-1] == "No.: 8 | part: part 8 | site: Bonn"


def test_a_table_ends_where_another_layout_begins_below_it() -> None:
    rows = [["Site", "Heads", "Remark"], ["Turku", "41", "two more"], ["Oulu", "17", ""]]
    below = [Drawn(60, 610, "Outlook", 8), Drawn(300, 610, "Risk", 8)]
    told = texts(*cells(rows, [60, 120, 200], bold=True), *below)
    assert told[0] == "Site: Turku | Heads: 41 | Remark: two more\nSite: Oulu | Heads: 17"


def test_columns_of_two_lines_are_columns_if_they_are_drawn_one_after_the_other() -> None:
    boxes = lines_at(60, 640, ["Prices stay flat", "until autumn."])
    boxes += lines_at(300, 640, ["Copper may rise", "by a fifth."])
    told = texts(Drawn(60, 720, "What is to be said of the year to come in all"), *boxes)
    assert told[1:] == ["Prices stay flat\nuntil autumn.", "Copper may rise\nby a fifth."]


def test_a_heading_beside_a_line_of_the_other_column_is_no_part_of_it() -> None:
    left, right = lines_at(60, 720, HALVES[0] * 3), lines_at(221, 660, HALVES[1] * 2)
    told = texts(*left, Drawn(221, 684, "2", 14), Drawn(237, 684, "Methods", 14), *right)
    assert [text.split()[1] for text in told] == ["pump", "valve"]


def test_signs_of_fonts_without_names_are_those_of_tex_within_words() -> None:
    assert [_known(sign, "") for sign in "\x1e\x15"] == ["\ufb03", "\u2013"]
    assert _known("\x10", "cmex10") == "\x10" and _known("\uf06d", "symbolmt") == "μ"


def test_columns_of_different_length_end_with_what_follows_both():
    left, right = lines_at(60, 720, HALVES[0]), lines_at(310, 720, HALVES[1][:4])
    last = Drawn(60, 400, "The end.")
    assert texts(*left, *right, last) == [WHOLE[0], " ".join(HALVES[1][:4]), "The end."]


def test_columns_below_a_text_whose_marks_are_drawn_last_are_columns():
    above = lines_at(60, 780, ["valve", "pump", "gauge", "seal", "rotor", "end"])
    marks = [Drawn(45, line.y, f"{n}.") for n, line in enumerate(above, 1)]
    columns = [*lines_at(60, 700, HALVES[0][:4]), *lines_at(310, 700, HALVES[1][:4])]
    assert texts(*above, *columns, *marks)[-2:] == [" ".join(half[:4]) for half in HALVES]


def test_cells_that_no_rule_parts_repeat_their_text():
    page = [
        Drawn(60, 700, "Site"), Drawn(190, 700, "Flow"),
        Drawn(160, 680, "l/min"), Drawn(240, 680, "bar"),
        Drawn(60, 650, "Bonn"), Drawn(160, 660, "12"), Drawn(240, 660, "3"),
        Drawn(160, 640, "14"), Drawn(240, 640, "4"),
        Ruled(55, 715, 300, 715), Ruled(155, 695, 300, 695), Ruled(55, 675, 300, 675),
        Ruled(155, 655, 300, 655), Ruled(55, 635, 300, 635),
        Ruled(55, 635, 55, 715), Ruled(155, 635, 155, 715), Ruled(235, 635, 235, 695),
        Ruled(300, 635, 300, 715),
    ]  # fmt: skip
    assert texts(*page) == [
        "Site: Bonn | Flow l/min: 12 | Flow bar: 3\nSite: Bonn | Flow l/min: 14 | Flow bar: 4"
    ]


def test_a_title_over_all_columns_stands_before_the_rows():
    title = [Drawn(150, 720, "Life of the parts"), Ruled(55, 735, 450, 735)]
    sides = [Ruled(55, 715, 55, 735), Ruled(450, 715, 450, 735)]
    rules = grid([55, 155, 235, 375, 450], [635, 655, 675, 695, 715])
    assert texts(*title, *sides, *cells(ROWS, COLUMNS), *rules) == [
        "Life of the parts",
        "\n".join(TOLD),
    ]


def test_lines_within_a_cell_are_one_text():
    rules = grid([55, 155, 375], [640, 690, 715])
    page = [
        *(Drawn(60, 700, "part"), Drawn(160, 700, "remark"), Drawn(60, 675, "seal")),
        *lines_at(160, 675, ["it was worn, and the inves-", "tigation took a month"]),
    ]
    assert texts(*page, *rules) == [
        "part: seal | remark: it was worn, and the investigation took a month"
    ]


@pytest.mark.parametrize(
    "rules", [[Ruled(55, 695, 450, 695)], [Ruled(55, y, 450, y) for y in (715, 695, 635)]]
)
def test_columns_that_are_clear_make_a_table_without_rules_between_them(rules: list[Ruled]):
    before = Drawn(60, 730, "Table 1. The life of parts in the pumps of three sites of the works.")
    assert texts(before, *cells(ROWS, COLUMNS), *rules) == [before.text, "\n".join(TOLD)]
    assert texts(before, *cells(ROWS, COLUMNS, bold=True)) == [before.text, "\n".join(TOLD)]


def test_numbers_below_words_have_these_for_names():
    rows = [["trial", "share ok"], ["1", "42 %"], ["2", "51 %"], ["3", "60 %"]]
    told = [f"trial: {trial} | share ok: {share}" for trial, share in rows[1:]]
    assert texts(*cells(rows, [60, 200])) == ["\n".join(told)]


def test_rows_without_a_header_name_nothing():
    rows = [["Pump", "P-101"], ["Site", "Bonn"], ["Reader", "A. Meier"]]
    assert texts(*cells(rows, [60, 200])) == ["Pump | P-101\nSite | Bonn\nReader | A. Meier"]


def test_a_meaning_that_goes_on_below_stays_with_its_term():
    rows = [["-a", "tells all, also what is hidden and"], ["", "what is not"], ["-b", "tells none"],
            ["-c", "tells what was"]]  # fmt: skip
    assert texts(*cells(rows, [60, 120])) == [
        "-a | tells all, also what is hidden and what is not\n-b | tells none\n-c | tells what was"
    ]


def raised(x: float, y: float, text: str, up: float = 4) -> Drawn:
    return Drawn(x, y + up, text, 6)


def test_powers_indices_and_marks_of_notes_are_told_as_in_other_documents():
    # Widths of Helvetica at 10 points: a digit 5.56, a space 2.78.
    page = [
        Drawn(60, 700, "At 10"), raised(84.5, 700, "5"), Drawn(90, 700, "Pa it moved 42"),
        raised(157, 700, "1"), Drawn(163, 700, "litres of H"), raised(205.2, 700, "2", -2),
        Drawn(208.6, 700, "O at v"), raised(236.4, 700, "max", -2), Drawn(250, 700, "by the 5"),
        raised(287.2, 700, "th"), Drawn(295, 700, "of May."),
        raised(60, 100, "1"), Drawn(64, 100, "Measured in Bonn.", 8),
    ]  # fmt: skip
    assert blocks(*page) == [
        (
            BlockKind.PARAGRAPH,
            "At 10^5 Pa it moved 42[1] litres of H2O at v_max by the 5th of May.",
        ),
        (BlockKind.NOTE, "[1] Measured in Bonn."),
    ]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["It is well-known here, a well-", "known fact of the North-", "Rhine site in 20-", "30."],
         "It is well-known here, a well-known fact of the North-Rhine site in 20-30."),
        (["a submers\xad", "ible pump - a", "good one"], "a submersible pump - a good one"),
    ],
)  # fmt: skip
def test_words_broken_at_the_end_of_a_line_are_joined(lines: list[str], told: str):
    found = texts(*lines_at(60, 700, lines))
    assert [" ".join(text.split()) for text in found] == [told]


def test_a_line_that_ends_early_ends_with_a_new_line_and_items_are_told_apart():
    page = [
        *lines_at(60, 700, ["A paragraph fills the lines of its column as far as words", "go on."]),
        *lines_at(60, 640, ["• first of the items, which goes on below as there was no", "room",
                            "• second"]),
        *lines_at(60, 560, ["Pump House", "12 River Road", "Bonn"]),
    ]  # fmt: skip
    assert blocks(*page) == [
        (BlockKind.PARAGRAPH, "A paragraph fills the lines of its column as far as words go on."),
        (
            BlockKind.LIST,
            "- first of the items, which goes on below as there was no room\n- second",
        ),
        (BlockKind.PARAGRAPH, "Pump House\n12 River Road\nBonn"),
    ]


def test_what_a_rule_goes_through_is_struck_out_and_what_stands_on_it_is_not():
    line = [Drawn(60, 700, "It costs"), Drawn(105, 700, "ten"), Drawn(126, 700, "nine euros.")]
    assert texts(*line, Ruled(105, 702.5, 121, 702.5)) == ["It costs nine euros."]
    assert texts(*line, Ruled(105, 698.5, 121, 698.5)) == ["It costs ten nine euros."]


def test_a_fraction_keeps_its_bar_scripts_and_large_signs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(FONTS, "F2", "CMEX10")
    sums = [Drawn(105, 706, "x"), raised(110, 706, "2"), Ruled(103, 702.6, 122, 702.6),
            Drawn(104, 700, "P", bold=True), Drawn(114, 692, "y")]  # fmt: skip
    whole = Drawn(60, 700, "Then E ="), *sums, Drawn(126, 700, "in all.")
    assert texts(*whole) == ["Then E = (x^2)/(∑ y) in all."]
    named = [Drawn(60, 706, "part"), Ruled(58, 702.6, 82, 702.6), Drawn(60, 692, "seal")]
    assert texts(*named) == ["part\nseal"]


def test_words_are_parted_by_gaps_where_nobody_wrote_a_space():
    page = [Drawn(60, 700, "saved"), Drawn(90, 700, "on"), Drawn(104, 700, "the"),
            Drawn(121, 700, "disk")]  # fmt: skip
    assert texts(*page) == ["saved on the disk"]


def spaced_out(y: float, text: str, gap: int, between: int) -> str:
    """A line whose letters and words are parted by shifts alone, in thousandths of their size."""
    told = (f" {-gap} ".join(f"<{ord(c):02x}>" for c in word) for word in text.split())
    return f"BT /F1 12 Tf 1 0 0 1 60 {y} Tm [{f' {-between} '.join(told)}] TJ ET"


def test_letters_that_are_spaced_out_are_those_of_words_where_words_are_parted_wider():
    page = [
        spaced_out(700, "ANNUAL REPORT 2024", 300, 900),
        spaced_out(680, "Pressure stays above 1.5 bar.", 250, 700),
        spaced_out(660, "Call the service every May.", 500, 1300),
        spaced_out(640, "A B C D E F G H I J", 0, 600),
        spaced_out(620, "0 1 1 0 1 0 1 1 0", 0, 600),
        spaced_out(600, "a + b = c + d", 0, 300),
    ]
    [section] = document(raw_pdf(["\n".join(page).encode()])).sections
    assert " ".join(" ".join(block.text.split()) for block in section.blocks) == (
        "ANNUAL REPORT 2024 Pressure stays above 1.5 bar. Call the service every May. "
        "A B C D E F G H I J 0 1 1 0 1 0 1 1 0 a + b = c + d"
    )


def test_text_that_is_turned_is_read_as_if_it_were_level():
    turned = [Drawn(300 + 12 * n, 200, line, angle=90) for n, line in enumerate(HALVES[0])]
    assert texts(Drawn(60, 700, "Level."), *turned, Drawn(90, 90, "Draft", 40, angle=45)) == [
        WHOLE[0],
        "Level.",
        "Draft",
    ]
    page = [Drawn(100 + 12 * n, 100, line, angle=90) for n, line in enumerate(HALVES[1])]
    assert document(drawing(page, rotate=90)).sections[0].text == WHOLE[1]


def test_a_table_on_a_turned_page_is_one_too():
    page = [Drawn(800 - c.y, c.x, c.text, angle=90) for c in cells(ROWS, COLUMNS)]
    rules = [Ruled(800 - r.y0, r.x0, 800 - r.y1, r.x1)
             for r in grid([55, 155, 235, 375, 450], [635, 655, 675, 695, 715])]  # fmt: skip
    assert document(drawing([*page, *rules], rotate=90)).sections[0].text == "\n".join(TOLD)


def test_a_stamp_across_a_page_is_no_heading():
    page = [*lines_at(60, 700, HALVES[0]), Drawn(200, 300, "DRAFT", 60, angle=45)]
    assert [section.path for section in document(drawing(page, page[:5])).sections] == [()] * 2


def test_larger_letters_are_headings_by_their_size():
    text = lines_at(60, 600, [*HALVES[0]] * 3)
    first = [Drawn(60, 700, "Report of the year", 20), Drawn(60, 660, "Pumps", 14), *text]
    second = [Drawn(60, 700, "Valves", 14), *text]
    sections = document(drawing(first, second)).sections
    assert [section.heading for section in sections] == [
        "Report of the year > Pumps > page 1",
        "Report of the year > Valves > page 2",
    ]


def test_letters_of_fonts_are_those_of_words():
    content = rb"BT /F1 12 Tf 60 700 Td (the e\214ciency\001 of the o\215ce) Tj ET"
    made = raw_pdf([content]).replace(
        b"/BaseFont/Helvetica/Encoding/WinAnsiEncoding",
        b"/BaseFont/Helvetica/Encoding<</Differences[140/ffi 141/ffi]>>",
    )
    # The places of later objects have moved, which is mended too.
    assert document(made).sections[0].text == "the efficiency of the office"


def test_an_accent_that_is_drawn_by_itself_is_one_of_the_letter_below():
    # As TeX draws it: the accent, back by its width, the letter.
    content = rb"BT /F1 12 Tf 60 700 Td [(Die D\250)444(use von 1900)] TJ ET"
    assert document(raw_pdf([content])).sections[0].text == "Die Düse von 1900"


def test_of_more_pages_than_are_read_the_first_are_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rubricem.agent.sources.readers.pdf.MOST_PAGES", 2)
    made = document(drawing(*[[Drawn(60, 700, f"Page {n}.")] for n in range(3)]))
    assert made.note == "read in part: 2 of 3 pages" and len(made.sections) == 2


@pytest.mark.parametrize("title", ["Microsoft Word - x.doc", "final.docx", "Untitled-1", " "])
def test_a_title_that_says_nothing_gives_way_to_the_file_s_name(title: str):
    assert document(drawing([Drawn(60, 700, "Text.")], title=title)).title == "report"
    own = "Microsoft Word in schools"
    assert document(drawing([Drawn(60, 700, "Text.")], title=own)).title == own


def test_what_needs_no_password_and_what_a_reader_can_mend_is_read():
    assert document(pdf(["Open to all."], password="")).sections[0].text == "Open to all."
    content = b"BT /F1 12 Tf 60 700 Td (Found again.) Tj ET"
    assert document(raw_pdf([content], xref=False)).sections[0].text == "Found again."


def test_what_leaves_no_mark_on_a_page_is_not_told_and_counted():
    def told(x: float, y: float, text: str, before: str = "") -> str:
        return f"q {before} BT /F1 10 Tf {x} {y} Td ({text}) Tj ET Q"

    drawn = [
        told(60, 700, "Twelve rooms."),
        told(60, 680, "white", "1 g"),
        told(60, 660, "unpainted", "3 Tr"),
        told(60, 640, "covered") + " 55 635 90 18 re f",
        told(700, 620, "beside"),
        told(60, 600, "cut", "300 300 9 9 re W n"),
        told(60, 580, "tiny", "0.05 0 0 0.05 0 0 cm"),
        "0 0 0.6 rg 55 555 120 18 re f " + told(60, 560, "White on blue.", "1 g"),
    ]
    made = document(raw_pdf(["\n".join(drawn).encode()]))
    assert made.sections[0].text == "Twelve rooms.\nWhite on blue."
    assert made.note == "read without what is hidden in it: 6 words"


def test_letters_off_the_line_are_scripts_in_any_size_where_they_are_drawn_with_their_base():
    content = b"BT /F1 11 Tf 60 700 Td (It has 10) Tj 10.67 Tf 5 Ts (-3) Tj 11 Tf 0 Ts ( m of H) Tj"
    content += b" 10.67 Tf -5 Ts (2) Tj 11 Tf 0 Ts (O on the 5) Tj 10.67 Tf 5 Ts (th) Tj ET"
    (section,) = document(raw_pdf([content])).sections
    assert section.text == "It has 10^-3 m of H2O on the 5th"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pdf(["Secret."], password="key"), "report.pdf is encrypted"),
        (pdf(["", "", ""]), "report.pdf has no text in its 3 pages"),
        (b"%PDF-1.7 nothing follows", "report.pdf could not be read"),
        (raw_pdf([b"BT /F1 12 Tf (x) Tj ET"])[:200], "report.pdf could not be read"),
    ],
)
def test_what_cannot_be_read_is_refused(content: bytes, said: str):
    with pytest.raises(SourceError, match=said) as failed:
        document(content)
    assert failed.value.remedy
