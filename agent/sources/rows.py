"""What a search service returned, as passages: web addresses only, each page and text once."""

from collections.abc import Iterable
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from agent.sources.passages import without_near_duplicates
from memory.interfaces import Passage

_TRACKING = ("utm_", "fbclid", "gclid", "msclkid", "mc_eid", "ref_src")
LONGEST = 8000
"""characters kept of one result's text"""


def found_passages(rows: Iterable[Passage], limit: int) -> list[Passage]:
    """The first `limit` rows that can be cited, without repeated pages or texts."""
    seen: set[str] = set()
    kept: list[Passage] = []
    for row in rows:
        address = same_page(row.location)
        if address and row.text and address not in seen:
            seen.add(address)
            kept.append(row)
    return without_near_duplicates(kept, limit)


def row(title: object, address: object, text: object, place: str = "") -> Passage:
    """A passage from fields of a service's reply, which may be missing or of another type."""
    title, address, text = (_flat(value) for value in (title, address, text))
    return Passage(title or address, address, place, (text or title)[:LONGEST])


def same_page(address: str) -> str:
    """What two addresses of one page have in common; "" for what is no web address."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    return f"{host.removeprefix('www.')}{_port(parts)}{parts.path.rstrip('/')}?{_query(parts)}"


def _port(parts: SplitResult) -> str:
    return parts.netloc.rpartition("]")[2].rpartition("@")[2].partition(":")[2]


def _query(parts: SplitResult) -> str:
    """The query string without what only says where a visitor came from."""
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    return urlencode([pair for pair in pairs if not pair[0].lower().startswith(_TRACKING)])


def _flat(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
