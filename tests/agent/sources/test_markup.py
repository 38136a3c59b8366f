"""HTML, by itself and in books, mails and saved pages: each block says what a person reads."""

import time
from email.message import EmailMessage

import pytest

from rubricem.agent.sources.readers import read
from rubricem.agent.sources.readers.document import BlockKind, Document, Input
from rubricem.agent.sources.sandbox.web_text import document_of
from rubricem.memory.errors import SourceError

SENTENCE = "The pump was tried three times in Bonn, and each time its seal wore out early. "


def page(body: str, name: str = "a.html") -> Document:
    return read(Input.of_bytes(name, f"<html><body>{body}</body></html>".encode()))


def blocks(body: str) -> list[str]:
    return [block.text for section in page(body).sections for block in section.blocks]


def kinds(body: str) -> list[tuple[BlockKind, str]]:
    return [(b.kind, b.text) for section in page(body).sections for b in section.blocks]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("x<sup>n+1</sup> and 2<sup>3<sup>2</sup></sup>", "x^(n+1) and 2^(3^2)"),
        ("up to 2<small><sup>31</sup></small>-1 bytes", "up to 2^31-1 bytes"),
        ("in 10<sup><a href='#f'>5</a></sup> l", "in 10[5] l"),
        ("hours<a href='#f'><sup>1</sup></a>; then", "hours[1]; then"),
        ("hours<a class='footnote-ref' href='#f'>1</a>; then", "hours[1]; then"),
        ("now <span style='text-decoration: line-through'>41</span>42", "now 42"),
        ("one  \n two&nbsp;three", "one two three"),
        ("soft&shy;ly", "softly"),
        ("now <span style='height:0;overflow:hidden'>read this first</span>42", "now 42"),
        ("a form<a class='headerlink' href='#a'>\u00b6</a> of C#", "a form of C#"),
        ("<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>", "漢(kan)"),
        ("she said <q>no</q>.", "she said “no”."),
        ("<svg><defs><text>no</defs><text>a<tspan dy=1>b</text></svg>", "[drawing: a b]"),
        ("so \\(x^2\\) and $$y^2$$", "so \\(x^2\\) and $$y^2$$"),
        ('so <span class="math inline">$\\frac{1}{x}$</span> is', "so (1)/(x) is"),
        ("<script src='MathJax.js'></script>so \\(x^{n+1}\\) and $$y_1$$", "so x^(n+1) and y_1"),
        (
            "so <span style='display:none'><math><mi>E</mi></math></span>"
            "<img class='mwe-math-fallback-image-inline' alt='{\\displaystyle E=mc^{2}}'> is",
            "so E = mc^2 is",
        ),
    ],
)
def test_a_line_says_what_is_seen(body: str, text: str) -> None:
    assert blocks(f"<p>{body}</p>") == [text]


def test_what_scripts_may_open_and_what_readers_say_is_told() -> None:
    closed = "<p style='max-height:0;overflow:hidden'>The answer.</p><script>open()</script>"
    assert blocks(closed) == ["The answer."]
    said = f"<h1>A C#</h1><p>{SENTENCE * 4}</p><div class='timeline-comment'><p>Fixed.</p></div>"
    (section,) = page(said).sections
    assert section.path == ("A C#",) and section.text.endswith("Fixed.")


def test_cells_that_a_sheet_sets_in_bold_name_their_columns() -> None:
    rows = "<tr><td class=b>part<td><span class=b>use</span><tr><td>rotor<td>none"
    assert blocks(f"<style>.b{{font-weight:700}}</style><table>{rows}</table>") == [
        "part: rotor | use: none"
    ]


def test_what_a_sheet_raises_or_strikes_by_its_class_is_told_so() -> None:
    sheet = ".c0{color:red}.c1,span.c2{font-size:6pt;vertical-align:super}\n.c3{vertical-align:sub}"
    sheet += ".c4{text-decoration:line-through}.c5 .c0{vertical-align:super}"
    body = "10<span class='c0 c1'>5</span> CO<span class=c3>2</span> <span class=c0>in</span>"
    text = f"<p>{body} <span class='c4'>May</span> June</p>"
    assert blocks(f"<style>{sheet}</style>{text}") == ["10^5 CO2 in June"]


