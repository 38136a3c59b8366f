"""Files of office programs, written here part by part in the XML that those write."""

import time
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from rubricem.agent.sources.readers import read
from rubricem.agent.sources.readers.document import BlockKind, Document, Input
from rubricem.agent.sources.readers.office.formats import show
from rubricem.agent.sources.readers.passages import split_passages
from rubricem.memory.errors import SourceError

Parts = dict[str, str]
W = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
)
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'


def of_parts(name: str, parts: Parts) -> Document:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as package:
        for part, content in parts.items():
            package.writestr(part, content)
    return read(Input.of_bytes(name, packed.getvalue()))


def sections(document: Document) -> list[tuple[str, str]]:
    return [(each.heading, each.text) for each in document.sections]


def text_of(document: Document) -> str:
    return "\n\n".join(each.text for each in document.sections)


def relations(**targets: str) -> str:
    each = "".join(f'<Relationship Id="{i}" Target="{t}"/>' for i, t in targets.items())
    return f"<Relationships>{each}</Relationships>"


# Word

STYLES = f"""<w:styles {W}>
<w:style w:type="paragraph" w:styleId="Titel"><w:name w:val="Title"/></w:style>
<w:style w:type="paragraph" w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>
<w:style w:type="paragraph" w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>
<w:style w:type="paragraph" w:styleId="Own"><w:name w:val="My section"/>
  <w:basedOn w:val="berschrift2"/></w:style>
<w:style w:type="paragraph" w:styleId="Outlined"><w:name w:val="Chapter"/>
  <w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Loop"><w:name w:val="Loop"/>
  <w:basedOn w:val="Loop"/></w:style>
<w:style w:type="paragraph" w:styleId="Listed"><w:name w:val="List Number"/>
  <w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Deeper"><w:name w:val="List Bullet 2"/>
  <w:pPr><w:numPr><w:numId w:val="8"/></w:numPr></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Term"><w:name w:val="Definition Term"/></w:style>
<w:style w:type="paragraph" w:styleId="Meaning"><w:name w:val="Definition"/></w:style>
<w:style w:type="paragraph" w:styleId="Code"><w:name w:val="Source Code"/></w:style>
<w:style w:type="character" w:styleId="Up"><w:name w:val="Raised"/>
  <w:rPr><w:vertAlign w:val="superscript"/></w:rPr></w:style>
<w:style w:type="character" w:styleId="Gone"><w:name w:val="Gone"/>
  <w:basedOn w:val="Struck"/></w:style>
<w:style w:type="character" w:styleId="Struck"><w:name w:val="Struck"/>
  <w:rPr><w:strike/></w:rPr></w:style>
</w:styles>"""
NUMBERING = f"""<w:numbering {W}>
<w:abstractNum w:abstractNumId="7">
  <w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>
  <w:lvl w:ilvl="1"><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%2)"/></w:lvl>
  <w:lvl w:ilvl="2"><w:start w:val="3"/><w:numFmt w:val="upperRoman"/>
    <w:lvlText w:val="%1.%3"/></w:lvl>
</w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>
<w:num w:numId="2"><w:abstractNumId w:val="7"/>
  <w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride></w:num>
</w:numbering>"""


def r(text: str, layout: str = "") -> str:
    return f'<w:r><w:rPr>{layout}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def p(*runs: str, style: str = "", layout: str = "") -> str:
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    told = "".join(run if run.startswith("<") else r(run) for run in runs)
    return f"<w:p><w:pPr>{named}{layout}</w:pPr>{told}</w:p>"


def item(text: str, level: int, number: int = 1) -> str:
    listed = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
    return p(text, layout=listed)


UP, DOWN = '<w:vertAlign w:val="superscript"/>', '<w:vertAlign w:val="subscript"/>'


def docx(*blocks: str, **parts: str) -> Document:
    body = f"<w:document {W}><w:body>{''.join(blocks)}</w:body></w:document>"
    own = {"word/document.xml": body, "word/styles.xml": STYLES, "word/numbering.xml": NUMBERING}
    return of_parts(
        "a.docx",
        own | {f"word/{name.replace('__', '/')}.xml": each for name, each in parts.items()},
    )


