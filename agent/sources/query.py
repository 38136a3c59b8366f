"""A query and what narrows it: `year:2019-2021` and `field:"Computer Science"`.

A policy narrows a search by attributes of its tool call, a person by writing these words. They
travel inside the query's text, so that the journal, a resume and the report show them as asked.
Sources that cannot narrow a search leave them out; what is no year or known field stays text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

FIELDS = (
    "Agricultural and Food Sciences",
    "Art",
    "Biology",
    "Business",
    "Chemistry",
    "Computer Science",
    "Economics",
    "Education",
    "Engineering",
    "Environmental Science",
    "Geography",
    "Geology",
    "History",
    "Law",
    "Linguistics",
    "Materials Science",
    "Mathematics",
    "Medicine",
    "Philosophy",
    "Physics",
    "Political Science",
    "Psychology",
    "Sociology",
)
"""fields of study as Semantic Scholar names them"""

_YEARS = r"\d{4}(?:-(?:\d{4})?)?|-\d{4}"
_NARROWING = re.compile(
    rf"(?<!\S)(?:years?:(?P<years>{_YEARS})|fields?:(?:\"(?P<quoted>[^\"]+)\"|(?P<bare>\S+)))(?!\S)",
    re.I,
)
_CANONICAL = {name.casefold(): name for name in FIELDS}


@dataclass(frozen=True, slots=True)
class Query:
    """`years` is "2020", "2019-2021", "2019-", "-2021", or "" for any."""

    text: str
    years: str = ""
    fields: tuple[str, ...] = ()


def read_query(written: str) -> Query:
    """The words, the years and the fields of study of a query; the last named years count."""
    years, fields = "", dict[str, None]()

    def take(found: re.Match[str]) -> str:
        nonlocal years
        if found["years"]:
            years = found["years"]
            return ""
        named = known_fields(found["quoted"] or found["bare"])
        fields.update(dict.fromkeys(named))
        return "" if named else found[0]

    text = _NARROWING.sub(take, written)
    return Query(" ".join(text.split()), years, tuple(fields))


def known_fields(names: str) -> tuple[str, ...]:
    """The fields in a list with commas, spelt as they are known; () if any is unknown."""
    found = [_CANONICAL.get(" ".join(name.split()).casefold()) for name in names.split(",")]
    return () if None in found else tuple(name for name in found if name)


def narrowed(query: str, attributes: Mapping[str, str]) -> str:
    """The query of a tool call with what its attributes narrow written into it."""
    years = attributes.get("year") or attributes.get("years") or ""
    fields = known_fields(attributes.get("field") or attributes.get("fields") or "")
    if re.fullmatch(_YEARS, years):
        query += f" year:{years}"
    return f'{query} field:"{",".join(fields)}"' if fields else query
