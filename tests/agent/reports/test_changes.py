"""What changed between two reports: by numbers and sources, whatever the words."""

from rubricem.agent.reports.changes import ReportChange, changes_between, changes_shown
from rubricem.memory.schema import CitationCheck, Status, Trajectory, Verification
from tests.support.values import source, trajectory

A, B = source(1, "Bound."), source(2, "Evicts.")


def said(*claims: str, status: Status = Status.FINISHED) -> Trajectory:
    """A report of claims such as `S1 S2: words`."""
    parts = (claim.partition(": ") for claim in claims)
    cited = (f'<cite id="{ids.replace(" ", ",")}">{text}</cite>.' for ids, _, text in parts)
    apart = B.model_copy(update={"location": "https://b.test/x"})
    return trajectory(" ".join(cited), sources=(A, apart), status=status)


def kinds(before: Trajectory, now: Trajectory) -> list[tuple[str, str]]:
    found = changes_between(before, now)
    return [
        (f"{'gone' if c.gone else 'new'}{'' if c.places else '_source'}", c.text) for c in found
    ]


def test_a_claim_is_the_same_by_its_numbers_and_a_source_in_any_words():
    old = said("S1: It keeps 128 entries", "S1: Der Speicher ist begrenzt")
    assert kinds(old, said("S1: 128 is the number that it keeps", "S1: It is bounded")) == []
    new = said("S1: It keeps 256 entries", "S1: It is bounded", "S2: It is bounded")
    assert kinds(old, new) == [
        ("new", "It keeps 256 entries"),
        ("new_source", "https://b.test/x"),
        ("gone", "It keeps 128 entries"),
    ]
    assert [kind for kind, _ in kinds(new, old)] == ["new", "gone", "gone_source"]
    whole, parts = said("S1: 28, and 14 at night"), said("S1: 28 by day", "S1: 14 at night")
    assert kinds(whole, parts) == kinds(parts, whole) == []
    more = kinds(parts, said("S1: 30, and 14 at night"))
    assert more == [("new", "30, and 14 at night"), ("gone", "28 by day")]


def test_a_changed_cell_is_told_with_its_row_and_column():
    def table(price: str) -> Trajectory:
        cell = f'<cite id="S1">{price}</cite>'
        return trajectory(f"| | Price |\n|---|---|\n| Hotel | {cell} |", sources=(A,))

    changed = [("new", "Hotel | Price: 30"), ("gone", "Hotel | Price: 28")]
    assert kinds(table("28"), table("30")) == changed


def test_of_a_report_that_ended_early_nothing_is_gone():
    old, early = said("S1: It keeps 128", "S2: It has 3"), said("S2: 3", status=Status.PARTIAL)
    assert kinds(old, early) == []
    assert kinds(old, said("S2: 3")) == [("gone", "It keeps 128"), ("gone_source", A.location)]


def test_a_claim_that_a_check_refuted_counts_for_nothing():
    new = said("S1: It keeps 128")
    check = CitationCheck(source="S1", claim="It keeps 128", verdict="unsupported", reason="no")
    checks = Verification(mode="mark", checker="lexical rules", checks=(check,))
    assert kinds(said(), new.model_copy(update={"verification": checks})) == []
    assert kinds(said(), new) == [("new", "It keeps 128"), ("new_source", A.location)]


def test_changes_are_shown_as_lists_in_which_no_markup_of_a_model_lives():
    claim = ReportChange(text="See ![x](http://a.test/y) <b>", places=("http://b.test/",))
    shown = changes_shown([claim, ReportChange(text="notes/a.md", gone=True)])
    heads = [line for line in shown.splitlines() if not line.startswith("- ")]
    assert heads == ["### New", "", "", "### Sources no longer cited", ""]
    assert (
        "<http://b.test/>" in shown
        and r"\<b>" in shown
        and "](http" not in shown.replace(r"\](http", "")
    )
    assert changes_shown([]) == "Nothing changed."
