"""How many questions were read, and what became of them."""

from memory.schema import Value


class Selection(Value):
    """How the questions of a run were chosen from those that were read."""

    read: int
    filtered: int
    duplicates: int
    """dropped: the same text, but for spaces and case, came before"""
    held_out: int
    filters: tuple[str, ...] = ()
    held_out_share: float = 0.0

    def sentence(self) -> str:
        asked = self.read - self.filtered - self.duplicates - self.held_out
        return (
            f"{self.read} questions read, {self.filtered} filtered out, {self.duplicates} "
            f"duplicates dropped, {self.held_out} held out, {asked} asked"
        )
