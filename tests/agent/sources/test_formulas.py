"""Formulas of MathML and of Office, superscripts and subscripts, as linear text."""

import pytest
from lxml import etree, html

from rubricem.agent.sources.readers.formulas import (
    linear_mathml,
    linear_office,
    linear_tex,
    lowered,
    raised,
)
from rubricem.agent.sources.readers.packages import bare

HALF = "<mfrac><mn>1</mn><mn>2</mn></mfrac>"
SQUARE = "<msup><mi>{}</mi><mn>2</mn></msup>"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (f"<mi>E</mi><mo>=</mo>{HALF}<mi>m</mi>{SQUARE.format('v')}", "E = (1)/(2)mv^2"),
        (f"<msqrt>{SQUARE.format('x')}<mo>+</mo><mn>1</mn></msqrt>", "sqrt(x^2+1)"),
        ("<mroot><mi>x</mi><mn>3</mn></mroot>", "root(3)(x)"),
        ("<msup><mn>10</mn><mrow><mo>−</mo><mn>3</mn></mrow></msup><mi>m</mi>", "10^-3 m"),
        ("<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>"
         "<msub><mi>x</mi><mi>i</mi></msub>", "sum_(i=1)^(n) x_i"),
        ("<msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup><mi>f</mi>", "int_(0)^(1) f"),
        ("<munder><mo>lim</mo><mrow><mi>x</mi><mo>→</mo><mn>0</mn></mrow></munder><mi>f</mi>",
         "lim_(x→0) f"),
        ("<msub><mi>v</mi><mtext>max</mtext></msub>", "v_max"),
        ("<msup><mi>e</mi><mrow><mi>i</mi><mi>t</mi></mrow></msup><mi>y</mi>", "e^(it) y"),
        ("<msup><mi>x</mi><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></msup>", "x^(n+1)"),
        ("<msup><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>2</mn></msup>", "(a+b)^2"),
        (f"<msup>{HALF}<mn>2</mn></msup>", "((1)/(2))^2"),
        (f"<msup><mrow><mo>(</mo>{HALF}<mo>)</mo></mrow><mn>2</mn></msup>", "((1)/(2))^2"),
        ("<mi>m</mi><mi>a</mi><mi>x</mi><mo>{</mo><mi>y</mi>", "max{y"),
        (f"<mn>3</mn>{HALF}", "3 (1)/(2)"), (f"<mi>log</mi>{HALF}", "log (1)/(2)"),
        ("<mi>sin</mi><mo>\u2061</mo><mi>x</mi><mo>≤</mo><mn>1</mn>", "sin x ≤ 1"),
        ("<mover><mi>x</mi><mo>¯</mo></mover>", "bar(x)"),
        ("<mo>(</mo><mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr>"
         "<mtr><mtd><mi>c</mi></mtd><mtd><mi>d</mi></mtd></mtr></mtable><mo>)</mo>",
         "(a, b; c, d)"),
        ("<mfenced open='[' close=']'><mi>a</mi><mi>b</mi></mfenced>", "[a, b]"),
        ("<mfrac linethickness='0'><mi>n</mi><mi>k</mi></mfrac>", "binom(n, k)"),
        ("<mmultiscripts><mi>C</mi><mprescripts/><none/><mn>14</mn></mmultiscripts>", "^14C"),
        ("<apply><csymbol>f</csymbol><ci>x</ci><cn>2</cn></apply>", "f(x, 2)"),
        (f"<semantics>{HALF}<annotation encoding='application/x-tex'>\\frac12</annotation>"
         "</semantics>", "(1)/(2)"),
        ("<semantics><annotation>x^2</annotation></semantics>", "x^2"),
        ("<msup><mi>x</mi></msup>", "x"),
    ],
)  # fmt: skip
def test_mathml_is_told_as_it_is_seen(markup: str, text: str) -> None:
    assert linear_mathml(html.fragment_fromstring(f"<math>{markup}</math>")) == text
    named = f"<math xmlns='http://www.w3.org/1998/Math/MathML'>{markup}</math>"
    assert linear_mathml(etree.fromstring(named)) == text


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"E = \frac{1}{2} m v^2", "E = (1)/(2)mv^2"),
        (r"{\displaystyle \sum_{i=1}^n x_i}", "sum_(i=1)^(n) x_i"),
        (r"\left(\frac{a}{b}\right)^2", "((a)/(b))^2"), (r"10^{-3}\,\mathrm{m}", "10^-3 m"),
        ("x^2" * 1000, "x^2" * 1000),
    ],
)  # fmt: skip
def test_tex_is_told_alike(tex: str, text: str) -> None:
    assert linear_tex(tex) == text


