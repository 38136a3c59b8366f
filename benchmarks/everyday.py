"""Questions as people ask them, over Python's libraries and the manuals of git, SQLite and Debian.

    python -m benchmarks.everyday [--quick | --full] [--split dev] [--model 1.5b] [--out FOLDER]

The 30 questions were written before anything was measured on them, from the manuals alone; half
are for tuning (`train`), the others (`dev`) stay unseen by whoever tunes. 48 more (`--split other`)
were written by somebody who knew neither code nor manuals as they stand here, 72 more later
(`--split third`), 28 after those (`--split fourth`), then 24 (`--split fifth`), then 20 on
topics that were drawn by chance (`--split sixth`), then 20 on topics that none of them has
(`--split seventh`), then 20 by somebody who knew none of the code (`--split eighth`), then 24 by
another who knew none of it (`--split ninth`), then 20 before what they ask for was looked at
(`--split tenth`). Each is asked as `rubricem ask` asks it.
Whether an answer is useful is for a reader to say: `useful` of a question says what it must tell,
this program prints each answer with its citations, and the reader's verdicts are joined in from
`results/everyday_read.jsonl`, one line each: `id`, `digest` of the answer that was read, `useful`,
`why`. Counted by code beside it: whether the pattern of the key fact matches the answer and a cited
claim. An answer is cited if a claim of it cites what was retrieved and the verifier does not call
it unsupported. Those that say that they are not certain are counted with the others, and alone.

The manuals come from Debian's packages when this is run, and stay in `--work`.
"""

import argparse
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.asked import (
    Row,
    ask_all,
    asking_options,
    json_lines,
    read_verdicts,
    spread_over,
)
from benchmarks.embedded import found
from benchmarks.report import RESULTS, Value, emit, kept_in, sized_parser, with_interval

