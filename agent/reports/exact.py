r"""The bare answer of the format `exact`: what a script or a grader compares.

Policies are told to write it alone on the last line; some put it into `\boxed{...}` instead.
"""

import re

_BOX = "\\boxed{"
_LEAD = re.compile(r"(?:(?:the )?(?:final )?answer(?: is)?\s*:)\s*", re.I)
_FENCE = re.compile(r"\s*```\w*\s*")


def bare_answer(text: str) -> str:
    r"""What the last `\boxed{...}` holds, or else the last line without `Answer:` and emphasis."""
    boxed = [inner for _, _, inner in _boxes(text)]
    lines = [line for line in text.splitlines() if line.strip() and not _FENCE.fullmatch(line)]
    line = " ".join((boxed or lines or [""])[-1].split())
    line = _LEAD.sub("", line.replace("**", "") if line.startswith("**") else line, count=1)
    return line.strip("$ ") if line.count("$") == 2 else line.strip()


def unbox(text: str) -> str:
    r"""The text with every `\boxed{...}` replaced by what it holds."""
    parts, at = [], 0
    for start, end, inner in _boxes(text):
        parts += [text[at:start].removesuffix("$"), inner]
        at = end + 1 if text[end : end + 1] == "$" and text[:start].endswith("$") else end
    return "".join([*parts, text[at:]])


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and inside of each box; one that is never closed ends with its line."""
    found, at = [], 0
    while (start := text.find(_BOX, at)) >= 0:
        inside = start + len(_BOX)
        depth, end = 1, inside
        while end < len(text) and depth and text[end] != "\n":
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        found.append((start, end, text[inside : end if depth else end - 1]))
        at = end
    return found
