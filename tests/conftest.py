"""What every test stands on: no network beyond loopback, no home but a temporary one.

The network is guarded by an audit hook, which sees every socket of this process whoever opens
it; an attempt raises, and fails its test even where the code under test survives the error.
"""

import asyncio
import gc
import ipaddress
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from functools import cache
from itertools import chain, count
from pathlib import Path

import httpcore2
import pytest
from click.testing import CliRunner, Result

# Tests run beside each other: a second thread of torch or numpy waits for its turn by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from rubricem.agent.cli import main
from rubricem.agent.weights.catalogue import DEFAULT_EMBEDDER, lookup
from rubricem.agent.weights.store import WeightsStore, weights_dir

ROOT = Path(__file__).parent.parent
WEIGHTS_DIR = weights_dir()
"""the cache of the person who runs the tests: weights are fetched once, not for each run"""
ENVIRONMENT = dict(os.environ)
OWN_VARIABLES = ("RUBRICEM_", "OPENAI_", "XDG_", "HF_")
LONG = 900
"""seconds for a test that is slow, or the first to want weights; pyproject.toml has the others'"""
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
COMMAND = (sys.executable, "-c", "from rubricem.agent.cli import main; main(prog_name='rubricem')")


def rubricem(*arguments: object, code: int = 0, typed: str | None = None) -> Result:
    """The command in this process; it fails where that does not end with `code`."""
    done = CliRunner().invoke(main, [*map(str, arguments)], input=typed)
    assert done.exit_code == code, done.output
    return done


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """All of an archive of ours; the earliest releases of Python 3.11 know no filters."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)


def refusal(*arguments: object, code: int = 2) -> str:
    """What a command says that is refused: a sentence and a remedy on standard error."""
    done = rubricem(*arguments, code=code)
    told = [line for line in done.stderr.splitlines() if line]
    assert (done.stdout, len(told)) == ("", 2) and told[0].startswith("error: "), done.output
    return done.stderr


class NetworkForbidden(RuntimeError):
    """A test reached for an address beyond loopback."""


def is_local(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else str(host)
    if name in ("", "None", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


_attempts: list[str] = []


def _guard(event: str, args: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.sendto"):
        address = args[1]
        host: object = address[0] if isinstance(address, tuple) else None  # else a Unix socket
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = args[0]
    else:
        return
    if not is_local(host):
        _attempts.append(f"{event} {host!r}")
        raise NetworkForbidden(f"tests stay on this machine, but there was {event} {host!r}")


sys.addaudithook(_guard)
_read = httpcore2.default_ssl_context
_kept = cache(lambda trusting, file: _read(_trust_env=trusting))
# Certificates take 20 ms to read, and most tests have several clients that would have them read.
httpcore2.default_ssl_context = lambda _trust_env: _kept(_trust_env, os.getenv("SSL_CERT_FILE"))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has what it begins in the background ignore ^C, and so would all that tests begin.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[object]) -> None:
    """Fork the workers once all is imported that they are to run."""
    from tests.support import forked

    wanted = [ROOT / argument.partition("::")[0] for argument in config.args]
    found = [[path] if path.is_file() else sorted(path.rglob("test_*.py")) for path in wanted]
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        forked.import_tests(chain.from_iterable(found), ROOT)
        forked.fork(len(specs))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What fetches or runs weights takes longer."""
    for item in items:
        if item.get_closest_marker("slow") or item.get_closest_marker("model"):
            item.add_marker(pytest.mark.timeout(LONG))


def pytest_collection_finish() -> None:
    """What all tests import stays: it is looked through for garbage once, and not again and again.

    A training looks at its end, among 730,000 objects otherwise, which takes half a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def forbidden_attempts() -> Iterator[list[str]]:
    """The attempts to leave this machine; a test passes only if there is none left at its end."""
    _attempts.clear()
    yield _attempts
    assert not _attempts, f"the test reached for the network: {_attempts}"


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names for folders; pytest would look through all there are for each one, 3 ms at last."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) for number in count())


@pytest.fixture(autouse=True)
def home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory, and an environment that configures nothing."""
    folder = next(homes)
    folder.mkdir(mode=0o700)
    for name in os.environ:
        if name.startswith(OWN_VARIABLES) or name.upper() in PROXIES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(folder / kind.lower()))
    return folder


@pytest.fixture(scope="session")
def weights_05b() -> Path:
    """The verified 0.5B, fetched once into the cache outside the checkout."""
    return fetched("0.5b")


@pytest.fixture(scope="session")
def weights_15b() -> Path:
    """The verified 1.5B, the default model of `ask`."""
    return fetched("1.5b")


def fetched(name: str) -> Path:
    weights = lookup(name)
    assert weights is not None
    if not (WEIGHTS_DIR / weights.folder).exists():
        # Another process fetches, since this one may not leave the machine.
        fetch = (*COMMAND, "models", "fetch", weights.name)
        subprocess.run(fetch, cwd=ROOT, env=ENVIRONMENT, check=True)
    return asyncio.run(WeightsStore(WEIGHTS_DIR).model(name))


@pytest.fixture
def minilm(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default embedder's folder, also where code looks for it; without it a test is skipped."""
    weights = lookup(DEFAULT_EMBEDDER)
    if weights is None or not (WEIGHTS_DIR / weights.folder).exists():
        pytest.skip("the embedding model is not on disk")
    monkeypatch.setenv("RUBRICEM_WEIGHTS_DIR", str(WEIGHTS_DIR))
    return WEIGHTS_DIR / weights.folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that both torch and llama.cpp load in no time."""
    from tests.support.tiny import write_tiny

    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch on one thread: sums then come out the same however busy the machine is."""
    import torch

    held = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(held)