def test_headings_are_found_by_their_styles_name_whatever_the_language() -> None:
    document = docx(
        p("On bees", style="Titel"),
        p("An abstract."),
        p("Method", style="berschrift1"),
        p("We watched 42 hives."),
        p("Hives", style="Own"),
        p("Of wood."),
        p("Results", style="Outlined"),
        p("They danced.", style="Loop"),
    )
    assert document.title == "On bees"
    assert sections(document) == [
        ("", "An abstract."),
        ("Method", "We watched 42 hives."),
        ("Method > Hives", "Of wood."),
        ("Results", "They danced."),
    ]


@pytest.mark.parametrize(
    ("paragraph", "text"),
    [
        (p("A flow of 10", r("5", UP), " Pa"), "A flow of 10^5 Pa"),
        (p("10", r("\u2212", UP), r("3", UP), " m"), "10^-3 m"),
        (p("10", r("5", '<w:rStyle w:val="Up"/>'), " Pa"), "10^5 Pa"),
        (p("42", r("1", UP), " litres"), "42[1] litres"),
        (p("the 5", r("th", UP), " of May"), "the 5th of May"),
        (p("v", r("max", DOWN), " is high"), "v_max is high"),
        (p("of H", r("2", DOWN), "O and"), "of H2O and"),
        (p("one", "<w:r><w:br/></w:r>", "two", "<w:r><w:tab/></w:r>", "three"), "one two three"),
        (p("It ", r("never ", "<w:strike/>"), r("always ", '<w:strike w:val="0"/>'), "runs"),
         "It always runs"),
        (p("It ", r("never ", '<w:rStyle w:val="Gone"/>'), r("not ", "<w:vanish/>"), "runs"),
         "It runs"),
        (p("It ", f"<w:del>{r('never ')}</w:del>", f"<w:moveFrom>{r('gone ')}</w:moveFrom>",
           f"<w:ins>{r('really ')}</w:ins>", f"<w:hyperlink>{r('runs')}</w:hyperlink>"),
         "It really runs"),
        (p("5 ", '<w:r><w:sym w:font="Symbol" w:char="F06D"/></w:r>', "m ",
           '<w:r><w:sym w:font="Symbol" w:char="F0B1"/></w:r>', " 2"), "5 μm ± 2"),
        (p("E = ", "<m:oMath><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num>"
           "<m:den><m:r><m:t>2</m:t></m:r></m:den></m:f></m:oMath>", "mc"), "E = (1)/(2)mc"),
        (p("東", "<w:r><w:ruby><w:rt><w:r><w:t>ひがし</w:t></w:r></w:rt><w:rubyBase>"
           "<w:r><w:t>京</w:t></w:r></w:rubyBase></w:ruby></w:r>"), "東京"),
        (f"<w:sdt><w:sdtContent>{p('Inside a control.')}</w:sdtContent></w:sdt>",
         "Inside a control."),
    ],
)  # fmt: skip
def test_a_paragraph_of_word_says_what_a_person_reads(paragraph: str, text: str) -> None:
    assert text_of(docx(paragraph)) == text


def test_lists_of_word_are_numbered_and_indented_as_they_are_shown() -> None:
    document = docx(
        item("first", 0), item("within", 1), item("also", 1), item("deep", 2), item("second", 0),
        item("anew", 1), p("By its style.", style="Listed"), p("Deeper.", style="Deeper"),
        p("Between."), item("restarted", 0, 2),
        item("no number", 0, 9), item("none", 0, 0),
    )  # fmt: skip
    assert [(b.kind, b.text) for s in document.sections for b in s.blocks] == [
        (BlockKind.LIST, "1. first\n  a) within\n  b) also\n    1.III deep\n2. second\n  a) anew\n"
         "3. By its style.\n  - Deeper."),
        (BlockKind.PARAGRAPH, "Between."),
        (BlockKind.LIST, "1. restarted\n- no number"),
        (BlockKind.PARAGRAPH, "none"),
    ]  # fmt: skip


def test_terms_and_code_of_word_keep_their_lines() -> None:
    code = p("a = 1", "<w:r><w:br/></w:r>", "  b = 2", style="Code")
    terms = (p("bee", style="Term"), p("An insect.", style="Meaning"), p("hive", style="Term"),
             p("Its home.", style="Meaning"))  # fmt: skip
    blocks = docx(*terms, code).sections[0].blocks
    assert [(b.kind, b.text) for b in blocks] == [
        (BlockKind.LIST, "bee\n    An insect."),
        (BlockKind.LIST, "hive\n    Its home."),
        (BlockKind.CODE, "a = 1\n  b = 2"),
    ]