def run(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def parts(tag: str, properties: str = "", **named: str) -> str:
    inner = "".join(f"<m:{name}>{part}</m:{name}>" for name, part in named.items())
    return f"<m:{tag}><m:{tag}Pr>{properties}</m:{tag}Pr>{inner}</m:{tag}>"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (run("E") + run("=") + parts("f", num=run("1"), den=run("2")) + run("m")
         + parts("sSup", e=run("v"), sup=run("2")), "E = (1)/(2)mv^2"),
        (run("E=m") + parts("sSup", e=run("c"), sup=run("2")), "E = mc^2"),
        (parts("rad", '<m:degHide m:val="1"/>', deg="", e=run("x+1")), "sqrt(x+1)"),
        (parts("rad", deg=run("3"), e=run("x")), "root(3)(x)"),
        (parts("sSub", e=run("v"), sub=run("max")), "v_max"),
        (parts("sSup", e=run("10"), sup=run("−3")), "10^-3"),
        (parts("sSubSup", e=run("x"), sub=run("1"), sup=run("2")), "x_1^2"),
        (parts("nary", '<m:chr m:val="∑"/>', sub=run("i=1"), sup=run("n"),
               e=parts("sSub", e=run("x"), sub=run("i"))), "sum_(i=1)^(n) x_i"),
        (parts("nary", sub=run("0"), sup=run("1"), e=run("f")), "int_(0)^(1) f"),
        (parts("d", e=run("a+b")), "(a+b)"),
        (parts("d", '<m:begChr m:val="["/><m:endChr m:val=""/>', e=run("a")), "[a"),
        (parts("func", fName=run("sin"), e=run("x")), "sin x"),
        (parts("func", fName=parts("limLow", e=run("lim"), lim=run("n→∞")), e=run("x")),
         "lim_(n→∞) x"),
        (parts("acc", e=run("x")), "hat(x)"),
        (parts("bar", '<m:pos m:val="top"/>', e=run("x")), "bar(x)"),
        (parts("d", e=parts("m", mr=f"<m:e>{run('a')}</m:e><m:e>{run('b')}</m:e>")), "(a, b)"),
        (parts("phant", '<m:show m:val="0"/>', e=run("x")) + run("y"), "y"),
        (f"<m:del>{run('4')}</m:del>" + run("5"), "5"),
    ],
)  # fmt: skip
def test_formulas_of_office_are_told_as_they_are_seen(markup: str, text: str) -> None:
    space = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    one = f"<m:oMath>{markup}</m:oMath>"
    formula = bare(etree.fromstring(f"<m:p {space}>{one}</m:p>"))[0]
    assert " ".join(linear_office(formula).split()) == text


def test_a_formula_may_be_nested_without_end() -> None:
    deep = etree.fromstring("<msqrt>" * 150 + "<mi>x</mi>" + "</msqrt>" * 150)
    assert "x" in linear_mathml(deep)


@pytest.mark.parametrize(
    ("before", "text", "after", "told"),
    [
        ("was 42", "1", " litres", "[1]"), ("in 2023", "2", " by", "[2]"),
        ("in 2010", "1", " and", "[1]"), ("300 hours", "1", "; the", "[1]"),
        ("some 1,000", "3", " l", "[3]"), ("litres.", "1,2", " Then", "[1,2]"),
        ("was 12.3", "a", " x", "[a]"), ("was 42[1]", "2", " l", "[2]"),
        ("was 42[1]", ",", "", ","), ("was 42[1],", "2", " l", "[2]"),
        ("at the bar", "2", " then", "[2]"), ("of 3 in", "2", "", "^2"),
        ("at 10", "5", " Pa", "^5"), ("at 1.5·10", "6", " Pa", "^6"), ("at 10", "5", "Pa", "^5 "),
        ("some 2", "16", " of", "^16"), ("and 10", "−3", " m", "^-3"), ("50 s", "−1", "", "^-1"),
        ("42 cm", "2", ".", "^2"), ("42 kg/m", "3", "", "^3"),
        ("an area of 3 km", "2", " of", "^2"), ("the R", "2", " of", "^2"),
        ("(a+b)", "2", "", "^2"), ("E=mc", "2", "", "^2"), ("3", "2", " + 4", "^2"),
        ("+ 4", "2", " is 25", "^2"), ("x", "n+1", "", "^(n+1)"), ("Ca", "2+", " in", "^(2+)"),
        ("by 5", "th", " of", "th"), ("the n", "th", " time", "th"), ("le 1", "er", " mai", "er"),
        ("le 5", "e", " jour", "e"), ("o 2", "º", "", "º"), ("chez M", "lle", " X", "lle"),
        ("Foo", "TM", " is", "™"), ("Foo", "®", " is", "®"), ("at 20", "o", "C", "°"),
        ("was 42", "*", " l", "[*]"), ("was 63", "†", " l", "[†]"), ("x", "*", " l", "^*"),
        ("Of ", "14", "C dating", "^14"), ("", "1", " See there", "[1]"),
        ("Word", "beta", " is", " beta"),
    ],
)  # fmt: skip
def test_superscripts_never_glue_to_a_number(before: str, text: str, after: str, told: str) -> None:
    assert raised(text, before, after) == told


@pytest.mark.parametrize("mark", ["1", "[1]", "(1)", " 1 "])
def test_the_mark_of_a_note_is_set_apart(mark: str) -> None:
    assert raised(mark, "at 10", " l", noted=True) == "[1]"


@pytest.mark.parametrize(
    ("before", "text", "after", "told"),
    [
        ("of H", "2", "O and", "2"), ("of 2H", "2", "O and", "2"), ("of C6H", "12", "O6", "12"),
        ("Ca(OH)", "2", "", "2"), ("of O", "2", ".", "2"), ("at x", "1", " is", "_1"),
        ("at V", "1", " is", "_1"), ("at H", "0", " is", "_0"), ("log", "2", " 8", "_2"),
        ("v", "max", " is", "_max"), ("x", "n+1", "", "_(n+1)"), ("x", "1", "y", "_1 "),
        ("", "small print", "", "small print"),
    ],
)  # fmt: skip
def test_subscripts_are_told_apart_from_formulas_of_elements(
    before: str, text: str, after: str, told: str
) -> None:
    assert lowered(text, before, after) == told
