"""How large an installation is: the core, with the embedded model, and whatever else is asked for.

    python -m benchmarks.install [--quick | --full]

Each is a fresh environment into which pip installs this checkout with the extra, from the package
index and held to the versions of `constraints.txt`. Sizes are of the files of site-packages, pip
apart, bytecode included. `--full` installs `train` too: its torch comes from where pip's settings
say, which on Linux may be a build with gigabytes of CUDA libraries.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks.report import emit

ROOT = Path(__file__).parent.parent
MOST_MB = {"core": 400.0, "local": 1500.0}


def measure_install(extra: str, folder: Path) -> tuple[float, int]:
    """Megabytes (10**6 bytes) and packages of a fresh environment with the extra; "" is none."""
    venv.create(folder, with_pip=True)
    pins = re.sub(r" *\\\n +--hash=\S+", "", (ROOT / "constraints.txt").read_text())
    constraints = folder / "pins.txt"
    constraints.write_text(pins)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    wanted = f"{ROOT}[{extra}]" if extra else str(ROOT)
    command = [python, "-m", "pip", "install", "--quiet", "-c", constraints]
    subprocess.run([*map(str, command), wanted], check=True, stdout=sys.stderr)
    packages = next(folder.glob("**/site-packages"))
    files = [
        path
        for path in packages.rglob("*")
        if path.is_file() and not path.relative_to(packages).parts[0].startswith(("pip", "setupt"))
    ]
    size = sum(path.stat().st_size for path in files) / 1e6
    return size, sum(path.name == "METADATA" for path in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="core and local (the default)")
    size.add_argument("--full", action="store_true", help="the extra train too")
    full = parser.parse_args().full
    found = {}
    for name in ("core", "local", *(["train"] if full else [])):
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measure_install("" if name == "core" else name, Path(folder))
            print(f"{name}: {found[name][0]:,.0f} MB in {found[name][1]} packages", file=sys.stderr)
    emit(
        "install",
        {
            **{f"{name}_mb": round(megabytes, 1) for name, (megabytes, _) in found.items()},
            **{f"{name}_packages": count for name, (_, count) in found.items()},
        },
        {f"{name}_mb": f"<= {most:g}" for name, most in MOST_MB.items()},
        all(found[name][0] <= most for name, most in MOST_MB.items()),
        f"fresh environments of Python {sys.version.split()[0]} on {sys.platform}",
    )


if __name__ == "__main__":
    main()