def note(kind: str, key: str, text: str) -> str:
    return f'<w:{kind} w:id="{key}">{p(f"<w:r><w:{kind}Ref/></w:r>", text)}</w:{kind}>'


def mark(kind: str, key: str, own: str = "") -> str:
    custom = f' w:customMarkFollows="1"/><w:t>{own}</w:t>' if own else "/>"
    return f'<w:r><w:{kind}Reference w:id="{key}"{custom}</w:r>'


def test_notes_of_word_stand_at_the_end_of_the_section_that_has_their_mark() -> None:
    footnotes = "".join(note("footnote", key, f"Note {key}.") for key in ("20", "21", "22", "23"))
    document = docx(
        p("One", style="berschrift1"),
        p("42", mark("footnote", "21"), " litres", mark("endnote", "4"), "."),
        p("Cut", f"<w:del>{mark('footnote', '22')}</w:del>", mark("footnote", "20", "*"), "."),
        p("Two", mark("footnote", "23"), style="berschrift1"),
        p("End."),
        footnotes=f'<w:footnotes {W}><w:footnote w:type="separator" w:id="0"><w:p/></w:footnote>'
        f"{footnotes}</w:footnotes>",
        endnotes=f"<w:endnotes {W}>{note('endnote', '4', 'Made in Kiel.')}"
        f"{note('endnote', '5', 'Nothing leads here.')}</w:endnotes>",
    )
    assert sections(document) == [
        ("One", "42[1] litres[i].\n\nCut[*].\n\n[1] Note 21.\n\n[i] Made in Kiel.\n\n[*] Note 20."),
        ("Two[3]", "End.\n\n[3] Note 23."),
        ("Notes", "Nothing leads here."),
    ]
    assert document.sections[0].blocks[-1].kind == BlockKind.NOTE


def tc(text: str, layout: str = "") -> str:
    return f"<w:tc><w:tcPr>{layout}</w:tcPr>{p(text)}</w:tc>"


def tbl(*rows: str, layouts: tuple[str, ...] = ()) -> str:
    laid = [*layouts, *[""] * (len(rows) - len(layouts))]
    told = (f"<w:tr><w:trPr>{a}</w:trPr>{b}</w:tr>" for a, b in zip(laid, rows, strict=True))
    return f"<w:tbl>{''.join(told)}</w:tbl>"


WIDE, HEAD = '<w:gridSpan w:val="2"/>', "<w:tblHeader/>"
DOWN_FROM, ON_DOWN = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (tbl(tc("Hive") + tc("Bees"), tc("1") + tc("900")), "Hive: 1 | Bees: 900"),
        (tbl(tc("site") + tc("flow"), tc("Bonn", DOWN_FROM) + tc("41"), tc("", ON_DOWN) + tc("12")),
         "site: Bonn | flow: 41\nsite: Bonn | flow: 12"),
        (tbl(tc("part", DOWN_FROM) + tc("flow", WIDE), tc("", ON_DOWN) + tc("min") + tc("max"),
             tc("rotor") + tc("few") + tc("many"), layouts=(HEAD, HEAD)),
         "part: rotor | flow min: few | flow max: many"),
        (tbl(tc("Trials", WIDE), tc("part") + tc("hours"), tc("rotor") + tc("900")),
         "Trials\n\npart: rotor | hours: 900"),
        (tbl(tc("part") + tc("hours"), tc("rotor") + tc("900"), tc("gone") + tc("1"),
             layouts=("", "", "<w:del/>")), "part: rotor | hours: 900"),
        (tbl(tc("Only a box.")), "Only a box."),
        (tbl(tc("part") + tc("sizes"),
             tc("rotor") + f"<w:tc>{tbl(tc('a') + tc('b'), tc('1') + tc('2'))}<w:p/></w:tc>"),
         "part: rotor | sizes: a b 1 2"),
        (tbl(tc("a") + tc("b") + tc("c"), tc("1") + tc("2") + tc("3"), tc("9"),
             layouts=("", "", '<w:gridBefore w:val="2"/>')), "a: 1 | b: 2 | c: 3\nc: 9"),
    ],
)  # fmt: skip
def test_a_row_of_a_table_in_word_names_its_columns(table: str, text: str) -> None:
    assert text_of(docx(table)) == text