@pytest.mark.parametrize(
    ("sheet", "told"),
    [
        (".x{display:none}", "12 rooms"),
        ("/* .y{} */ p > .x, .z{visibility:hidden !important}.x{visibility:visible}", "12 rooms"),
        ("@media print{.x{display:none}}", "12GONE rooms"),
        ("@media (max-width:9px){.x{display:none}} @import url(x);", "12GONE rooms"),
        (".x{display:none}.x.on{display:inline}", "12GONE rooms"),
        (".x::before{display:none}.q .x{display:none}", "12GONE rooms"),
        (".x{position:relative;top:-.5em}", "12^GONE rooms"),
    ],
)
def test_a_sheet_of_the_page_hides_what_its_rules_are_for_unless_the_page_can_show_it(
    sheet: str, told: str
) -> None:
    body = "<p>12<span class='x on' {}>GONE</span> rooms</p>"
    assert " ".join(blocks(f"<style>{sheet}</style>{body.format('')}")) == told
    shown = f"{body.format('id=a')}<p><a href='#a'>More</a></p>"
    assert "GONE" in " ".join(blocks(f"<style>{sheet}</style>{shown}"))


def test_a_page_that_a_script_would_show_is_told_whole() -> None:
    assert blocks("<style>body{visibility:hidden}</style><p>Twelve rooms.</p>") == ["Twelve rooms."]


def test_rows_and_cells_are_those_by_role_and_a_foot_stands_below() -> None:
    row = "<div role=row><span role={0}>{1}</span><span role={0}>{2}</span></div>".format
    page = f"<div role=table>{row('columnheader', 'part', 'h')}{row('cell', 'seal', 3)}</div>"
    assert blocks(page) == ["part: seal | h: 3"]
    foot = "<table><tr><th>y<th>mm</tr><tfoot><tr><td>sum<td>5</tfoot><tr><td>one<td>5</table>"
    assert blocks(foot) == ["y: one | mm: 5\ny: sum | mm: 5"]


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ("<p>one</p></body></html> and<html><head><title>T</title></head><body><p>two</p>",
         ["one", "and", "T", "two"]),
        ("<p>so</p><p hidden>gone</p>", ["so"]),
        (f"<article><p>{SENTENCE * 9}</p><aside><p>The most was 88 mm.</p></aside>"
         "<blockquote><p>Awful!</p><footer>Mayor Ray</footer></blockquote>"
         "<aside><a href='/b'>Other pages</a></aside></article><aside>Read on!</aside>",
         [(SENTENCE * 9).strip(), "The most was 88 mm.", "Awful!", "Mayor Ray"]),
    ],
)  # fmt: skip
def test_what_stands_in_odd_places_is_read_if_it_belongs_there(body: str, texts: list[str]) -> None:
    assert blocks(body) == texts


def test_a_formula_on_its_own_is_a_block() -> None:
    told = "<p>so</p><math display='block'><mfrac><mn>1</mn><mi>x</mi></mfrac></math><p>is</p>"
    assert (BlockKind.FORMULA, "(1)/(x)") in kinds(told)


