"""HTML without what its readers do not see: text hidden by its markup is there for machines.

Comments, scripts, `hidden` elements and those that an inline style takes out of sight go. Style
sheets are not computed, so what only they hide stays, as text like any other.
"""

import re

from lxml import html

_OUT_OF_SIGHT = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)"
    r"|opacity\s*:\s*0*(?:\.0+)?\s*(?=!|;|$)"
    r"|font-size\s*:\s*0*(?:\.0+)?\s*(?:px|em|rem|pt|%)?\s*(?=!|;|$)"
    r"|(?:left|right|top|bottom|text-indent|margin-left)\s*:\s*-\d{3,}"
    r"|clip\s*:\s*rect\(\s*0|clip-path\s*:\s*inset\(\s*(?:50|100)%)",
    re.I,
)
_UNREAD = (
    "descendant::script | descendant::style | descendant::template | descendant::comment()"
    " | descendant::noscript | descendant::*[@hidden or @style]"
)


def visible_html(text: str) -> str:
    """The document that a reader sees; "" where there is none."""
    # lxml refuses a text that declares an encoding, as it is decoded already.
    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", text).replace("\0", "")
    if not text.strip():
        return ""
    tree = html.document_fromstring(text, parser=html.HTMLParser(no_network=True))
    for element in list(tree.xpath(_UNREAD)):
        if element.getparent() is not None and _is_unseen(element):
            element.drop_tree()
    return html.tostring(tree, encoding="unicode")


def _is_unseen(element: html.HtmlElement) -> bool:
    style = element.get("style", "") if isinstance(element.tag, str) else ""
    kept = style and element.get("hidden") is None and element.tag not in ("script", "style")
    return not kept or bool(_OUT_OF_SIGHT.search(style))
