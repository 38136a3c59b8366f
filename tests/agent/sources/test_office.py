"""Files of office programs, written here part by part in the XML that those write.

What all kinds of files have alike is read in tests/benchmarks/test_reading.py.
"""

import time
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from rubricem.agent.sources.readers import read
from rubricem.agent.sources.readers.document import BlockKind, Document, Input
from rubricem.agent.sources.readers.office.formats import show
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


def styled(kind: str, key: str, name: str, more: str = "") -> str:
    return f'<w:style w:type="{kind}" w:styleId="{key}"><w:name w:val="{name}"/>{more}</w:style>'


UP = '<w:vertAlign w:val="superscript"/>'
LISTED = '<w:pPr><w:numPr><w:numId w:val="{}"/></w:numPr></w:pPr>'.format
STYLES = f"<w:styles {W}>" + "".join(
    styled(kind, *each)
    for kind, several in {
        "paragraph": [
            ("Titel", "Title"), ("berschrift1", "heading 1"), ("berschrift2", "heading 2"),
            ("Own", "My section", '<w:basedOn w:val="berschrift2"/>'),
            ("Outlined", "Chapter", '<w:pPr><w:outlineLvl w:val="0"/></w:pPr>'),
            ("Loop", "Loop", '<w:basedOn w:val="Loop"/>'),
            ("Listed", "List Number", LISTED(1)), ("Deeper", "List Bullet 2", LISTED(8)),
            ("Unseen", "Unseen", "<w:rPr><w:vanish/></w:rPr>"),
            ("Term", "Definition Term"), ("Meaning", "Definition"), ("Code", "Source Code"),
        ],
        "character": [
            ("Up", "Raised", f"<w:rPr>{UP}</w:rPr>"),
            ("Gone", "Gone", '<w:basedOn w:val="Struck"/>'),
            ("Struck", "Struck", "<w:rPr><w:strike/></w:rPr>"),
        ],
    }.items()
    for each in several
) + "</w:styles>"  # fmt: skip


def lvl(level: int, form: str, text: str, start: int = 1) -> str:
    told = f'<w:start w:val="{start}"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/>'
    return f'<w:lvl w:ilvl="{level}">{told}</w:lvl>'


NUMBERING = f"""<w:numbering {W}><w:abstractNum w:abstractNumId="7">
{lvl(0, "decimal", "%1.")}{lvl(1, "lowerLetter", "%2)")}{lvl(2, "upperRoman", "%1.%3", 3)}
</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>
<w:num w:numId="2"><w:abstractNumId w:val="7"/><w:lvlOverride w:ilvl="0">
<w:startOverride w:val="1"/></w:lvlOverride></w:num></w:numbering>"""


def r(text: str, layout: str = "") -> str:
    return f'<w:r><w:rPr>{layout}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def p(*runs: str, style: str = "", layout: str = "") -> str:
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    told = "".join(run if run.startswith("<") else r(run) for run in runs)
    return f"<w:p><w:pPr>{named}{layout}</w:pPr>{told}</w:p>"


def item(text: str, level: int, number: int = 1) -> str:
    listed = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
    return p(text, layout=listed)


def docx(*blocks: str, **parts: str) -> Document:
    body = f"<w:document {W}><w:body>{''.join(blocks)}</w:body></w:document>"
    own = {"word/document.xml": body, "word/styles.xml": STYLES, "word/numbering.xml": NUMBERING}
    beside = {f"word/{n}.{'rels' if '/' in n else 'xml'}": each for n, each in parts.items()}
    return of_parts("a.docx", own | beside)


def test_the_result_of_a_field_within_the_code_of_another_one_is_no_text() -> None:
    begin, then, end = (
        f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")
    )
    inner = f"{begin}{r('PAGE')}{then}{r('9')}{end}"
    pay = p("Pay ", begin, inner, then, r("31"), end, " EUR.")
    document = docx(pay, p(begin, "open"), p("hidden", style="Unseen"), p("on"))
    assert text_of(document) == "Pay 31 EUR.\n\non"


def test_a_page_that_stands_in_for_paragraphs_is_read_and_what_is_no_page_is_named() -> None:
    parts = {"word/_rels/document.xml.rels": relations(a="chunk.htm", b="chunk.rtf"),
             "word/document.xml": f"<w:document {W}><w:body>{p('Before.')}"
             '<w:altChunk w:id="a"/><w:altChunk w:id="b"/></w:body></w:document>',
             "word/chunk.htm": "<p>It gave 42<sup>1</sup> l.</p><ul><li>one</li></ul>"}  # fmt: skip
    told = text_of(of_parts("a.docx", parts))
    assert told == "Before.\n\nIt gave 42[1] l.\n\n- one\n\n[chunk.rtf, which is not read]"