@pytest.mark.parametrize(
    ("reference", "note"),
    [
        (
            "<a href='#f1' id='r1'><sup>1</sup></a>",
            "<section role='doc-endnotes'><ol><li id='f1'><p>By the vendor.<a href='#r1'>↩︎</a></p>"
            "</li></ol></section>",
        ),
        (
            "<sup id='cite_ref-1'><a href='#cite_note-1'>[1]</a></sup>",
            "<ol><li id='cite_note-1'>^ <a href='#cite_ref-1'><sup>a</sup></a> By the vendor.</li>"
            "</ol>",
        ),
        (
            "<a class='footnote-reference' href='#f' id='r' role='doc-noteref'>[1]</a>",
            "<aside class='footnote' id='f'><span>[<a href='#r'>1</a>]</span>"
            "<p>By the vendor.</p></aside>",
        ),
        (
            "<a epub:type='noteref' href='notes.xhtml#f'>1</a>",
            "<aside epub:type='footnote' id='f'><p>1. By the vendor.</p></aside>",
        ),
        ("<sup><a href='#f'>1</a></sup>", "<p><a id='f'></a><sup>1</sup> By the vendor.</p>"),
        ("<sup>1</sup>", "<p><sup>1</sup> By the vendor.</p>"),
    ],
)
def test_a_note_begins_with_its_mark(reference: str, note: str) -> None:
    told = kinds(f"<p>It was 42{reference} litres. {SENTENCE}</p>{note}")
    assert told[0][1].startswith("It was 42[1] litres.")
    assert told[-1][0] is BlockKind.NOTE
    assert told[-1][1].replace("[1]\n", "[1] ") == "[1] By the vendor."


def test_a_mark_whose_note_is_on_the_page_is_no_power() -> None:
    assert blocks("<p>was 10<sup>1</sup> l</p><p><sup>1</sup> Then.</p>")[0] == "was 10[1] l"


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ("<ol start='3'><li>a<li value='7'>b<li>c</ol>", ["3. a\n7. b\n8. c"]),
        ("<ol type='a'><li>x<li>y</ol>", ["a. x\nb. y"]),
        ("<ol type='I'><li>x<li>y<li>z<li>w</ol>", ["I. x\nII. y\nIII. z\nIV. w"]),
        ("<ol reversed><li>x<li>y</ol>", ["2. x\n1. y"]),
        ("<ul><li><p>a</p><p>more</p><pre>x\n y</pre></li></ul>", ["- a\n  more\n  x\n   y"]),
        ("<ul><li><input type=checkbox> a<li><input type=checkbox checked> b</ul>",
         ["- [ ] a\n- [x] b"]),
        ("<dl><dt>a<dt>b<dd>one<dd>two<dt>c<dd><p>x</p><p>y</p></dl>",
         ["a\nb\n    one\n    two", "c\n    x", "    y"]),
        ("<dl><dt>a<dd><ul><li>x<li>y</ul></dl>", ["a\n    - x\n    - y"]),
        ("<dl><dt><b>f(x)</b><a href='#f'>¶</a><dd>one<dt>¶<dd>a sign</dl>",
         ["f(x)\n    one", "¶\n    a sign"]),
        ("<h2>Parts<ul><li>a<li>b</ul></h2>", ["- a\n- b"]),
        ("<pre>if x:\n\ty = <b>1</b>\n\n# end\n</pre>", ["if x:\n        y = 1\n\n# end"]),
        ("<h2>Parts<h3>Rotor</h3><p>x", ["x"]),
        ("<pre><code><div>a</div><div>b</div></code></pre>", ["a\nb"]),
        ("<pre>a<br>b</pre>", ["a\nb"]),
        ("<address>Main St 1<br>Bonn</address>", ["Main St 1\nBonn"]),
        ("<p>Roses<br>are<br>red<br>today</p>", ["Roses\nare\nred\ntoday"]),
        ("<p>one<br><br>two</p>", ["one", "two"]),
        ("<div>one<div>two</div>three</div>", ["one", "two", "three"]),
    ],
)  # fmt: skip
def test_lists_code_and_lines_keep_their_shape(body: str, texts: list[str]) -> None:
    assert blocks(body) == texts


