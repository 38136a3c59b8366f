"""How many small faults the tests notice: one change at a time, and the tests that pass over it.

    python -m benchmarks.mutants [--quick | --full] [--before DIR] [--folder DIR] [--of FILE]

A mutant is one change to one line of the rooms judge and memory, of training/objective, of
agent/research and agent/transcript: a comparison turned or moved by one, `and` for `or`, a
condition negated, a number raised by one, a truth value turned, a sum made a difference, a `raise`
or a call left out. The tests that pass over the changed line, found by a run with line coverage,
are then run in a copy of the checkout; a mutant is killed where one of them fails or takes too
long, and survives where none does or none passes over it.

`--before`: another checkout, an older one say, with a `.venv` of its own. Mutants are then drawn
from those statements that stand in both, in functions of one name, so that both answer the same
questions. An older checkout whose tests lie flat is asked those that became these rooms' tests
(`tests/data/moved_tests.tsv`). `--full` draws 200, `--quick` 10, `--count` any number: always the
first of one seeded order. Tests that fail without a change are asked nothing.

`--of`: this module alone, asked of its own file of tests; which lines nobody looks at is then told
in minutes. May be named several times.

`--folder`: where the copies, the coverage of every few files of tests and every outcome are kept,
so that a run which was ended goes on where it was, on the checkouts as they were when it began.
"""

import argparse
import ast
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import RESULTS, emit

ROOT = Path(__file__).parent.parent
PLACES = ("judge", "memory", "training", "agent")
QUICK, FULL = 10, 200
MOST_TESTS = 40
"""tests run of those that pass over a line, drawn by the seed; all of them where two checkouts
differ, as the draw may have missed the one that looks"""
TOGETHER = 8
"""files of tests whose coverage is found, and kept, at once"""
SECONDS = 240
SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Mutant:
    """One change, named by what it changes and not by where that stands."""

    function: str
    statement: str
    """the statement as it is, written anew"""
    change: str
    file: Path
    """from the checkout"""
    line: int
    text: str
    """the whole file with the change"""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.function, self.statement, self.change


def changed_files(root: Path) -> list[Path]:
    """The modules that are changed, in either layout of the rooms."""
    found: list[Path] = []
    for folder in ("judge", "memory", "training/objective", "agent/research", "agent/transcript"):
        found += sorted((root / folder).rglob("*.py"))
    for stem in ("objective*", "packing", "tensors", "window_weights"):
        found += sorted((root / "training").glob(f"{stem}.py"))
    if not (root / "agent" / "research").is_dir():
        names: tuple[str, ...] = (
            "acting",
            "asking",
            "budgets",
            "calls",
            "evidence",
            "forced",
            "free",
            "graph",
        )
        names += ("overlap", "reading", "recalling", "rejection", "researcher", "run", "scaffold")
        found += [root / "agent" / f"{name}.py" for name in names]
    return [path for path in found if path.is_file()]


def mutants_of(root: Path, path: Path) -> Iterator[Mutant]:
    source = path.read_text(encoding="utf-8")
    lines = source.split("\n")
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in ast.walk(function):
            if not isinstance(statement, ast.stmt) or _is_nested(function, statement):
                continue
            whole = ast.unparse(statement).split("\n")[0]
            for change, node, text in _changes(statement):
                written = _with(lines, node, text)
                if written is not None:
                    place = path.relative_to(root)
                    yield Mutant(function.name, whole, change, place, node.lineno, written)


def _is_nested(function: ast.AST, statement: ast.stmt) -> bool:
    """Whether it is the function, its docstring or of a function inside it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return True
    inner = (
        node
        for node in ast.walk(function)
        if node is not function and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return any(statement in ast.walk(node) for node in inner)


def _changes(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """What can be changed in the statement's own line: the change, the node, its new text."""
    if isinstance(statement, ast.Raise):
        yield "raise left out", statement, "pass"
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        yield "call left out", statement, "pass"
    if isinstance(statement, ast.If | ast.While):
        yield "condition negated", statement.test, f"not ({ast.unparse(statement.test)})"
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            for node in ast.walk(child):
                yield from _expression(node)