def test_headings_are_told_with_the_numbers_that_a_list_gives_them() -> None:
    listed = '<w:numPr><w:ilvl w:val="{}"/><w:numId w:val="1"/></w:numPr>'.format
    document = docx(
        p("Scope", style="berschrift1", layout=listed(0)), p("In it."),
        p("Law", style="berschrift1", layout=listed(0)), item("clause", 1),
    )  # fmt: skip
    assert sections(document) == [("1. Scope", "In it."), ("2. Law", "  a) clause")]


def test_headings_are_found_by_their_styles_name_whatever_the_language() -> None:
    document = docx(
        p("On bees", style="Titel"), p("An abstract."), p("Method", style="berschrift1"),
        p("We watched 42 hives."), p("Hives", style="Own"), p("Of wood."),
        p("Results", style="Outlined"), p("They danced.", style="Loop"),
    )  # fmt: skip
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
        (p("10", r("5", '<w:rStyle w:val="Up"/>'), " Pa"), "10^5 Pa"),
        (p("10", r("5", '<w:position w:val="6"/>'), r(" m", '<w:position w:val="-1"/>')), "10^5 m"),
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
        endnotes=f"<w:endnotes {W}>{note('endnote', '4', 'Made in Kiel.')}</w:endnotes>",
    )
    assert sections(document) == [
        ("One", "42[1] litres[i].\n\nCut[*].\n\n[1] Note 21.\n\n[i] Made in Kiel.\n\n[*] Note 20."),
        ("Two[3]", "End.\n\n[3] Note 23."),
    ]
    assert document.sections[0].blocks[-1].kind == BlockKind.NOTE


def test_margins_and_comments_of_word_are_notes() -> None:
    page = "<w:r><w:instrText> PAGE </w:instrText></w:r>"
    document = docx(
        p("Worn", '<w:r><w:commentReference w:id="3"/></w:r>'), p("In June.", style="berschrift1"),
        p("Later."),
        header1=f"<w:hdr {W}>{p('Document 77')}{p('Page ', page)}</w:hdr>",
        header2=f"<w:hdr {W}>{p('Document 77')}</w:hdr>",
        footer1=f"<w:ftr {W}>{p('Secret')}</w:ftr>",
        comments=f'<w:c {W}><w:comment w:id="3" w:author="Ann">{p("No.")}</w:comment></w:c>',
        **{"_rels/document.xml": relations(a="header1.xml", b="header2.xml", c="footer1.xml")},
    )  # fmt: skip
    assert text_of(document) == (
        "Worn\n\n[footer] Secret\n\n[header] Document 77\n\n[comment Ann] No.\n\nLater."
    )


def tc(text: str) -> str:
    return f"<w:tc>{p(text)}</w:tc>"


def tbl(*rows: str, layouts: tuple[str, ...] = ()) -> str:
    laid = [*layouts, *[""] * (len(rows) - len(layouts))]
    told = (f"<w:tr><w:trPr>{a}</w:trPr>{b}</w:tr>" for a, b in zip(laid, rows, strict=True))
    return f"<w:tbl>{''.join(told)}</w:tbl>"


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (tbl(tc("part") + tc("hours"), tc("rotor") + tc("900"), tc("gone") + tc("1"),
             layouts=("", "", "<w:del/>")), "part: rotor | hours: 900"),
        (tbl(tc("Only a box.")), "Only a box."),
        (tbl(tc("part") + tc("sizes"),
             tc("rotor") + f"<w:tc>{tbl(tc('a') + tc('b'), tc('1') + tc('2'))}<w:p/></w:tc>"),
         "part: sizes\nrotor: a: 1, b: 2"),
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
POINT = '<c:pt idx="{}"><c:v>{}</c:v></c:pt>'.format


def points(*told: object) -> str:
    return "".join(POINT(n, text) for n, text in enumerate(told) if text)


def series(name: str, code: str, *values: float) -> str:
    return (
        f"<c:ser><c:tx><c:strCache>{points(name)}</c:strCache></c:tx><c:cat>"
        f"{points('Trial 1', 'Trial 3')}</c:cat><c:val><c:numCache>"
        f"<c:formatCode>{code}</c:formatCode>{points(*values)}</c:numCache></c:val></c:ser>"
    )


