"""What an answer says without a source: sentences, addresses and lists of its own making.

A policy is told to cite every claim and to write no list of sources, which is added from what was
really fetched. What it writes all the same is not hidden: sentences that state numbers or names are
counted and shown, and an address or DOI that no tool returned, and an entry of a list of references
of its own, bear the mark of a claim without a source.
"""

import re
from collections.abc import Collection, Iterator

from rubricem.agent.reports.rules import missing_names, numbers
from rubricem.agent.sources.fetch import addresses_in
from rubricem.memory.language import sentences

_FENCED = re.compile(r"```.*?(?:```|\Z)", re.S)
_DOI = re.compile(r"\b10\.\d{4,9}/[^\s\"<>\]]+", re.I)
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s+|\*\*)?(.{3,40}?)(?:\*\*)?\s*:?\s*(?:\*\*)?$")
_ENTRY = re.compile(
    r"\s*\ufdd2|\s*(?:[-*+\u2022]|\[?\^?\w{1,4}[\].):]+)\s+\S|(?=.*[(,.]\s?(?:1[5-9]|20)\d\d[a-z]?[).,])"
)
"""a claim that cites, an item of a list, or what gives a year as such entries do: (2019)."""
_LISTS = """
    references, sources, bibliography, citations, literature, works cited, further reading,
    sources cited, cited sources, quellen, literatur, literaturverzeichnis, belege, références,
    bibliographie, referencias, fuentes, bibliografía, riferimenti, fonti, bronnen, источники,
    литература, 参考文献, 参考资料, 出典, 참고문헌
"""
LISTS = frozenset(heading.strip() for heading in _LISTS.split(","))
"""headings of a list of sources, in lower case"""
LONGEST_HEADING = 60
"""characters of a line that may be one"""
LEAST_WORDS = 4
"""of a sentence that states something"""


def uncited_sentences(text: str, held: str) -> list[str]:
    """The sentences of an answer's prose that state a number or a name and cite nothing.

    `text`: of the answer, with the mark `held` in place of each claim that cites. Headings, tables
    and code state what stands beside them, and questions nothing.
    """
    found = []
    for line in _FENCED.sub("", text).splitlines():
        plain = line.strip()
        if not plain or plain.startswith(("#", "|", ">")) or plain.endswith(":"):
            continue
        for said in (each.strip(" -") for each in sentences(plain)):
            label = said.startswith("**") and said.endswith("**")
            stated = len(said.split()) >= LEAST_WORDS and not (label or said.endswith("?"))
            if stated and held not in said and (numbers(said) or missing_names(said, "")):
                found.append(said.strip("* "))
    return found


def unknown_addresses(text: str, known: Collection[str], told: str) -> list[str]:
    """Addresses and DOIs of a text that are none of the `known` ones, nor in what was `told`."""
    found = [each for each in addresses_in(text) if each not in known and each not in told]
    if dois := [doi.rstrip(".,;)") for doi in _DOI.findall(text)]:
        held = f"{told} {' '.join(known)}".casefold()
        found += (doi for doi in dois if doi.casefold() not in held)
    return found


def own_references(text: str) -> Iterator[tuple[int, int]]:
    """Where the entries of lists of references stand in a text: (start, end) of each line."""
    at, within = 0, False
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\n")
        heading = _HEADING.fullmatch(bare) if len(bare) <= LONGEST_HEADING else None
        if heading and heading[1].strip().casefold() in LISTS:
            within = True
        elif within and _ENTRY.match(bare):
            yield at, at + len(bare)
        elif bare.strip():
            within = False
        at += len(line)
