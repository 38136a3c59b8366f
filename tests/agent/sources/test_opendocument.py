"""OpenDocument's texts, sheets and slides, written here in the XML that LibreOffice writes."""

from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from rubricem.agent.sources.readers import read
from rubricem.agent.sources.readers.document import BlockKind, Document, Input
from rubricem.memory.errors import SourceError

PREFIXES = "office text table style draw xlink fo math chart presentation number dc"
NAMES = " ".join(f'xmlns:{name}="urn:{name}"' for name in PREFIXES.split())


def styled(name: str, more: str = "", family: str = "text", above: str = "") -> str:
    own = f"<style:text-properties {more}/>" * bool(more)
    named = f'style:name="{name}" style:family="{family}" style:parent-style-name="{above}"'
    return f"<style:style {named}>{own}</style:style>"


STYLES = f"""{styled("T1", 'style:text-position="super 58%"')}{styled("T5", above="T1")}
{styled("T3", 'style:text-line-through-style="solid"')}{styled("T4", 'text:display="none"')}
{styled("T6", 'style:text-position="-33% 58%"')}{styled("P1", "", "paragraph", "Title")}
{styled("P2", "", "paragraph", "Preformatted_20_Text")}
<text:list-style style:name="L1">
  <text:list-level-style-number text:level="1" style:num-format="1" style:num-suffix="."/>
  <text:list-level-style-number text:level="2" style:num-format="a" style:num-suffix=")"/>
  <text:list-level-style-bullet text:level="3"/>
</text:list-style>
"""


def packed(name: str, body: str, **parts: str) -> Document:
    content = (
        f"<office:document-content {NAMES}><office:automatic-styles>{STYLES}"
        f"</office:automatic-styles><office:body>{body}</office:body></office:document-content>"
    )
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as package:
        for part, each in ({"content.xml": content} | parts).items():
            package.writestr(part, each)
    return read(Input.of_bytes(name, file.getvalue()))


def odt(*blocks: str, **parts: str) -> Document:
    return packed("a.odt", f"<office:text>{''.join(blocks)}</office:text>", **parts)


def text_of(document: Document) -> str:
    return "\n\n".join(each.text for each in document.sections)


def p(text: str, style: str = "Standard") -> str:
    return f'<text:p text:style-name="{style}">{text}</text:p>'


def h(text: str, level: int) -> str:
    return f'<text:h text:outline-level="{level}">{text}</text:h>'


def span(text: str, style: str) -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


def note(mark: str, text: str) -> str:
    return (
        f'<text:note><text:note-citation text:label="{mark}">{mark}</text:note-citation>'
        f"<text:note-body>{p(text)}</text:note-body></text:note>"
    )


@pytest.mark.parametrize(
    ("paragraph", "text"),
    [
        (p(f"10{span('-3', 'T5')} m of H{span('2', 'T6')}O"), "10^-3 m of H2O"),
        (p(f"It {span('never ', 'T3')}{span('not ', 'T4')}runs"), "It runs"),
        (p("one<text:line-break/>two<text:tab/>three<text:s text:c='3'/>four"),
         "one two three four"),
        (p("a <text:a xlink:href='x'>link</text:a>\n   over  lines"), "a link over lines"),
        (p("<text:ruby><text:ruby-base>京</text:ruby-base><text:ruby-text>きょう</text:ruby-text>"
           "</text:ruby>都"), "京都"),
        (p("Said<office:annotation><text:p>Really?</text:p></office:annotation>."),
         "Said.\n\n[comment] Really?"),
        (p(f"Before<draw:frame><draw:text-box>{p('In a box.')}</draw:text-box></draw:frame> after"),
         "Before after\n\nIn a box."),
        ("<text:section>" + p("Within.") + "</text:section>", "Within."),
    ],
)  # fmt: skip
def test_a_paragraph_says_what_a_person_reads(paragraph: str, text: str) -> None:
    assert text_of(odt(paragraph)) == text


def test_headings_titles_notes_and_code_keep_their_place() -> None:
    document = odt(
        p("On bees", "P1"),
        h("Method", 1),
        p(f"42{note('1', 'Counted twice.')} hives."),
        h("Hives", 2),
        p("a = 1", "P2"),
        p("<text:s text:c='2'/>b = 2", "P2"),
        h("Results", 1),
        p(f"They danced{note('*', 'Frisch, 1967.')}."),
    )
    assert document.title == "On bees"
    assert [(s.heading, s.text) for s in document.sections] == [
        ("Method", "42[1] hives.\n\n[1] Counted twice."),
        ("Method > Hives", "a = 1\n  b = 2"),
        ("Results", "They danced[*].\n\n[*] Frisch, 1967."),
    ]
    assert document.sections[0].blocks[1].kind == BlockKind.NOTE
    assert document.sections[1].blocks[0].kind == BlockKind.CODE


def item(*children: str) -> str:
    return f"<text:list-item>{''.join(children)}</text:list-item>"