CHART = """<c:chartSpace xmlns:c="c" xmlns:a="a"><c:chart><c:title><c:tx><a:p><a:r><a:t>Flow of
the pump</a:t></a:r></a:p></c:tx></c:title><c:plotArea><c:barChart>{}</c:barChart>
<c:catAx><c:title><a:p><a:r><a:t>trial</a:t></a:r></a:p></c:title></c:catAx>
</c:plotArea></c:chart></c:chartSpace>"""
SERIES = """<c:ser><c:tx><c:strRef><c:strCache><c:pt idx="0"><c:v>{0}</c:v></c:pt></c:strCache>
</c:strRef></c:tx>
<c:cat><c:strCache><c:pt idx="0"><c:v>Trial 1</c:v></c:pt><c:pt idx="1"><c:v>Trial 3</c:v>
</c:pt></c:strCache></c:cat><c:val><c:numCache><c:formatCode>{1}</c:formatCode><c:pt idx="0">
<c:v>{2}</c:v></c:pt><c:pt idx="1"><c:v>{3}</c:v></c:pt></c:numCache></c:val></c:ser>"""
BARS = CHART.format(
    SERIES.format("l/min", "General", 41, 12) + SERIES.format("share", "0%", 0.5, 0.42)
)
TOLD_BARS = (
    "Flow of the pump\n\ntrial: Trial 1 | l/min: 41 | share: 50 %\n"
    "trial: Trial 3 | l/min: 12 | share: 42 %"
)
DIAGRAM = """<d:dataModel xmlns:d="d" xmlns:a="a"><d:pt><d:t><a:p><a:r><a:t>Plan</a:t></a:r></a:p>
</d:t></d:pt><d:pt><d:t><a:p><a:r><a:t>Build</a:t></a:r></a:p></d:t></d:pt></d:dataModel>"""


