"""The image, the composition and the unit: what they name is there, and their linters pass them."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml

from rubricem.agent.cli import main
from rubricem.agent.cli.serve import PORT
from rubricem.agent.settings import PREFIX, Settings
from tests.conftest import ROOT
from tests.support.waiting import free_port, wait_for

DEPLOY = ROOT / "deploy"
IMAGE = (DEPLOY / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def unit() -> Any:
    read = configparser.RawConfigParser(strict=False)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string((DEPLOY / "rubricem.service").read_text())
    return read["Service"]


def accepted(command: list[str]) -> None:
    """Have a command line parsed; it fails for a flag that there is not."""
    with click.Context(main) as context:
        name, serve, rest = main.resolve_command(context, command)
        assert serve is not None
        serve.make_context(name, rest, parent=context)


def test_what_is_started_is_a_command_with_flags_that_exist(unit: Any):
    entry, begun = (
        json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", IMAGE, re.M)
    )
    assert entry == ["rubricem"]
    accepted(begun)
    program, *arguments = shlex.split(unit["ExecStart"])
    assert Path(program).name == "rubricem"
    accepted(arguments)
    assert f"EXPOSE {PORT}\n" in IMAGE and f":{PORT}/healthz" in IMAGE


def test_the_settings_that_are_named_exist(unit: Any):
    composed = (DEPLOY / "compose.yaml").read_text()
    named = re.findall(rf"{PREFIX}\w+", f"{IMAGE} {composed} {unit['Environment']}")
    assert {name[len(PREFIX) :].lower() for name in named} <= set(Settings.model_fields)


def test_the_image_copies_what_there_is_and_is_let_to_see_it():
    copied = [line.split()[1] for line in IMAGE.splitlines() if re.match("COPY (?!--)", line)]
    copied += ["README.md", "LICENSE"]
    seen = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert [path for path in copied if not (ROOT / path).exists() or f"!{path}" not in seen] == []
    # As the Makefile does: what the lock leaves out on purpose is not asked for.
    assert "pip install --no-deps --require-hashes -r constraints-ask.txt\n" in IMAGE


def test_the_composition_serves_loopback_alone_with_a_search_and_a_model_by_profile():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    published = [port for each in services.values() for port in each.get("ports", ())]
    assert published == [f"127.0.0.1:{PORT}:{PORT}"]
    assert {name: each.get("profiles") for name, each in services.items()} == {
        "rubricem": None, "searxng": None, "vllm": ["vllm"],
    }  # fmt: skip
    assert (DEPLOY / services["rubricem"]["build"]["context"] / "deploy" / "Dockerfile").is_file()
    (mounted,) = services["searxng"]["volumes"]
    settings = yaml.safe_load((DEPLOY / mounted.split(":")[0]).read_text())
    assert "json" in settings["search"]["formats"]


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("hadolint", ["hadolint", str(DEPLOY / "Dockerfile")]),
        ("systemd-analyze", ["systemd-analyze", "verify", "rubricem.service"]),
    ],
)
def test_a_linter_that_is_installed_finds_nothing(tmp_path: Path, tool: str, command: list[str]):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    text = (DEPLOY / "rubricem.service").read_text()
    # The program that it starts is on no machine of ours.
    (tmp_path / "rubricem.service").write_text(
        text.replace("/opt/rubricem/bin/rubricem", "/bin/true")
    )
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


class Stages:
    """The image's stages, each in a folder over Debian in the place of its base: no registry."""

    def __init__(self, where: Path, debian: Path) -> None:
        self.where, self.debian = where, debian
        self.root, self.env, self.place, self.user = where, dict[str, str](), "/", "0:0"

    def build(self) -> None:
        for line in re.sub(r"\\\n\s*|^#.*\n", "", IMAGE, flags=re.M).splitlines():
            word, _, rest = line.partition(" ")
            match word:
                case "FROM":
                    self.begin(rest.partition(" AS ")[2] or "last")
                case "ENV":
                    named = shlex.split(rest.replace("$PATH", self.env["PATH"]))
                    self.env |= dict(each.split("=", 1) for each in named)
                case "WORKDIR":
                    self.place = rest
                    (self.root / rest[1:]).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self.copy(rest)
                case "USER":
                    self.user = f"{rest}:{rest}"
                case "RUN":
                    assert self.run("sh", "-ec", rest).wait() == 0, line

    def begin(self, name: str) -> None:
        self.root, self.place = self.where / name, "/"
        subprocess.run(["cp", "-a", self.debian, self.root], check=True)
        for file in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
            shutil.copy(Path("/", file), self.root / file)
        (self.root / "usr/bin/python").symlink_to("python3")
        self.env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp", "LANG": "C.UTF-8"}
        self.env |= {name: held for name, held in os.environ.items() if name in PASSED_ON}

    def copy(self, asked: str) -> None:
        *names, to = asked.split()
        start = ROOT
        if names[0].startswith("--from="):
            start = self.where / names.pop(0).removeprefix("--from=")
        for name in names:
            target = self.root / Path(self.place, to).relative_to("/")
            subprocess.run(["cp", "-a", start / name.lstrip("/"), target], check=True)

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """A command in the present stage, as its user."""
        told = [f"{name}={held}" for name, held in self.env.items()]
        inside = ["env", "-i", "-C", self.place, *told, *command]
        return subprocess.Popen(["chroot", f"--userspec={self.user}", self.root, *inside])