def listed(*items: str, style: str = "", more: str = "") -> str:
    return f'<text:list text:style-name="{style}" {more}>{"".join(items)}</text:list>'


def test_lists_are_numbered_and_indented_as_they_are_shown() -> None:
    inner = listed(item(p("within")), item(p("also"), listed(item(p("deep")))))
    document = odt(
        listed(item(p("first"), inner), item(p("second")), style="L1"),
        p("Between."),
        listed(item(p("third")), style="L1", more='text:continue-numbering="true"'),
        p("Again."),
        listed(item(p("anew"), p("Its second paragraph.")), style="L1"),
        p("Bullets."),
        listed(item(p("one")), item(p("two")), style="none"),
    )
    assert text_of(document).split("\n\n") == [
        "1. first\n  a. within\n  b. also\n    - deep\n2. second",
        "Between.",
        "3. third",
        "Again.",
        "1. anew\n  Its second paragraph.",
        "Bullets.",
        "- one\n- two",
    ]
    head = f"<text:list-header>{p('Head')}</text:list-header>"
    assert text_of(odt(listed(head, item(p("one")), style="L1"))).endswith("1. one")


def cell(text: str, more: str = "") -> str:
    return f"<table:table-cell {more}>{p(text) if text else ''}</table:table-cell>"


def table(*rows: str, name: str = "Trials") -> str:
    told = "".join(
        row if row.startswith("<table:table-") and "row" in row[:30] else
        f"<table:table-row>{row}</table:table-row>" for row in rows
    )  # fmt: skip
    return f'<table:table table:name="{name}"><table:table-column/>{told}</table:table>'


DEEP = 'table:number-rows-spanned="2"'
COVERED = "<table:covered-table-cell/>"


def test_a_row_of_a_table_names_its_columns() -> None:
    head = f"<table:table-row>{cell('1')}{cell('2')}</table:table-row>"
    headed = f"<table:table-header-rows>{head}</table:table-header-rows>"
    assert text_of(odt(table(headed, cell("3") + cell("4")))) == "1: 3 | 2: 4"


def ods(*tables: str, **parts: str) -> Document:
    body = f"<office:spreadsheet>{''.join(tables)}</office:spreadsheet>"
    return packed("a.ods", body, **parts)


def value(kind: str, told: str, text: str = "", more: str = "") -> str:
    name = {"date": "date-value", "boolean": "boolean-value"}.get(kind, "value")
    return cell(text, f'office:value-type="{kind}" office:{name}="{told}" {more}')


def test_a_sheet_is_told_as_it_is_shown_with_dates_in_one_form() -> None:
    document = ods(
        table(
            cell("Trials of P-101", 'table:number-columns-spanned="6"'),
            '<table:table-row table:number-rows-repeated="2">'
            '<table:table-cell table:number-columns-repeated="1024"/></table:table-row>',
            "".join(cell(name) for name in ("region", "date", "ok", "time", "price", "new")),
            cell("North", DEEP) + value("date", "2023-05-17", "17.05.23")
            + value("percentage", "0.42", "42%") + value("time", "PT30H", "30:00")
            + value("currency", "1234.5", "1.234,50 €") + value("boolean", "true"),
            COVERED + value("date", "2023-05-18T14:30:00", "18.05.23 14:30")
            + value("percentage", "0.5"),
            '<table:table-row table:number-rows-repeated="1048570">'
            '<table:table-cell table:number-columns-repeated="16384"/></table:table-row>',
        )
    )  # fmt: skip
    assert [(s.heading, s.text) for s in document.sections] == [
        (
            "Trials > rows 5-6",
            "Trials of P-101\n\nregion: North | date: 2023-05-17 | ok: 42 % | time: 30:00 | "
            "price: 1.234,50 € | new: TRUE\nregion: North | date: 2023-05-18 14:30 | ok: 50 %",
        )
    ]


def test_what_nobody_sees_is_left_out_and_of_sheets_and_slides_told() -> None:
    styles = """<o xmlns:s="s">
    <s:style s:name="H" s:family="table"><s:p s:display="false"/></s:style>
    <s:style s:name="P" s:family="paragraph"><s:p s:display="none"/></s:style>
    <s:style s:name="D" s:family="drawing-page"><s:p s:visibility="hidden"/></s:style></o>"""
    rows = [cell(a) + cell(b) + cell(c) for a, b, c in ("abc", "123", "456")]
    rows[1] = f'<table:table-row table:visibility="collapse">{rows[1]}</table:table-row>'
    column = '<table:table-column table:visibility="collapse"/><table:table-column/>'
    sheet = table(*rows).replace("<table:table-column/>", f"<table:table-column/>{column}")
    hidden = sheet.replace("<table:table ", '<table:table table:style-name="H" ')
    book = ods(sheet, hidden, **{"styles.xml": styles})
    assert text_of(book) == "a: 4 | c: 6"
    assert book.note == "read without what is hidden in it: 1 column, 1 row, 1 sheet"
    gone = p("gone", "P") + f'<text:section text:display="none">{p("gone")}</text:section>'
    pictured = "<draw:frame><draw:image/><svg:desc xmlns:svg='svg'>A seal</svg:desc></draw:frame>"
    assert text_of(odt(gone, p(f"seen{pictured}"), **{"styles.xml": styles})) == (
        "seen\n\n[image: A seal]"
    )
    slide = f'<draw:page draw:style-name="D"><draw:frame>{p("gone")}</draw:frame></draw:page>'
    talk = packed("a.odp", f"<office:presentation>{slide}</office:presentation>",
                  **{"styles.xml": styles})  # fmt: skip
    assert talk.note == "read without what is hidden in it: 1 slide"