def test_boxes_charts_and_diagrams_of_word_are_told_after_their_paragraph() -> None:
    box = f"<w:txbxContent>{p('In a box.')}</w:txbxContent>"
    drawn = (
        '<w:r><mc:AlternateContent xmlns:mc="mc">'
        f"<mc:Choice><w:drawing>{box}</w:drawing></mc:Choice><mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    )
    chart = f'<w:r><w:drawing {R}><c:chart xmlns:c="c" r:id="c"/></w:drawing></w:r>'
    diagram = f'<w:r><w:drawing {R}><d:relIds xmlns:d="d" r:dm="d"/></w:drawing></w:r>'
    body = f"<w:document {W}><w:body>{p('Before', drawn, ' and after.')}"
    document = of_parts(
        "a.docx",
        {
            "word/document.xml": f"{body}{p('See', chart, diagram)}</w:body></w:document>",
            "word/_rels/document.xml.rels": relations(
                c="charts/chart1.xml", d="diagrams/data1.xml"
            ),
            "word/charts/chart1.xml": BARS,
            "word/diagrams/data1.xml": DIAGRAM,
        },
    )
    told = f"Before and after.\n\nIn a box.\n\nSee\n\n{TOLD_BARS}\n\n- Plan\n- Build"
    assert text_of(document) == told


def test_a_small_file_that_unpacks_to_far_more_is_refused() -> None:
    with pytest.raises(SourceError, match="unpacks to more than 100 MB"):
        of_parts("a.docx", {"word/document.xml": " " * 101_000_000})


def test_styles_that_are_based_on_one_another_take_time_that_grows_with_them() -> None:
    based = '<w:style w:styleId="s{}"><w:basedOn w:val="s{}"/></w:style>'
    chained = "".join(based.format(i, i + 1) for i in range(2000))
    began = time.process_time()
    document = of_parts(
        "a.docx",
        {
            "word/document.xml": f"<w:document {W}><w:body>{p('x', style='s0') * 2000}</w:body>"
            "</w:document>",
            "word/styles.xml": f"<w:styles {W}>{chained}</w:styles>",
        },
    )
    assert len(split_passages(text_of(document))) > 10
    assert time.process_time() - began < 2.5


def test_an_entity_in_the_xml_reads_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hunter2")
    entity = f'<!DOCTYPE d [<!ENTITY s SYSTEM "file://{tmp_path}/secret.txt">]>'
    body = f"{entity}<w:document {W}><w:body>{p('A &s; B')}</w:body></w:document>"
    assert "hunter2" not in f"{of_parts('a.docx', {'word/document.xml': body})}"


# Slides


def shape(*paragraphs: str, kind: str = "") -> str:
    named = f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else ""
    return f"<p:sp>{named}{''.join(f'<a:p>{each}</a:p>' for each in paragraphs)}</p:sp>"


def t(text: str, layout: str = "") -> str:
    return f"<a:r><a:rPr {layout}/><a:t>{text}</a:t></a:r>"


def pptx(*slides: str, **parts: str) -> Document:
    numbers = range(1, len(slides) + 1)
    listed = "".join(f'<p:sldId id="{n + 50}" r:id="s{n}"/>' for n in reversed(numbers))
    own = {
        "ppt/presentation.xml": f'<p xmlns:p="p" {R}>{listed}</p>',
        "ppt/_rels/presentation.xml.rels": relations(
            **{f"s{n}": f"slides/slide{n}.xml" for n in numbers}
        ),
        **{
            f"ppt/slides/slide{n}.xml": f'<p:sld xmlns:p="p" xmlns:a="a" {R}>{each}</p:sld>'
            for n, each in enumerate(slides, start=1)
        },
    }
    return of_parts("a.pptx", own | {name.replace("__", "/"): each for name, each in parts.items()})


def test_slides_are_read_in_the_order_of_their_list_each_with_its_notes() -> None:
    notes = f'<n xmlns:p="p" xmlns:a="a">{shape(t("Slowly."))}{shape(t("7"), kind="sldNum")}</n>'
    document = pptx(
        shape(t("Wasps"), kind="title") + f"<p:grpSp>{shape(t('They sting.'))}</p:grpSp>",
        shape(t("Bees"), kind="title") + shape(t("They dance."), t("They rest.")),
        **{
            "ppt/slides/_rels/slide2.xml.rels": relations(n="../notesSlides/notesSlide1.xml"),
            "ppt/notesSlides/notesSlide1.xml": notes,
        },
    )
    assert document.title == "slide 1: Bees"
    assert sections(document) == [
        ("slide 1: Bees", "Bees\n\nThey dance.\n\nThey rest.\n\nSlowly."),
        ("slide 2: Wasps", "Wasps\n\nThey sting."),
    ]


@pytest.mark.parametrize(
    ("paragraph", "text"),
    [
        (t("first line") + "<a:br/>" + t("second"), "first line second"),
        (t("10") + t("5", 'baseline="30000"') + t(" Pa"), "10^5 Pa"),
        (t("42") + t("1", 'baseline="30000"') + t(" litres"), "42[1] litres"),
        (t("v") + t("max", 'baseline="-25000"') + t(" is"), "v_max is"),
        (t("not ", 'strike="sngStrike"') + t("so", 'strike="noStrike"'), "so"),
        ('<a14:m xmlns:a14="a14" xmlns:m="m"><m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e>'
         "<m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></a14:m>", "x^2"),
    ],
)  # fmt: skip
def test_a_paragraph_of_a_slide_says_what_a_person_reads(paragraph: str, text: str) -> None:
    assert text_of(pptx(shape(paragraph))) == text


def test_paragraphs_with_bullets_or_numbers_are_lists_and_others_are_none() -> None:
    def listed(text: str, sign: str, level: int = 0) -> str:
        return f'<a:pPr lvl="{level}"><a:{sign}/></a:pPr>{t(text)}'

    letters = 'buAutoNum type="alphaLcParenR"'
    own = shape(
        t("Plain."),
        listed("one", 'buChar char="•"'),
        listed("two", letters, 1),
        listed("three", letters, 1),
        listed("four", 'buAutoNum type="arabicPeriod"'),
        listed("five", "buNone"),
    )
    content = shape(
        t("first"), listed("none", "buNone"), f'<a:pPr lvl="1"/>{t("second")}', kind="obj"
    )
    assert text_of(pptx(own + content)) == (
        "Plain.\n\n- one\n  a) two\n  b) three\n1. four\n\nfive\n\n- first\n\nnone\n\n  - second"
    )


def test_tables_charts_and_diagrams_of_slides_are_told() -> None:
    def cell(text: str, layout: str = "") -> str:
        return f"<a:tc {layout}><a:p>{t(text)}</a:p></a:tc>"

    rows = (
        cell("Trials", 'gridSpan="2"') + cell("", 'hMerge="1"'),
        cell("site") + cell("flow"),
        cell("Bonn", 'rowSpan="2"') + cell("41"),
        cell("", 'vMerge="1"') + cell("12"),
    )
    told = "".join(f"<a:tr>{row}</a:tr>" for row in rows)
    table = f"<a:graphicData><a:tbl>{told}</a:tbl></a:graphicData>"
    chart = '<a:graphicData><c:chart xmlns:c="c" r:id="c"/></a:graphicData>'
    diagram = '<a:graphicData><d:relIds xmlns:d="d" r:dm="d"/></a:graphicData>'
    document = pptx(
        table + chart + diagram,
        **{
            "ppt/slides/_rels/slide1.xml.rels": relations(
                c="../charts/c.xml", d="../diagrams/d.xml"
            ),
            "ppt/charts/c.xml": BARS,
            "ppt/diagrams/d.xml": DIAGRAM,
        },
    )
    assert text_of(document) == (
        f"Trials\n\nsite: Bonn | flow: 41\nsite: Bonn | flow: 12\n\n{TOLD_BARS}\n\n- Plan\n- Build"
    )


def test_categories_within_others_name_both() -> None:
    def level(*points: tuple[int, str]) -> str:
        told = (f'<c:pt idx="{n}"><c:v>{text}</c:v></c:pt>' for n, text in points)
        return f"<c:lvl>{''.join(told)}</c:lvl>"

    inner, outer = level((0, "CA"), (1, "NY"), (2, "BE")), level((0, "USA"), (2, "DE"))
    values = "".join(f'<c:pt idx="{n}"><c:v>{n + 7}</c:v></c:pt>' for n in range(3))
    series = (
        f"<c:ser><c:cat><c:multiLvlStrCache>{inner}{outer}</c:multiLvlStrCache></c:cat>"
        f"<c:val><c:numCache>{values}</c:numCache></c:val></c:ser>"
    )
    document = pptx(
        '<a:graphicData><c:chart xmlns:c="c" r:id="c"/></a:graphicData>',
        **{
            "ppt/slides/_rels/slide1.xml.rels": relations(c="../charts/c.xml"),
            "ppt/charts/c.xml": CHART.format(series),
        },
    )
    head = "Flow of the pump"
    told = [
        f"trial: {each} | {head}: {n}" for n, each in enumerate(("USA CA", "USA NY", "DE BE"), 7)
    ]
    assert text_of(document).split("\n\n")[1].splitlines() == told


def test_a_scatter_chart_has_its_own_places_for_each_series() -> None:
    def series(name: str, x: int, y: int) -> str:
        point = "<c:numCache><c:pt idx='0'><c:v>{}</c:v></c:pt></c:numCache>".format
        return (
            f"<c:ser><c:tx><c:v>{name}</c:v></c:tx><c:xVal>{point(x)}</c:xVal>"
            f"<c:yVal>{point(y)}</c:yVal></c:ser>"
        )

    chart = '<a:graphicData><c:chart xmlns:c="c" r:id="c"/></a:graphicData>'
    document = pptx(
        chart,
        **{
            "ppt/slides/_rels/slide1.xml.rels": relations(c="../charts/c.xml"),
            "ppt/charts/c.xml": CHART.format(series("A", 1, 10) + series("B", 2, 20)),
        },
    )
    assert text_of(document).split("\n\n")[1:] == ["trial: 1 | A: 10", "trial: 2 | B: 20"]


# Workbooks


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        ("0.42", "0%", "42 %"),
        ("0.4256", "0.0%", "42.6 %"),
        ("1.25", "[h]:mm", "30:00"),
        ("1.25", "[mm]:ss", "1800:00"),
        ("-0.5", "[h]:mm", "-12:00"),
        ("0.5", "h:mm", "12:00"),
        ("1234.5", '#,##0.00 "EUR"', "1,234.50 EUR"),
        ("-12.5", '"$"#,##0.00', "-$12.50"),
        ("12.5", r"_-* #,##0.00\ [$€-407]_-;-* #,##0.00\ [$€-407]_-", "12.50 €"),
        ("-5", "#,##0;(#,##0)", "(5)"),
        ("-5", "#,##0;[Red]#,##0", "-5"),
        ("0", '0;-0;"none"', "none"),
        ("12", '0.0 "l/min"', "12.0 l/min"),
        ("12", 'General" l"', "12 l"),
        ("2.5", "0", "3"),
        ("1.005", "0.00", "1.01"),
        ("5", "000", "005"),
        ("1", "0.##", "1"),
        ("1.5", "0.##", "1.5"),
        ("1234567", '#,##0,"k"', "1,235k"),
        ("1234567", "0.00E+00", "1.23E+06"),
        ("1.25", "# ?/?", "1.25"),
        ("0.30000000000000004", "", "0.3"),
        ("45063", "dd/mm/yyyy", "2023-05-17"),
        ("45063", "dd.mm.yyyy", "17.05.2023"),
        ("45054", "d.m.yyyy;@", "8.5.2023"),
        ("45063.604166667", "dd.mm.yyyy hh:mm", "17.05.2023 14:30"),
        ("45063", "dd.mm.yy", "2023-05-17"),
        ("45063.604166667", "[$-407]d. mmmm yyyy h:mm", "2023-05-17 14:30"),
        ("45063", "mmm yy", "2023-05"),
        ("59", "yyyy-mm-dd", "1900-02-28"),
        ("42", "@", "42"),
        ("1e400", "0.00", "1e400"),
        ("99999999999", "yyyy-mm-dd", "99999999999"),
        ("P-101", "0.00", "P-101"),
        ("1", '"', "1"),
    ],
)
def test_a_number_is_told_as_the_workbook_shows_it(value: str, code: str, shown: str) -> None:
    assert show(value, code) == shown


