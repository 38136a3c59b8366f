"""What people say of a run: `rating.json` in its folder, every rating with its time.

The last one counts. It is evidence for whoever judges reflections on the run, and for nobody
else: the policy that writes them is to find out from the run itself how good it was.
"""

from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from memory.errors import SettingsError, StoreError
from memory.runs import unusable, write_atomically
from memory.schema import Value
from memory.text import storable

FILE = "rating.json"
BEST = 5
MOST_CHARACTERS = 2000
"""of one comment"""


class Rating(Value):
    """One person's word on an answer: 1, of no use, to 5, just what was asked for."""

    score: int = Field(ge=1, le=BEST)
    comment: str = ""
    at: datetime


_RATINGS = TypeAdapter(tuple[Rating, ...])


def rate(folder: Path, score: int, comment: str = "") -> Rating:
    """Add a rating to those of the run in this folder; earlier ones are kept.

    Raises SettingsError for a comment that is too long, StoreError where it cannot be kept.
    """
    if len(comment) > MOST_CHARACTERS:
        raise SettingsError(
            f"The comment has {len(comment):,} characters; {MOST_CHARACTERS:,} are kept.",
            "Say it in fewer words.",
        )
    rating = Rating(score=score, comment=storable(comment).strip(), at=datetime.now(UTC))
    ratings = (*ratings_in(folder), rating)
    write_atomically(folder / FILE, _RATINGS.dump_json(ratings, indent=1).decode())
    return rating


def ratings_in(folder: Path) -> tuple[Rating, ...]:
    """All ratings of the run in this folder, the last one, which counts, at the end."""
    path = folder / FILE
    try:
        return _RATINGS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise unusable(path, error) from error
    except ValidationError as error:
        raise StoreError(
            f"{path} holds no ratings: {error.errors()[0]['msg']}",
            "Remove it, and rate the run again.",
        ) from error