BARS = CHART.format(series("l/min", "General", 41, 12) + series("share", "0%", 0.5, 0.42))
TOLD_BARS = (
    "Flow of the pump\n\ntrial: Trial 1 | l/min: 41 | share: 50 %\n"
    "trial: Trial 3 | l/min: 12 | share: 42 %"
)
DIAGRAM = """<d:dataModel xmlns:d="d" xmlns:a="a"><d:pt><d:t><a:p><a:r><a:t>Plan</a:t></a:r></a:p>
</d:t></d:pt><d:pt><d:t><a:p><a:r><a:t>Build</a:t></a:r></a:p></d:t></d:pt></d:dataModel>"""


DRAWN = {"charts/c.xml": BARS, "diagrams/d.xml": DIAGRAM}
CHARTED, DIAGRAMMED = '<c:chart xmlns:c="c" r:id="c"/>', '<d:relIds xmlns:d="d" r:dm="d"/>'


def test_boxes_charts_and_diagrams_of_word_are_told_after_their_paragraph() -> None:
    box = f"<w:txbxContent>{p('In a box.')}</w:txbxContent>"
    drawn = (
        '<w:r><mc:AlternateContent xmlns:mc="mc"><mc:Choice><w:drawing>'
        f"{box}</w:drawing></mc:Choice><mc:Fallback><w:pict>{box}</w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r>"
    )
    anchored = f"<w:r><w:drawing {R}>{CHARTED}{DIAGRAMMED}</w:drawing></w:r>"
    body = f"{p('Before', drawn, ' and after.')}{p('See', anchored)}"
    document = of_parts(
        "a.docx",
        {
            "word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": relations(c="charts/c.xml", d="diagrams/d.xml"),
            **{f"word/{part}": each for part, each in DRAWN.items()},
        },
    )
    told = f"Before and after.\n\nIn a box.\n\nSee\n\n{TOLD_BARS}\n\n- Plan\n- Build"
    assert text_of(document) == told


def test_a_small_file_that_unpacks_to_far_more_is_refused() -> None:
    with pytest.raises(SourceError, match="unpacks to more than 100 MB"):
        of_parts("a.docx", {"word/document.xml": " " * 101_000_000})


def test_a_paragraph_of_nothing_but_superscripts_takes_time_that_grows_with_it() -> None:
    began = time.process_time()
    document = docx(p(*[r("w"), r("2", UP)] * 10_000))
    assert text_of(document) == ("w^2 " * 10_000).strip()
    assert time.process_time() - began < 6


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
    ids = {f"s{n}": f"slides/slide{n}.xml" for n in numbers}
    own = {
        "ppt/presentation.xml": f'<p xmlns:p="p" {R}>{listed}</p>',
        "ppt/_rels/presentation.xml.rels": relations(**ids),
    }
    for part, each in zip(ids.values(), slides, strict=True):
        own[f"ppt/{part}"] = f'<p:sld xmlns:p="p" xmlns:a="a" {R}>{each}</p:sld>'
    return of_parts("a.pptx", own | parts)


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


def test_a_slide_that_is_not_shown_is_told_of_and_a_picture_by_its_description() -> None:
    picture = '<p:pic><p:cNvPr descr="A seal"/></p:pic>'
    picture += shape('<p:cNvPr hidden="1"/>' + t("Secret."))
    hidden = f'<p:sld xmlns:p="p" xmlns:a="a" show="0">{shape(t("Secret."))}</p:sld>'
    document = pptx(picture, "", "", **{"ppt/slides/slide2.xml": hidden})
    assert text_of(document) == "[image: A seal]"
    assert document.note == "read without what is hidden in it: 1 slide"
    body = p("Seen.", '<w:r><w:drawing><wp:docPr xmlns:wp="wp" descr="A seal"/></w:drawing></w:r>')
    assert text_of(docx(body)) == "Seen.\n\n[image: A seal]"


def test_a_paragraph_of_a_slide_says_what_a_person_reads() -> None:
    run = "<m:r><m:t>{}</m:t></m:r>".format
    formula = f"<m:sSup><m:e>{run('x')}</m:e><m:sup>{run(2)}</m:sup></m:sSup>"
    struck = t("not ", 'strike="sngStrike"') + t("so: ", 'strike="noStrike"')
    held = f'<a14:m xmlns:a14="a14" xmlns:m="m"><m:oMath>{formula}</m:oMath></a14:m>'
    assert text_of(pptx(shape(struck + held))) == "so: x^2"