HEAD = "<tr><th>part<th>hours<th>site</tr>"


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ("<table><thead><tr><td rowspan=2>pump<td colspan=2>flow<tr><td>l/min<td>bar</thead>"
         "<tr><td>P-1<td>12<td>3</table>",
         ["pump: P-1 | flow l/min: 12 | flow bar: 3"]),
        ("<table><tr><th>Height<td>3 m<tr><th>Built<td>1990</table>",
         ["Height: 3 m\nBuilt: 1990"]),
        (f"<table>{HEAD}<tr><td>rotor<td>9<sup>a</sup><td><ul><li>Bonn<li>Kiel</ul></table>",
         ["part: rotor | hours: 9[a] | site: Bonn; Kiel"]),
        (f"<table><tr><td><p>Menu</p><td><h2>Parts</h2><table>{HEAD}<tr><td>rotor<td>9<td>Bonn"
         "</table></table>",
         ["Menu", "part: rotor | hours: 9 | site: Bonn"]),
        ("<table role=presentation><tr><td>a<td>b<tr><td>c<td>d</table>", ["a", "b", "c", "d"]),
        (f"<dl><dt>Lives<dd><table>{HEAD}<tr><td>rotor<td>9<td>Bonn</table></dl>",
         ["Lives\n    part: rotor | hours: 9 | site: Bonn"]),
    ],
)  # fmt: skip
def test_a_row_names_its_columns(body: str, texts: list[str]) -> None:
    assert blocks(body) == texts


AROUND = (
    "<div class='cookie-consent'>We use cookies.</div><header><a href='/'>Home</a></header>"
    "<div class='navheader'><p>Pump: <a href='/p'>Prev</a> Chapter 3</p></div>"
    "<nav><ul><li><a href='/a'>Other</a></ul></nav>{}<aside><p>Subscribe now!</p></aside>"
    "<ul class='menu'><li><a href='/b'>Others</a></ul><footer>Imprint</footer>"
)


@pytest.mark.parametrize("tag", ["main", "article", "div", "div class='content'"])
def test_lists_tables_terms_and_code_of_the_main_part_stay(tag: str) -> None:
    inner = (
        f"<h1>Pump</h1><p>{SENTENCE}Advantages include:</p><ul><li>quiet<li>cheap</ul>"
        f"<table>{HEAD}<tr><td>rotor<td>900<td></table><dl><dt>seal<dd>a ring</dl><pre>a\n b</pre>"
        "<aside class='admonition note'><p>Mind the gap.</p></aside>"
    )
    told = blocks(AROUND.format(f"<{tag}>{inner}</{tag.split()[0]}>"))
    assert told == [
        f"{SENTENCE}Advantages include:",
        "- quiet\n- cheap",
        "part: rotor | hours: 900",
        "seal\n    a ring",
        "a\n b",
        "Mind the gap.",
    ]


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (f"<form><p>{SENTENCE}</p><input value=x><select><option>no</select></form>",
         [SENTENCE.strip()]),
        ("<nav><ul><li><a href='/a'>One</a><li><a href='/b'>Two</a></ul></nav>",
         ["- One\n- Two"]),
        ("<ul class='toc menu'><li><a href='#a'>One</a></ul><p id=a>text</p>", ["- One", "text"]),
        (f"<header><h1>Pump</h1><p>By A. Müller</p></header><p>{SENTENCE}</p>",
         ["By A. Müller", SENTENCE.strip()]),
        (f"<p>{SENTENCE}</p><div id=cookies><h2>Cookies</h2><p>They are crumbs.</p></div>"
         "<p id=sharing>They are shared.</p><p class=author>A. Müller</p>",
         [SENTENCE.strip(), "They are crumbs.", "They are shared.", "A. Müller"]),
        (f"<main>x</main><p>{SENTENCE}</p>", ["x", SENTENCE.strip()]),
    ],
)  # fmt: skip
def test_nothing_is_left_out_that_is_most_of_a_page(body: str, texts: list[str]) -> None:
    assert blocks(body) == texts


def test_a_page_says_the_same_from_a_folder_and_from_the_web() -> None:
    body = AROUND.format(f"<h1>Pump</h1><p>{SENTENCE}</p><ul><li>a<li>b</ul>")
    content = f"<html><title>P-1</title><body>{body}</body></html>".encode()
    read_there = document_of(content, "text/html", "https://a.test/pump.html")
    assert read(Input.of_bytes("pump.html", content)) == read_there
    assert read_there.title == "P-1"


