"""A damaged PDF is read with what is wrong as its note, and nothing on standard error."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

from agent.sources.overheard import LONGEST, complaint, overheard
from agent.sources.readers import read_document
from tests.conftest import ROOT
from tests.test_readers import write_pdf

READ = (
    "import sys; from pathlib import Path; from agent.sources.readers import read_document; "
    "print(read_document(Path(sys.argv[1])).note)"
)


def damaged(path: Path) -> Path:
    """A PDF whose table of contents is said to stand where it does not."""
    write_pdf(path, ["Bees dance."])
    whole = path.read_bytes()
    at = whole.rindex(b"startxref")
    path.write_bytes(whole[:at] + b"startxref\n7\n%%EOF\n")
    return path


def test_what_the_library_says_of_a_damaged_pdf_is_its_note(tmp_path: Path) -> None:
    path = damaged(tmp_path / "a.pdf")
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("damaged, with ") and done.stdout.count("\n") == 1
    document = read_document(path)
    assert document.note == done.stdout.strip()
    assert [section.text for section in document.sections] == ["Bees dance."]


def test_a_whole_pdf_has_no_note(tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", ["Bees dance."])
    assert read_document(tmp_path / "a.pdf").note == ""


def test_each_thread_hears_of_its_own_document() -> None:
    library = logging.getLogger("tests.overheard.reader")
    with overheard("tests.overheard") as faults:
        library.warning("mine %d", 1)
        other = threading.Thread(target=library.warning, args=("another's",))
        other.start()
        other.join()
        library.info("of no concern")
    library.warning("too late")
    assert faults == ["mine 1"]


def test_faults_are_told_on_one_line_that_shows_anything_safely() -> None:
    assert complaint([]) == ""
    assert complaint(["Object 3\n\x1b[31m is gone."]) == "damaged, with 1 fault: Object 3 is gone"
    told = complaint(["x" * 1000, "y", "z"])
    assert told.startswith("damaged, with 3 faults, the first: xxx")
    assert len(told) < LONGEST + 40