def test_days_may_be_counted_since_1904() -> None:
    assert show("43601", "yyyy-mm-dd", since_1904=True) == "2023-05-17"


CODES = ("General", "dd/mm/yyyy", "0%", "[h]:mm", '#,##0.00 "EUR"')
XLSX_STYLES = (
    "<s><numFmts>"
    + "".join(f"<numFmt numFmtId='{n + 164}' formatCode='{code}'/>" for n, code in enumerate(CODES))
    + "</numFmts><fonts><font/><font><strike/></font></fonts><cellXfs>"
    + "".join(f'<xf numFmtId="{n + 164}" fontId="0"/>' for n in range(len(CODES)))
    + '<xf numFmtId="9"/><xf numFmtId="0" fontId="1"/></cellXfs></s>'
)


def c(place: str, value: object, style: int = 0, kind: str = "n") -> str:
    if isinstance(value, str) and kind == "n":
        return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'
    return f'<c r="{place}" s="{style}" t="{kind}"><v>{value}</v></c>'


def row(number: int, *cells: str) -> str:
    return f'<row r="{number}">{"".join(cells)}</row>'


def xlsx(*rows: str, merged: tuple[str, ...] = (), **parts: str) -> Document:
    regions = "".join(f'<mergeCell ref="{each}"/>' for each in merged)
    own = {
        "xl/workbook.xml": f'<w {R}><sheet name="Trials" r:id="s"/></w>',
        "xl/_rels/workbook.xml.rels": relations(s="/xl/worksheets/sheet1.xml"),
        "xl/styles.xml": XLSX_STYLES,
        "xl/worksheets/sheet1.xml": f"<s><sheetData>{''.join(rows)}</sheetData>"
        f"<mergeCells>{regions}</mergeCells></s>",
    }
    return of_parts("a.xlsx", own | parts)