def test_xhtml_honours_what_it_declares() -> None:
    content = (
        '<?xml version="1.0" encoding="shift_jis"?><html xmlns="http://www.w3.org/1999/xhtml">'
        "<head><title>試験報告書</title><script src='x'/></head><body><p>シールの劣化と流量</p>"
        "</body></html>"
    )
    document = read(Input.of_bytes("a.xhtml", content.encode("shift_jis")))
    assert (document.title, document.sections[0].text) == ("試験報告書", "シールの劣化と流量")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (f"{'<ul><li>item' * 500}{'</ul>' * 500}<p>the end</p>", ["the end", "- item"]),
        ("<table><tr><th>name</tr>" + "<tr><td><table><tr><td>x" * 300 + "<p>the end</p>",
         ["the end"]),
        (f"<table><tr>{'<th>head' * 16_000}</tr><tr>{'<td>cell' * 16_000}</tr></table><p>the end",
         ["head: cell | head: cell", "the end"]),
        ("<table><tr><th colspan=99999999 rowspan=99999999>a<td>b<tr><td>c</table>", ["c"]),
        (f"{'<div class=menu>' * 2000}the end", ["the end"]),
        (f"<p>{'x<sup>1</sup>' * 10_000} the end", ["the end"]),
        (f"<p>{'<a href=#f><sup>1</sup></a>' * 5000}</p><p id=f>the end", ["the end"]),
        (f"{'<dl><dd>' * 1000}the end", ["the end"]),
        (f"{'<math><msup>' * 1000}the end", ["the end"]),
    ],
    ids=["list", "tables", "columns", "spans", "blocks", "marks", "notes", "terms", "formulas"],
)  # fmt: skip
def test_what_is_nested_or_wide_without_end_is_read_in_time(body: str, found: list[str]) -> None:
    began = time.process_time()
    text = "\n".join(blocks(body))
    assert time.process_time() - began < 6
    assert [each for each in found if each not in text] == []


def test_a_page_that_the_parser_would_cut_is_refused() -> None:
    with pytest.raises(SourceError):
        page("<div>" * 3000 + "the end")


def mail(text: str = "", html: str = "", **headers: str) -> EmailMessage:
    message = EmailMessage()
    for name, value in headers.items():
        message[name] = value
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    return message


def test_a_mail_is_read_with_what_is_attached() -> None:
    message = mail(
        "plain", "<p>It was 42<sup>1</sup> l</p><ul><li>a</ul>", From="a@x.test", Subject="Größe"
    )
    message["Date"] = "Wed, 17 May 2023 10:00:00 +0200"
    message.add_attachment(
        b"part,hours\nrotor,900\n", maintype="text", subtype="csv", filename="r.csv"
    )
    message.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="x.png")
    message.add_attachment(mail("inner words", Subject="Forwarded"))
    message.add_attachment("and a footer", subtype="plain")
    document = read(Input.of_bytes("a.eml", bytes(message)))
    assert document.title == "Größe"
    assert document.note == "read in part: not x.png"
    assert [(section.path, section.text) for section in document.sections] == [
        ((), "From: a@x.test\nDate: Wed, 17 May 2023 10:00:00 +0200\n\nIt was 42[1] l\n\n- a"),
        (("r.csv",), "part: rotor | hours: 900"),
        (("Forwarded",), "inner words"),
        (("part.txt",), "and a footer"),
    ]


def test_a_plain_mail_and_mails_in_mails_are_read_to_some_depth() -> None:
    message = mail("one\n\ntwo", Subject="Plain")
    assert read(Input.of_bytes("a.eml", bytes(message))).sections[0].text == "one\n\ntwo"
    for level in range(6):
        outer = mail(f"level {level}", Subject=f"S{level}")
        outer.add_attachment(message)
        message = outer
    document = read(Input.of_bytes("a.eml", bytes(message)))
    assert len(document.sections) == 4 and "S1" in document.note


@pytest.mark.parametrize("name", ["a.eml", "a.mhtml"])
def test_what_is_no_mail_is_refused(name: str) -> None:
    with pytest.raises(SourceError):
        read(Input.of_bytes(name, b"\x00\x01\x02"))
