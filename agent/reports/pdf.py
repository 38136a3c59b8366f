"""A trajectory as a PDF: its page on paper, made by weasyprint.

While it is made no address is asked and no file is read but the fonts of the system: whatever the
page names, the fetcher refuses. The way to the answer, folded on the page, is left out.
"""

import importlib
from typing import Any

from agent.reports.report_page import page
from memory.errors import SettingsError, StoreError, boundary
from memory.schema import Trajectory

_PAPER = """
@page { size: A4; margin: 18mm 16mm; @bottom-right { content: counter(page); font-size: 8pt } }
h1 { font-size: 20pt } table { display: table } pre { white-space: pre-wrap }
.numbers { grid-template-columns: 1fr 1fr 1fr } .sources details > :not(summary) { display: none }
.sources summary, [aria-labelledby="stages-title"] { display: none }
"""
"""on paper nothing is scrolled or folded out, and a passage is quoted rather than shown whole"""


def pdf(trajectory: Trajectory) -> bytes:
    """The whole document. Blocks, for about a second; raises what `check_pdf` raises."""
    weasyprint = _weasyprint()
    fetcher = _refusing()
    with boundary(StoreError, "making the PDF"):
        html = weasyprint.HTML(string=page(trajectory), url_fetcher=fetcher)
        style = weasyprint.CSS(string=_PAPER, url_fetcher=fetcher)
        made: bytes = html.write_pdf(stylesheets=[style])
    return made


def check_pdf() -> None:
    """Raise SettingsError where no PDF can be made here."""
    _weasyprint()


def _weasyprint() -> Any:
    try:
        return importlib.import_module("weasyprint")
    except ImportError as cause:
        raise SettingsError(
            "A PDF needs weasyprint, which is not installed.",
            "Install it: pip install 'rubricem[pdf]'",
        ) from cause
    except OSError as cause:
        # It looks for its libraries while it is imported.
        raise SettingsError(
            "A PDF needs the Pango library, which this system does not have.",
            "Install it (on Debian: apt install libpango-1.0-0 libpangoft2-1.0-0), or write .html.",
        ) from cause


def _refusing() -> Any:
    """A fetcher that gives nothing, whatever is asked of it."""
    fetchers: Any = importlib.import_module("weasyprint.urls")

    class Refusing(fetchers.URLFetcher):  # type: ignore[misc]
        def fetch(self, url: str, headers: Any = None) -> Any:
            raise ValueError("nothing is loaded into a report")

    return Refusing()
