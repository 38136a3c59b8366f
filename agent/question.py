"""What counts as a question, for every way in which one is asked."""

from memory.errors import SettingsError
from memory.text import storable

LONGEST_QUESTION = 20_000
"""characters; more is a document, and documents are sources"""


def checked(question: str) -> str:
    """The question, if it is one; raises SettingsError otherwise."""
    if not question.strip():
        raise SettingsError("There is no question.", 'Ask one: rubricem ask "How does ... work?"')
    if len(question) > LONGEST_QUESTION:
        raise SettingsError(
            f"The question has {len(question):,} characters; at most {LONGEST_QUESTION:,} can be "
            "asked at once.",
            "Put long material into a folder and name it with --source.",
        )
    return storable(question.strip())