def test_a_workbook_is_told_with_its_title_merged_cells_and_formats() -> None:
    document = xlsx(
        row(1, c("A1", "Trials of P-101")),
        row(3, c("A3", "region"), c("B3", "date"), c("C3", "ok"), c("D3", "time"), c("E3", "price"),
            c("F3", "new")),
        row(4, c("A4", "North"), c("B4", 45063, 1), c("C4", 0.42, 2), c("D4", 1.25, 3),
            c("E4", 1234.5, 4), c("F4", 1, 0, "b")),
        row(5, c("B5", 45064, 1), c("C5", 0.5, 5), c("E5", 7, 6)),
        merged=("A1:F1", "A4:A5"),
    )  # fmt: skip
    assert sections(document) == [
        (
            "Trials > rows 4-5",
            "Trials of P-101\n\nregion: North | date: 2023-05-17 | ok: 42 % | time: 30:00 | "
            "price: 1,234.50 EUR | new: TRUE\nregion: North | date: 2023-05-18 | ok: 50 %",
        )
    ]
    assert document.note == ""


def test_shared_texts_keep_raised_digits_and_lose_what_is_struck_and_read_aloud() -> None:
    up = '<r><t>10</t></r><r><rPr><vertAlign val="superscript"/></rPr><t>5</t></r><r><t> Pa</t></r>'
    struck = "<r><rPr><strike/></rPr><t>old </t></r><r><t>new</t></r><rPh><t>aloud</t></rPh>"
    document = xlsx(
        row(1, c("A1", 0, 0, "s"), c("C1", 1, 0, "s")),
        **{"xl/sharedStrings.xml": f"<s><si>{up}</si><si>{struck}</si></s>"},
    )
    assert text_of(document) == "10^5 Pa | new"