def _expression(node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPS:
            other = SWAPS[type(operator)]()
            turned = ast.unparse(ast.Compare(node.left, [other], node.comparators))
            yield f"{ast.unparse(node)}: {type(other).__name__}", node, f"({turned})"
        case ast.BoolOp(op=joined):
            either = ast.Or() if isinstance(joined, ast.And) else ast.And()
            turned = ast.unparse(ast.BoolOp(either, node.values))
            yield f"{ast.unparse(node)}: {type(either).__name__}", node, f"({turned})"
        case ast.BinOp(op=ast.Add() | ast.Sub() as sign):
            opposite = ast.Sub() if isinstance(sign, ast.Add) else ast.Add()
            turned = ast.unparse(ast.BinOp(node.left, opposite, node.right))
            yield f"{ast.unparse(node)}: {type(opposite).__name__}", node, f"({turned})"
        case ast.Constant(value=bool(value)):
            yield f"{value}: turned", node, str(not value)
        case ast.Constant(value=int(value)):
            yield f"{value}: raised", node, str(value + 1)


def _with(lines: Sequence[str], node: ast.expr | ast.stmt, text: str) -> str | None:
    """The file with this text in the node's place; None for what spans several lines."""
    if node.end_lineno != node.lineno or node.end_col_offset is None:
        return None
    line = lines[node.lineno - 1].encode()
    new = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
    return "\n".join([*lines[: node.lineno - 1], new.decode(), *lines[node.lineno :]])


def distinct(root: Path, of: Sequence[Path] = ()) -> dict[tuple[str, str, str], Mutant]:
    """All mutants of a checkout whose name is theirs alone, and that can still be read."""
    found: dict[tuple[str, str, str], list[Mutant]] = {}
    for path in [root / each for each in of] or changed_files(root):
        for mutant in mutants_of(root, path):
            found.setdefault(mutant.key, []).append(mutant)
    return {key: each[0] for key, each in found.items() if len(each) == 1 and _reads(each[0])}


def _reads(mutant: Mutant) -> bool:
    try:
        ast.parse(mutant.text)
    except SyntaxError:
        return False
    return True


class Checkout:
    """A copy of a checkout in which mutants are tried; one that is there is gone on with."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.python = str(root / ".venv" / "bin" / "python")
        self.root = folder
        left = shutil.ignore_patterns(".venv", ".git", "__pycache__", ".mypy_cache")
        if not folder.is_dir():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(root, part, ignore=left, symlinks=True)
            part.rename(folder)
        self._whole = folder.with_suffix(".whole")
        if self._whole.is_file():  # an earlier run was killed while a mutant stood there
            name, text = json.loads(self._whole.read_text(encoding="utf-8"))
            (folder / name).write_text(text, encoding="utf-8")

    def run(self, *arguments: str, seconds: float | None = None) -> bool:
        """Whether pytest was content."""
        path = os.pathsep.join([str(self.root / "src"), str(self.root)])
        done = subprocess.Popen(
            [self.python, "-m", "pytest", "-q", *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return done.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            os.killpg(done.pid, signal.SIGKILL)
            done.wait()
            return False

    def measure_coverage(self, tests: Sequence[str]) -> "Lines":
        """Which tests pass over which lines; file by file, so that an ended run goes on there."""
        database, cache = self.root / ".coverage", self.root / ".failed"
        noted = self.root / ".covered"
        done = noted.read_text(encoding="utf-8").split() if noted.is_file() else []
        for batch in batches_of([name for name in self._files(tests) if name not in done]):
            rooms = [f"--cov={room}" for room in PLACES]
            kept = ["--cov-context=test", "--cov-append", "-o", f"cache_dir={cache}"]
            self.run("-m", "not slow and not model", *rooms, *kept, *batch)
            with noted.open("a", encoding="utf-8") as out:
                out.write("".join(f"{name}\n" for name in batch))
        failed = cache / "v" / "cache" / "lastfailed"
        broken = json.loads(failed.read_text(encoding="utf-8")) if failed.is_file() else {}
        return Lines(database, frozenset(broken))

    def _files(self, tests: Sequence[str]) -> list[str]:
        """The files of tests below these folders, and those that are named."""
        paths = [self.root / name for name in tests]
        found = [f for p in paths for f in (p.rglob("test_*.py") if p.is_dir() else [p])]
        return sorted(str(path.relative_to(self.root)) for path in found)

    def kills(self, mutant: Mutant, tests: Sequence[str]) -> bool:
        """Whether one of the tests fails, or they take too long."""
        if not tests:
            return False
        path = self.root / mutant.file
        whole = path.read_text(encoding="utf-8")
        self._whole.write_text(json.dumps([str(mutant.file), whole]), encoding="utf-8")
        path.write_text(mutant.text, encoding="utf-8")
        try:
            seconds = SECONDS * math.ceil(len(tests) / MOST_TESTS)
            return not self.run("-x", "-p", "no:cacheprovider", *tests, seconds=seconds)
        finally:
            path.write_text(whole, encoding="utf-8")
            self._whole.unlink()


def batches_of(files: Sequence[str]) -> Iterator[Sequence[str]]:
    """So many files at a time as are worth a start of pytest."""
    yield from (files[at : at + TOGETHER] for at in range(0, len(files), TOGETHER))


class Lines:
    """Line coverage by test, from the database that coverage.py writes."""

    def __init__(self, database: Path, broken: frozenset[str]) -> None:
        self._base = sqlite3.connect(database)
        self.broken = broken
        """tests that fail without a change"""

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that pass over the mutant's line, by their ids."""
        from coverage.numbits import numbits_to_nums

        rows = self._base.execute(
            "select context.context, line_bits.numbits from line_bits"
            " join file on file.id = line_bits.file_id"
            " join context on context.id = line_bits.context_id where file.path like ?",
            (f"%/{mutant.file}",),
        )
        over = [name for name, bits in rows if mutant.line in numbits_to_nums(bits)]
        return sorted({name.split("|")[0] for name in over if "::" in name} - self.broken)


ASKED = tuple(
    f"tests/{folder}/"
    for folder in ("judge", "memory", "training/objective", "agent/research", "agent/transcript")
)
"""where the tests of the changed modules lie"""


def tests_for(root: Path, of: Sequence[Path] = ()) -> list[str]:
    """The tests that are asked: those of the modules, else of the rooms, else what became them."""
    if of:
        own = ("tests" / each.with_name(f"test_{each.name}") for each in of)
        return [str(path) for path in own if (root / path).is_file()]
    found = [folder for folder in ASKED if (root / folder).is_dir()]
    if found:
        return found
    moved = (ROOT / "tests" / "data" / "moved_tests.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in moved.splitlines())
    names = {old.split("::")[0] for old, new in rows if new.startswith(ASKED)}
    return sorted(name for name in names if (root / name).is_file())


class Trial:
    """A checkout with its coverage and the outcomes that are known."""

    def __init__(self, checkout: Checkout, seed: int, of: Sequence[Path] = ()) -> None:
        self.checkout = checkout
        self.found = distinct(checkout.root, of)
        self._seed = seed
        self._lines = checkout.measure_coverage(tests_for(checkout.root, of))
        self._kept = checkout.root.with_suffix(".jsonl")
        kept = self._kept.read_text(encoding="utf-8") if self._kept.is_file() else ""
        self._known: dict[tuple[str, ...], bool]
        self._known = {tuple(key): kill for *key, kill in map(json.loads, kept.splitlines())}
        print(f"{checkout.root.name}: {len(self._lines.broken)} tests fail without a change")

    def kills(self, key: tuple[str, str, str], *, by_all: bool = False) -> bool:
        """Whether the mutant is killed; what was tried before is not tried again."""
        name = (*key, "by all") if by_all else key
        if name not in self._known:
            mutant = self.found[key]
            tests = self._lines.tests(mutant)
            draw = random.Random(f"{self._seed} {key}")
            few = by_all or len(tests) <= MOST_TESTS
            chosen = tests if few else draw.sample(tests, MOST_TESTS)
            self._known[name] = kill = self.checkout.kills(mutant, chosen)
            with self._kept.open("a", encoding="utf-8") as out:
                out.write(json.dumps([*name, kill]) + "\n")
            said = "killed" if kill else "SURVIVED" if tests else "SURVIVED, no test"
            print(f"{said}: {mutant.file}:{mutant.line} {mutant.function}: {mutant.change}")
        return self._known[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} mutants (the default)")
    parser.add_argument("--full", action="store_true", help=f"{FULL} mutants")
    parser.add_argument("--count", type=int, help="so many mutants")
    parser.add_argument("--before", type=Path, help="another checkout to be asked the same")
    parser.add_argument("--folder", type=Path, help="where it is kept, to be gone on with")
    parser.add_argument("--of", type=Path, action="append", default=[], help="this module alone")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count = options.count or (FULL if options.full else QUICK)
    values: dict[str, float | int | str | bool | None] = {}
    raw: list[object] = []
    with tempfile.TemporaryDirectory() as name:
        kept = options.folder or Path(name)
        kept.mkdir(parents=True, exist_ok=True)
        roots = {"before": options.before, "after": ROOT}
        sides = {side: Checkout(root, kept / side) for side, root in roots.items() if root}
        trials = {
            side: Trial(checkout, options.seed, options.of) for side, checkout in sides.items()
        }
        keys = sorted(set.intersection(*({*trial.found} for trial in trials.values())))
        chosen = random.Random(options.seed).sample(keys, len(keys))[:count]
        values["mutants"] = len(chosen)
        killed: dict[str, list[bool]] = {side: [] for side in trials}
        for key in chosen:
            kills = {side: trial.kills(key) for side, trial in trials.items()}
            if len({*kills.values()}) > 1:
                kills = {s: kill or trials[s].kills(key, by_all=True) for s, kill in kills.items()}
            for side, kill in kills.items():
                killed[side].append(kill)
        for side, outcomes in killed.items():
            values[f"killed_{side}"] = sum(outcomes)
            values[f"killed_share_{side}"] = round(sum(outcomes) / len(outcomes), 3)
            raw.append({side: [[*k, kill] for k, kill in zip(chosen, outcomes, strict=True)]})
    holds = not options.before or values["killed_after"] >= values["killed_before"]  # type: ignore[operator]
    emit(
        "mutants",
        values,
        {"killed_share_after": "not below killed_share_before"} if options.before else {},
        holds,
        f"{len(chosen)} of {len(keys)} mutants, seed {options.seed}",
        RESULTS / "mutants.json" if options.full else None,
        raw,
    )


if __name__ == "__main__":
    main()
