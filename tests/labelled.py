"""Labelled pairs and verdicts on them, in few words."""

from judge.evaluation.labelled import Comparison, Pair, Side, Style, Winner


def pair(
    name: str,
    better: Side = "first",
    *,
    subset: str = "",
    styles: tuple[Style, Style] | None = None,
    first: str = "one",
    second: str = "two",
) -> Pair:
    return Pair(
        id=name,
        prompt=f"prompt {name}",
        first=first,
        second=second,
        better=better,
        subset=subset,
        styles=styles,
    )


def said(name: str, *winners: Winner | None, shares: tuple[float, ...] = ()) -> list[Comparison]:
    """What was said of a pair as given, and then swapped; in the pair's own numbering."""
    return [
        Comparison(
            pair=name, swapped=swapped, winner=winner, share=shares[swapped] if shares else None
        )
        for swapped, winner in zip((False, True), winners, strict=False)
    ]