def test_a_formula_without_a_kept_value_is_told_in_the_note() -> None:
    formula = '<c r="{}"><f>AVERAGE(A1:A2)</f><v></v></c>'.format
    document = xlsx(
        row(1, c("A1", "flow"), c("B1", "mean")),
        row(2, c("A2", 41), '<c r="B2"><f>A2</f><v>41</v></c>'),
        row(3, c("A3", 12), formula("B3"), '<c r="C3" t="str"><f>""</f><v></v></c>'),
    )
    assert text_of(document) == "flow: 41 | mean: 41\nflow: 12"
    assert "Trials!B3" in document.note
    assert "C3" not in document.note


def test_comments_charts_and_boxes_of_a_sheet_are_told_behind_its_rows() -> None:
    drawing = f'<d:wsDr xmlns:d="d" xmlns:a="a" {R}>{{}}</d:wsDr>'.format
    box = "<d:sp><d:txBody><a:p><a:r><a:t>In a box.</a:t></a:r></a:p></d:txBody></d:sp>"
    document = xlsx(
        row(1, c("A1", "flow"), c("B1", "x")),
        row(2, c("A2", 41), c("B2", 1)),
        **{
            "xl/worksheets/_rels/sheet1.xml.rels": relations(
                c="../comments1.xml", d="../drawings/drawing1.xml"
            ),
            "xl/comments1.xml": '<comments><comment ref="A2"><text><r><t>worn out</t></r></text>'
            "</comment></comments>",
            "xl/drawings/drawing1.xml": drawing(f'{box}<c:chart xmlns:c="c" r:id="c"/>'),
            "xl/drawings/_rels/drawing1.xml.rels": relations(c="../charts/chart1.xml"),
            "xl/charts/chart1.xml": BARS,
        },
    )
    told = ["flow: 41 | x: 1", "comment on A2: worn out", "In a box.", *TOLD_BARS.split("\n\n")]
    assert text_of(document).split("\n\n") == told


def test_a_region_over_the_whole_sheet_takes_no_more_time_than_its_rows() -> None:
    rows = [row(n, c(f"A{n}", "all" if n == 1 else ""), c(f"B{n}", n)) for n in range(1, 3000)]
    began = time.process_time()
    document = xlsx(*rows, row(1_048_576, c("A1048576", "last")), merged=("A1:XFD1048576",) * 3)
    assert document.sections[-1].text.endswith("last")
    assert sum(len(section.text) for section in document.sections) < 40_000_000
    assert time.process_time() - began < 4


def test_a_sheet_of_sixteen_thousand_columns_is_read_whole() -> None:
    cells = "".join(f'<c t="inlineStr"><is><t>c{n}</t></is></c>' for n in range(16_384))
    values = "".join(f"<c><v>{n}</v></c>" for n in range(16_384))
    text = text_of(xlsx(f"<row>{cells}</row>", f"<row>{values}</row>", row(3, c("AAAA3", "far"))))
    assert text.startswith("c0: 0 | c1: 1 | ")
    assert text.splitlines()[0].endswith(" | c16383: 16383")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("a.docx", "word/document.xml"),
        ("a.pptx", "ppt/presentation.xml"),
        ("a.xlsx", "xl/workbook.xml"),
    ],
)
def test_a_damaged_package_is_refused_by_name(name: str, part: str) -> None:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as package:
        package.writestr(part, f"<w {R}>{'<x/>' * 5000}</w>")
    whole = packed.getvalue()
    flipped = whole[:60] + bytes(255 - byte for byte in whole[60:90]) + whole[90:]
    for content in (whole[: len(whole) // 2], flipped):
        with pytest.raises(SourceError, match=name):
            read(Input.of_bytes(name, content))
