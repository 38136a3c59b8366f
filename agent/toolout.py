"""Tool output as the policy reads it: numbered snippets, untrusted text made harmless."""

from collections.abc import Iterable

from agent.asking import Found
from agent.scaffold import neutralise
from memory.schema import Source

CHARACTERS_A_WORD = 10


def tool_output(found: Found, words: int) -> str:
    """The `<tool_output>` block; a source shown before is named and not shown again."""
    note = f"{neutralise(found.note)}\n" if found.note else ""
    if found.error:
        reason = neutralise(" ".join(found.error.split())).replace('"', "'")
        said = note or "The search failed.\n"
        return f'<tool_output error="{reason}">\n{said}</tool_output>\n'
    if not found.sources and not note:
        return "<tool_output>\nNothing was found.\n</tool_output>\n"
    shown = (_snippet(source, source.id in found.new, words) for source in found.sources)
    return f"<tool_output>\n{note}" + "".join(shown) + "</tool_output>\n"


def excerpt(text: str, words: int) -> str:
    """The first `words` words, line breaks kept; scripts without spaces are cut by length."""
    parts = text.split(" ")
    short = text if len(parts) <= words else " ".join(parts[:words]) + " ..."
    longest = words * CHARACTERS_A_WORD
    return short if len(short) <= longest else short[:longest] + " ..."


def _snippet(source: Source, new: bool, words: int) -> str:
    body = _lines([source.title, excerpt(source.text, words)]) if new else "Shown above."
    return f'<snippet id="{source.id}">\n{body}\n</snippet>\n'


def _lines(parts: Iterable[str]) -> str:
    return neutralise("\n".join(part for part in parts if part))