PASSED_ON = {"PIP_CERT", "HTTPS_PROXY", "https_proxy"}
DEBOOTSTRAP = ("debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates")


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_steps_of_the_image_make_a_server_that_answers(tmp_path: Path):
    if shutil.which("debootstrap") is None or os.geteuid():
        pytest.skip("debootstrap is not installed, or this is not root")
    debian = tmp_path / "debian"
    subprocess.run([*DEBOOTSTRAP, "bookworm", debian], check=True, stdout=subprocess.DEVNULL)
    stages = Stages(tmp_path, debian)
    stages.build()
    (entry,) = json.loads(re.findall(r"^ENTRYPOINT (.*)$", IMAGE, re.M)[0])
    port = free_port()
    server = stages.run(entry, "serve", "--host", "127.0.0.1", "--port", str(port))
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/healthz"))
    finally:
        server.terminate()
        server.wait()
    assert (stages.root / "data/serve-token").stat().st_uid == int(stages.user.partition(":")[0])


def answers(address: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(address, trust_env=False).is_success
    return False


WAITS = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


@pytest.mark.parametrize("file", ["rounds.sbatch", "rounds.yaml"])
def test_rounds_on_several_machines_are_started_as_torchrun_and_the_command_read_it(file: str):
    """Their own parsers take every argument; nothing is started."""
    run = pytest.importorskip("torch.distributed.run")
    path = DEPLOY / file
    if path.suffix == ".yaml":
        job = next(one for one in yaml.safe_load_all(path.read_text()) if one["kind"] == "Job")
        assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
        container = job["spec"]["template"]["spec"]["containers"][0]
        arguments = [*container["command"], *container["args"]]
        waits = next(e["value"] for e in container["env"] if e["name"] == WAITS)
        granted = job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    else:
        assert subprocess.run(["bash", "-n", str(path)]).returncode == 0
        text = path.read_text().replace("\\\n", " ").partition("exec srun ")[2]
        values = {"SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "8", "SLURM_JOB_ID": "7",
                  "HEAD": "node1", "CONFIG": "rounds.toml"}  # fmt: skip
        arguments = shlex.split(re.sub(r"\$(\w+)", lambda name: values[name[1]], text))
        (waits,) = re.findall(rf"^export {WAITS}=(\d+)$", path.read_text(), re.M)
        (granted,) = re.findall(r"--signal=TERM@(\d+)", path.read_text())
    assert 240 < int(waits) < int(granted), "an update that is under way is saved before the end"
    assert arguments.pop(0) == "torchrun"
    told = run.get_args_parser().parse_args(arguments)
    assert (told.nnodes, told.nproc_per_node, told.no_python) == ("2", "8", True)
    assert (told.training_script, told.training_script_args[:2]) == (
        "rubricem",
        ["train", "ss-grpo"],
    )