def test_paragraphs_with_bullets_or_numbers_are_lists_and_others_are_none() -> None:
    def listed(text: str, sign: str, level: int = 0) -> str:
        return f'<a:pPr lvl="{level}"><a:{sign}/></a:pPr>{t(text)}'

    letters = 'buAutoNum type="alphaLcParenR"'
    own = (t("Plain."), listed("one", 'buChar char="•"'), listed("two", letters, 1),
           listed("three", letters, 1), listed("four", 'buAutoNum type="arabicPeriod" startAt="4"'),
           listed("five", "buNone"))  # fmt: skip
    content = t("first"), listed("none", "buNone"), f'<a:pPr lvl="1"/>{t("second")}'
    assert text_of(pptx(shape(*own) + shape(*content, kind="obj"))) == (
        "Plain.\n\n- one\n  a) two\n  b) three\n4. four\n\nfive\n\n- first\n\nnone\n\n  - second"
    )


@pytest.mark.parametrize(
    ("series", "told"),
    [
        ("<c:ser><c:cat><c:multiLvlStrCache><c:lvl>" + points("CA", "NY", "BE") + "</c:lvl><c:lvl>"
         + points("USA", "", "DE") + "</c:lvl></c:multiLvlStrCache></c:cat><c:val><c:numCache>"
         + points(7, 8, 9) + "</c:numCache></c:val></c:ser>",
         "trial: USA CA | Flow of the pump: 7\ntrial: USA NY | Flow of the pump: 8\n"
         "trial: DE BE | Flow of the pump: 9"),
        ("".join(f"<c:ser><c:tx><c:v>{name}</c:v></c:tx><c:xVal>{points(x)}</c:xVal>"
                 f"<c:yVal>{points(y)}</c:yVal></c:ser>" for name, x, y in ("A1a", "B2b")),
         "trial: 1 | A: a\n\ntrial: 2 | B: b"),
    ],
)  # fmt: skip
def test_each_value_of_a_chart_names_its_place(series: str, told: str) -> None:
    document = pptx(
        f"<a:graphicData>{CHARTED}</a:graphicData>",
        **{
            "ppt/slides/_rels/slide1.xml.rels": relations(c="../charts/c.xml"),
            "ppt/charts/c.xml": CHART.format(series),
        },
    )
    assert text_of(document) == f"Flow of the pump\n\n{told}"


# Workbooks


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        ("0.42", "0%", "42 %"), ("1.25", "[h]:mm", "30:00"), ("1.25", "[mm]:ss", "1800:00"),
        ("-0.5", "[h]:mm", "-12:00"), ("1234.5", '#,##0.00 "EUR"', "1,234.50 EUR"),
        ("-12.5", '"$"#,##0.00', "-$12.50"),
        ("12.5", r"_-* #,##0.00\ [$€-407]_-;-* #,##0.00\ [$€-407]_-", "12.50 €"),
        ("-5", "#,##0;(#,##0)", "(5)"), ("-5", "#,##0;[Red]#,##0", "-5"),
        ("0", '0;-0;"none"', "none"), ("12", 'General" l"', "12 l"), ("1.005", "0.00", "1.01"),
        ("5", "000", "005"), ("1", "0.##", "1"), ("1234567", '#,##0,"k"', "1,235k"),
        ("1234567", "0.00E+00", "1.23E+06"), ("1.25", "# ?/?", "1 1/4"), ("1e-07", "", "1E-07"),
        ("0.30000000000000004", "", "0.3"), ("45063", "dd/mm/yyyy", "2023-05-17"),
        ("3.0", "", "3"), ("1.5E7", "General", "15000000"),
        ("45063", "dd.mm.yyyy", "17.05.2023"), ("5551234567", "(000) 000-0000", "(555) 123-4567"),
        ("1234567.5", "#\\ ##0.00", "1234 567.50"), ("5", "#\\ ##0.00", "5.00"),
        ("45063.604166667", "dd.mm.yyyy hh:mm", "17.05.2023 14:30"),
        ("45063.604166667", "[$-407]d. mmmm yyyy h:mm", "2023-05-17 14:30"),
        ("45063", "[$-409]d-mmm-yy", "2023-05-17"), ("8765", ";;;", ""), ("0", "d-m", "1899-12-30"),
        ("45063", "mmm yy", "2023-05"), ("59", "yyyy-mm-dd", "1900-02-28"), ("42", "@", "42"),
        ("1e400", "0.00", "1e400"), ("99999999999", "yyyy-mm-dd", "99999999999"), ("1", '"', "1"),
    ],
)  # fmt: skip
def test_a_number_is_told_as_the_workbook_shows_it(value: str, code: str, shown: str) -> None:
    assert show(value, code) == shown
    assert show("43601", "yyyy-mm-dd", since_1904=True) == "2023-05-17"


