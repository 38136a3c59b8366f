"""Markdown of an answer: as HTML that is safe, as a terminal draws it, and what is alive in it."""

import time

import pytest
from rich.console import Console

from rubricem.agent.reports.display import for_terminal
from rubricem.agent.reports.page import as_mathml, as_source, draft_html, html_of
from rubricem.agent.reports.report import alive
from tests.agent.reports.runs import HOSTILE, SCRIPT

REL = 'rel="noopener noreferrer nofollow"'
DEEP = "{" * 900


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("| a |\n|---|\n| Chemist |", "<td>Chemist</td>\n</tr>\n</tbody>\n</table></div>"),
        ("- [ ] a\n- [x] `b`", "<li>\u2610 a</li>\n<li>\u2611 <code>b</code></li>"),
        ("[a](https://a.test/)", f'<a href="https://a.test/" {REL}>a</a>'),
        ("![a](https://a.test/a)", f'<a href="https://a.test/a" {REL}>a</a>'),
        ("![](https://a.test/a)", f'<a href="https://a.test/a" {REL}>image at a.test</a>'),
        ("[a](javascript:x) ![](data:x)", "<p>[a](javascript:x) ![](data:x)</p>"),
        ("```python\nreturn 1\n```", '<span class="c-k">return</span>'),
        ("```nonsense\na < b\n```", '<pre tabindex="0"><code>a &lt; b\n</code></pre>'),
        ("It costs $5 or $6.", "<p>It costs $5 or $6.</p>"),
        ("So $x < 2$.", '<span class="maths"><code class="within">x &lt; 2</code></span>.'),
        ("\\[\nx\n\\]", '<div class="maths"><code class="alone">x</code></div>'),
        ("So $x$\ufdd00\ufdd1.", '<code class="within">x</code></span>\ufdd00\ufdd1.'),
        ("A().__init__(), __FILE__, __So__", "A().__init__(), __FILE__, <strong>So</strong>"),
        (f"{SCRIPT} &amp; R&D", "<p>&lt;script&gt;alert(1)&lt;/script&gt; &amp;amp; R&amp;D</p>"),
    ],
)  # fmt: skip
def test_an_answers_markdown_is_html(text: str, html: str):
    assert html in html_of(text, as_source)


@pytest.mark.parametrize(
    ("formula", "html"),
    [
        (r"\frac{a}{b}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        (r"\frac{", r'<code class="within">\frac{</code>'),
        (rf"\text{{{SCRIPT}}} + 1", "<mn>1</mn>"),
        (r"\href{javascript:alert(1)}{x}", "<mi>x</mi>"),
        (DEEP, f'<code class="within">{DEEP}</code>'),
        ("x" * 9000, "xxx</code>"),
    ],
)
def test_a_formula_is_mathml_or_stays_as_it_was_written(formula: str, html: str):
    made = html_of(f"${formula}$", as_mathml)
    assert html in made and "script" not in made and "javascript" not in made


@pytest.mark.parametrize(
    "text", [*HOSTILE, "[](" * 4000, "$" * 4000, "\\(" * 4000, "|" * 9000, "__a" * 9000]
)
def test_hostile_markdown_takes_no_time_and_is_cleaned(text: str):
    began = time.process_time()
    made = html_of(text, as_mathml)
    assert time.process_time() - began < 5
    assert (
        "<script" not in made
        and "<img" not in made
        and "javascript:" not in made.replace("[click](javascript:alert(1))", "")
    )


def test_a_terminal_gets_tables_links_and_formulas_and_loses_no_word():
    console = Console(width=60, force_terminal=True, color_system=None)
    with console.capture() as drawn:
        text = "| a |\n|---|\n| Che |\n\n![p](https://a.test) <b>x</b> $y$ \\(z\\)"
        console.print(for_terminal(text))
    shown = drawn.get()
    assert "\u2500" in shown and "|" not in shown and "\x1b]8" not in shown
    assert "p (https://a.test) <b>x</b> y z" in shown


@pytest.mark.parametrize(
    ("text", "lives"),
    [("a <b>", True), ("<br/>", True), ("![a](b)", True), ("[a](file:///b)", True),
     ("[a](https://b.test) `<b>` a < b [x]", False)],
)  # fmt: skip
def test_what_a_renderer_would_obey_is_alive(text: str, lives: bool):
    assert alive(text) is lives


@pytest.mark.parametrize(
    ("written", "html"),
    [
        ("<think>no</think>", ""),
        ("<answer>**It** <cite id=\"S1, S2\">grows</cite>.",
         "<strong>It</strong> grows <sup class=\"cite\">S1, S2</sup>."),
        ("<answer>a <cite id=\"S1\">gr", 'a gr <sup class="cite">S1</sup>'),
        ("<answer>a <cite id=", "<p>a</p>"),
        (f"<answer>{SCRIPT}</answer> b", "&lt;script&gt;"),
    ],
)  # fmt: skip
def test_a_draft_is_drawn_as_far_as_it_is_written(written: str, html: str):
    made = draft_html(written)
    assert html in made and "<script" not in made and " b" not in made
