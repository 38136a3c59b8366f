"""Thinking that a server leaves in the reply's text, told apart from the text.

Only for models whose chat format thinks in `<think>` before every reply, and only where the
caller asks for it: the scaffold's own turns begin with a `<think>` that is part of them.
"""

OPEN, CLOSE = "<think>", "</think>"


def split_thinking(raw: str) -> tuple[str, str]:
    """(reasoning, text) of a reply, whole or as far as it has arrived.

    Thinking stands at the very start. Its opening tag may be missing, since some chat formats
    write that tag at the end of the prompt; without a closing tag an opened thought is all.
    """
    begun = raw.lstrip()
    if not begun.startswith(OPEN):
        # The first characters may still grow into the tag.
        if OPEN.startswith(begun):
            return "", ""
        thought, closed, text = raw.partition(CLOSE)
        return (thought.strip(), text.lstrip()) if closed else ("", raw)
    thought, _, text = begun.removeprefix(OPEN).partition(CLOSE)
    return thought.strip(), text.lstrip()