def test_repeated_cells_comments_and_formulas_without_a_value_are_told() -> None:
    comment = f"<office:annotation>{p('worn out')}</office:annotation>"
    noted = f'<table:table-cell office:value-type="float" office:value="12">{comment}{p("12")}'
    document = ods(
        table(
            cell("part") + cell("a") + cell("b") + cell("c"),
            cell("rotor") + value("float", "7", "7", 'table:number-columns-repeated="3"'),
            cell("seal") + f"{noted}</table:table-cell>",
            '<table:table-row table:number-rows-repeated="2">' + cell("pump")
            + '<table:table-cell table:formula="of:=SUM(B2)"/></table:table-row>',
        )
    )  # fmt: skip
    told = "part: rotor | a: 7 | b: 7 | c: 7\npart: seal | a: 12\npart: pump\npart: pump"
    assert text_of(document) == f"{told}\n\ncomment: worn out"
    assert "1 formulas" in document.note


def test_a_sheet_that_repeats_its_rows_without_end_is_bounded() -> None:
    repeated = '<table:table-row table:number-rows-repeated="1048576">'
    wide = cell("x", 'table:number-columns-repeated="16384"')
    document = ods(*[table(cell("a") + cell("b"), f"{repeated}{wide}</table:table-row>")] * 4)
    assert 1_000_000 < sum(len(section.text) for section in document.sections) < 20_000_000


CHART = f"""<office:document-content {NAMES}><office:body><office:chart><chart:chart>
<chart:title>{p("Flow of the pump")}</chart:title>
{table(cell("") + cell("l/min"), cell("Trial 1") + cell("41"), cell("Trial 3") + cell("12"))}
</chart:chart></office:chart></office:body></office:document-content>"""


def test_charts_that_lie_over_the_cells_of_a_sheet_are_told_behind_its_rows() -> None:
    chart = '<draw:frame><draw:object xlink:href="./Object 1"/></draw:frame>'
    held = f"<table:table-cell>{p('seal')}{chart}</table:table-cell>"
    sheet = table(cell("part") + cell("hours"), held + value("float", "9", "9"))
    assert text_of(ods(sheet, **{"Object 1/content.xml": CHART})).split("\n\n") == [
        "part: seal | hours: 9",
        "Flow of the pump",
        "Trial 1 | l/min: 41\nTrial 3 | l/min: 12",
    ]


def test_slides_are_told_with_their_shapes_tables_charts_and_notes() -> None:
    def frame(text: str, kind: str = "") -> str:
        box = f"<draw:text-box>{text}</draw:text-box>"
        return f'<draw:frame presentation:class="{kind}">{box}</draw:frame>'

    rows = table(cell("part") + cell("price"), cell("seal") + cell("12 EUR"))
    chart = '<draw:frame><draw:object xlink:href="./Object 1"/></draw:frame>'
    page = (
        frame(p("Pump trials"), "title") + frame(listed(item(p("first")), item(p("second"))))
        + f"<draw:g><draw:custom-shape>{p('In a group.')}</draw:custom-shape></draw:g>"
        + f"<draw:frame>{rows}</draw:frame>{chart}" + frame(p("7"), "page-number")
        + f"<presentation:notes>{frame(p('Slowly.'), 'notes')}</presentation:notes>"
    )  # fmt: skip
    body = f"<office:presentation><draw:page>{page}</draw:page></office:presentation>"
    document = packed("a.odp", body, **{"Object 1/content.xml": CHART})
    (section,) = document.sections
    assert section.heading == "slide 1: Pump trials"
    assert section.text.split("\n\n") == [
        "Pump trials",
        "- first\n- second",
        "In a group.",
        "part: seal | price: 12 EUR",
        "Flow of the pump",
        "Trial 1 | l/min: 41\nTrial 3 | l/min: 12",
        "Slowly.",
    ]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"META-INF/manifest.xml": "<m><encryption-data/></m>"}, "encrypted"),
        ({"content.xml": "<c>"}, "could not be read"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(parts: dict[str, str], said: str) -> None:
    with pytest.raises(SourceError, match=rf"a\.odt.*{said}"):
        odt(p("text"), **parts)