QUESTIONS = Path(__file__).parent / "everyday_questions.jsonl"
READ = RESULTS / "everyday_read.jsonl"
QUICK = 6
HALVES = ("train", "dev")
"""of the 30"""
OTHERS = ("other", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
"""those by somebody else, and those of `seventh` by whoever mended what came before"""
USEFUL = 0.7
"""share of the answers that have to be useful and cited, as a reader sees them"""
PACKAGES: Mapping[str, Mapping[str, str]] = {
    "git": {"git-doc": "usr/share/doc/git-doc"},
    "sqlite": {"sqlite3-doc": "usr/share/doc/sqlite3"},
    "debian": {
        "debian-policy": "usr/share/doc/debian-policy",
        "debian-reference-en": "usr/share/debian-reference",
        "apt": "usr/share/man",
        "dpkg": "usr/share/man",
    },
}
"""of each manual: the packages it comes from, and where in them it lies"""
_ENGLISH = "man[1-9]/*.gz"
"""pages of the folder itself: those of its subfolders are translations"""


def manuals(names: Sequence[str], work: Path) -> dict[str, str]:
    """The folder of each manual, unpacked before or now.

    Raises SystemExit, with the remedy, where a package is not to be had or cannot be unpacked.
    """
    folders = {}
    for name in names:
        folder = work / "manuals" / name
        if not folder.exists():
            with tempfile.TemporaryDirectory() as temporary:
                unpacked = Path(temporary) / name
                for package, inside in PACKAGES[name].items():
                    copy_manual(unpack(package, Path(temporary)) / inside, unpacked / package)
                folder.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(unpacked, folder)
        folders[name] = str(folder)
    return folders


def unpack(package: str, folder: Path) -> Path:
    """A Debian package of the configured archive, downloaded and unpacked, not installed."""
    _run(["apt-get", "download", package], folder, package)
    archive = next(folder.glob(f"{package}_*.deb"))
    _run(["dpkg-deb", "-x", str(archive), package], folder, package)
    return folder / package


def copy_manual(root: Path, folder: Path) -> None:
    """The pages of html, and the English manual pages as text with their headings marked."""
    for page in root.rglob("*.html"):
        if page.is_file():
            copied = folder / page.relative_to(root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, copied)
    folder.mkdir(parents=True, exist_ok=True)
    for page in root.glob(_ENGLISH):
        text = _run(["man", "-E", "UTF-8", "--nh", "--nj", "-l", str(page)], folder, page.name)
        (folder / f"{page.stem}.md").write_text(as_markdown(page.stem, text), encoding="utf-8")


def as_markdown(name: str, text: str) -> str:
    """A formatted manual page: what begins at the margin is a heading, all else is its text."""
    lines = [f"# {name}"]
    for line in text.strip().splitlines()[1:-1]:  # the page's name stands above and below
        lines.append(f"## {line}" if line[:1].strip() else line.removeprefix("       "))
    return "\n".join(lines) + "\n"


def _run(command: Sequence[str], folder: Path, wanted: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True, errors="replace"
        )
    except FileNotFoundError:
        why = f"there is no {command[0]} here"
    except subprocess.CalledProcessError as error:
        why = (error.stderr.strip().splitlines() or ["it failed"])[-1]
    else:
        return done.stdout
    raise SystemExit(
        f"{wanted} is not to be had by `{command[0]}`: {why}. Run this on Debian with a package "
        "archive and man-db, or ask what needs no package by --source python."
    )


def grade(question: Row, row: Row) -> Row:
    """What code tells of an answer: the key fact in it, and whether and what it cites."""
    held = [c for c in row["claims"] if any(k["verdict"] != "unsupported" for k in c["cites"])]
    return {
        "pattern": found(question["pattern"], row["plain"]),
        "cited": bool(held),
        "fact_cited": any(found(question["pattern"], claim["text"]) for claim in held),
    }


def figures(
    questions: Sequence[Row], rows: Sequence[Row], read: Mapping[tuple[str, str], Row]
) -> dict[str, Value]:
    """Shares of the questions; of the reader's verdicts those for just these answers count."""
    count = len(rows)
    grades = [grade(question, row) for question, row in zip(questions, rows, strict=True)]
    verdicts = [read.get((row["id"], row["digest"])) for row in rows]
    useful = [
        bool(verdict and verdict["useful"] and graded["cited"])
        for verdict, graded in zip(verdicts, grades, strict=True)
    ]
    unsure = [bool(row.get("doubted")) for row in rows]
    values: dict[str, Value] = {"n": count, "read": sum(v is not None for v in verdicts)}
    values["not_certain"] = sum(unsure)
    for key in ("pattern", "cited", "fact_cited"):
        values[f"{key}_share"] = round(sum(graded[key] for graded in grades) / count, 3)
    if all(verdicts):
        values |= with_interval("useful_and_cited_share", sum(useful), count)
        doubted = [u for u, n in zip(useful, unsure, strict=True) if n]
        values["useful_and_cited_not_certain"] = f"{sum(doubted)} of {len(doubted)}"
        for name in dict.fromkeys(question["source"] for question in questions):
            of_it = [u for u, q in zip(useful, questions, strict=True) if q["source"] == name]
            values[f"useful_and_cited_{name}"] = f"{sum(of_it)} of {len(of_it)}"
    values["seconds_median"] = statistics.median(row["seconds"] for row in rows)
    values["searches_mean"] = round(statistics.mean(row["searches"] for row in rows), 2)
    return values


async def main(arguments: argparse.Namespace, out: Path) -> None:
    questions = json_lines(QUESTIONS.read_text(encoding="utf-8"), QUESTIONS, "id", "useful")
    splits = (arguments.split,) if arguments.split else HALVES
    questions = [q for q in questions if q["split"] in splits]
    questions = [q for q in questions if arguments.source in (None, q["source"])]
    asked = questions if arguments.full else spread_over(questions, QUICK)
    named = dict.fromkeys(q["source"] for q in asked if q["source"] != "python")
    sources = {"python": "python"} | manuals([*named], arguments.work)
    rows = await ask_all(asked, sources, arguments, out)
    values = figures(asked, rows, read_verdicts(READ, "useful"))
    if values["read"] != len(rows):
        print(f"{len(rows)} answers, of which {values['read']} were read: see {READ}")
    emit(
        "everyday",
        {"model": arguments.model, **values},
        f"{len(asked)} of {len(questions)} questions of our own, written before measuring; useful "
        "by reading, facts by pattern; manuals of Debian's packages; "
        f"--split {arguments.split or ' and '.join(HALVES)}",
        least={"useful_and_cited_share": USEFUL},
    )


if __name__ == "__main__":
    parser = sized_parser(__doc__, f"{QUICK} questions (default)", "all of a split, or of both")
    parser.add_argument("--source", choices=("python", *PACKAGES), help="the questions of one")
    work = Path(tempfile.gettempdir()) / "rubricem-everyday"
    asking_options(parser, work, (*HALVES, *OTHERS))
    kept_in(parser, main)
