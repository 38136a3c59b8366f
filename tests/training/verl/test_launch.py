"""The scripts that start the nodes of a cluster, beside a Ray that notes what it is asked."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import rubricem.training.verl as engine

SCRIPT = Path(engine.__file__).parent / "launch" / "cluster.sh"
RAY = """#!/bin/sh
echo "$RAY_AUTH_MODE $*" >>"$HERE/asked"
case "$*" in
    "get-auth-token --generate") touch "$HERE/token" ;;
    "get-auth-token") [ -e "$HERE/token" ] ;;
    "list nodes"*) printf '"node_id": 1\\n"node_id": 2\\n' ;;
esac
"""
PROGRAMS = {"ray": RAY, "hostname": "#!/bin/sh\necho 10.0.0.1\n", "train.sh": "exit 7\n"}


@pytest.mark.parametrize(
    ("nodes", "token", "status", "asked"),
    [
        (1, False, 7, ["get-auth-token", "get-auth-token --generate", "start", "list", "stop"]),
        (2, True, 7, ["get-auth-token", "start", "list", "stop"]),
        (2, False, 1, ["get-auth-token"]),
    ],
    ids=["one node makes its token", "nodes share one", "nodes without one"],
)
def test_every_node_of_a_cluster_asks_for_its_token(
    tmp_path: Path, nodes: int, token: bool, status: int, asked: list[str]
) -> None:
    for name, content in PROGRAMS.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o700)
    if token:
        (tmp_path / "token").touch()
    script = shutil.copy(SCRIPT, tmp_path)
    own = {"HEAD": "10.0.0.1", "NODES": str(nodes), "HERE": str(tmp_path)}
    done = subprocess.run(
        ["bash", script], env={**os.environ, **own, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    lines = (tmp_path / "asked").read_text().splitlines()
    assert all(line.startswith("token ") for line in lines)
    told = [line.removeprefix("token ") for line in lines]
    assert [line if "auth" in line else line.split()[0] for line in told] == asked
    assert ("ray get-auth-token --generate" in done.stderr) is (status == 1)