XLSX_STYLES = (
    '<s><fonts><font/><font><strike/></font></fonts><cellXfs><xf/><xf fontId="1"/></cellXfs></s>'
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


def test_a_sheet_loses_what_is_struck_and_what_is_read_aloud() -> None:
    struck = "<r><rPr><strike/></rPr><t>old </t></r><r><t>new</t></r><rPh><t>aloud</t></rPh>"
    document = xlsx(
        row(1, c("A1", "text"), c("C1", "more"), c("D1", "flow"), c("E1", "ok")),
        row(2, c("A2", 0, 0, "s"), c("C2", 7, 1), c("D2", 12), c("E2", 1, 0, "b")),
        row(3, c("A3", 9, 0, "s")),
        **{"xl/sharedStrings.xml": f"<s><si>{struck}</si></s>"},
    )
    assert text_of(document) == "text: new | flow: 12 | ok: TRUE"
    assert document.note == "read without what is hidden in it: 1 lost text"


def test_what_nobody_sees_of_a_workbook_is_left_out_and_told() -> None:
    cols = '<cols><col min="2" max="2" width="9" hidden="1"/></cols><sheetData>'
    rows = [row(n, c("A1", n), c("B1", 10 * n), c("C1", 100 * n)) for n in range(1, 4)]
    rows[1] = rows[1].replace("<row ", '<row hidden="1" ')
    document = xlsx(**{"xl/worksheets/sheet1.xml": f"<s>{cols}{''.join(rows)}</sheetData></s>"})
    assert text_of(document) == "1 |  | 100\n3 |  | 300"
    assert document.note == "read without what is hidden in it: 1 column, 1 row"


def test_a_formula_without_a_kept_value_is_told_in_the_note() -> None:
    formula = '<c r="{}"><f>AVERAGE(A1:A2)</f><v></v></c>'.format
    document = xlsx(
        row(1, c("A1", "flow"), c("B1", "mean")),
        row(2, c("A2", 41), '<c r="B2"><f>A2</f><v>41</v></c>'),
        row(3, c("A3", 12), formula("B3"), '<c r="C3" t="str"><f>""</f><v></v></c>'),
    )
    assert text_of(document) == "flow: 41 | mean: 41\nflow: 12"
    assert document.note == "read without the values of 1 formulas that it does not keep"


def test_comments_charts_and_boxes_of_a_sheet_are_told_behind_its_rows() -> None:
    box = "<d:sp><d:txBody><a:p><a:r><a:t>In a box.</a:t></a:r></a:p></d:txBody></d:sp>"
    drawn = f'<d:wsDr xmlns:d="d" xmlns:a="a" {R}>{box}{CHARTED}</d:wsDr>'
    beside = relations(c="../comments1.xml", d="../drawings/drawing1.xml")
    noted = '<comment ref="A2"><text><r><t>worn out</t></r></text></comment>'
    document = xlsx(
        row(1, c("A1", "flow"), c("B1", "x")),
        row(2, c("A2", 41), c("B2", 1)),
        **{
            "xl/worksheets/_rels/sheet1.xml.rels": beside,
            "xl/comments1.xml": f"<comments>{noted}</comments>",
            "xl/drawings/drawing1.xml": drawn,
            "xl/drawings/_rels/drawing1.xml.rels": relations(c="../charts/c.xml"),
            "xl/charts/c.xml": BARS,
        },
    )
    told = ["flow: 41 | x: 1", "comment on A2: worn out", "In a box.", *TOLD_BARS.split("\n\n")]
    assert text_of(document).split("\n\n") == told


def test_a_region_over_the_whole_sheet_takes_no_more_time_than_its_rows() -> None:
    rows = [row(n, c(f"A{n}", "all" if n == 1 else ""), c(f"B{n}", n)) for n in range(1, 1000)]
    began = time.process_time()
    document = xlsx(*rows, row(100_000, c("A100000", "last")), merged=("A1:XFD1048576",) * 3)
    assert document.sections[-1].text.endswith("last")
    assert sum(len(section.text) for section in document.sections) < 40_000_000
    assert time.process_time() - began < 8


PARTS = {"a.docx": "word/document", "a.pptx": "ppt/presentation", "a.xlsx": "xl/workbook"}


@pytest.mark.parametrize(("name", "part"), PARTS.items())
def test_a_damaged_package_is_refused_by_name(name: str, part: str) -> None:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as package:
        package.writestr(f"{part}.xml", f"<w {R}>{'<x/>' * 5000}</w>")
    whole = packed.getvalue()
    flipped = whole[:60] + bytes(255 - byte for byte in whole[60:90]) + whole[90:]
    for content in (whole[: len(whole) // 2], flipped):
        with pytest.raises(SourceError, match=name):
            read(Input.of_bytes(name, content))
