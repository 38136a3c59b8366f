"""What whoever runs the server sees: probes, counts, addresses, and a log without keys."""

import io
import logging
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rubricem.agent.serve.operating import log_to
from tests.support import pages
from tests.support.pages import PATIENCE, begun_server, website


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    logging.basicConfig(level=level, handlers=handlers, force=True)


def counted(text: str) -> dict[str, float]:
    """Every sample by its name and labels."""
    return {
        "".join([sample.name, *map(str, sample.labels.values())]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_probes_need_no_token_and_counts_and_addresses_do(tmp_path: Path):
    with website(tmp_path, token="right-token") as site:
        known = {"Authorization": "Bearer right-token"}
        with httpx.Client(base_url=site.url, timeout=PATIENCE) as http:
            assert http.get("/healthz").json() == {"alive": True}
            assert http.get("/readyz").json() == {"ready": True, "hindrances": {}}
            for path in ("/metrics", "/api/openapi.json"):
                assert http.get(path).status_code == 401
            http.headers = {**known, "X-Rubricem": "1"}
            run = http.post("/api/runs", json={"question": pages.QUESTION}).json()["run"]
            with http.stream("GET", f"/api/runs/{run}/events") as events:
                assert "finished" in events.read().decode()
            found = counted(http.get("/metrics").text)
            schema = http.get("/api/openapi.json").json()
            (tmp_path / "data").rename(tmp_path / "away")
            ready = http.get("/readyz")
            (tmp_path / "away").rename(tmp_path / "data")
    assert found["rubricem_runs_ended_totalfinished"] == 1
    assert found["rubricem_tokens_totalprompt"] > 0 == found["rubricem_runsrunning"]
    assert found["rubricem_run_seconds_count"] == found["rubricem_run_seconds_bucket+Inf"] == 1
    assert found["process_resident_memory_bytes"] > 1e6
    assert {"get", "patch", "delete"} <= set(schema["paths"]["/api/runs/{run}"])
    assert ready.status_code == 503 and "data directory" in ready.json()["hindrances"]


def test_no_key_reaches_the_log_whoever_writes_it(logged: io.StringIO):
    log_to(logged, "info", {"k3y-of-a-server", 'quoted"key'})
    ours, other = logging.getLogger("rubricem.x"), logging.getLogger("other")
    ours.info("asked with %s", "Bearer k3y-of-a-server")
    other.info("not told")
    other.warning('a "quoted"key" and a line\n2026 forged\x1b[31m')
    try:
        raise ValueError("k3y-of-a-server was refused")
    except ValueError:
        ours.exception("it failed")
    text = logged.getvalue()
    assert "k3y" not in text and "quoted" not in text and "not told" not in text
    assert text.count("***") >= 3 and "\x1b" not in text


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 by itself, with its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    asked = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=own"
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", "-"]
    made = subprocess.run(["openssl", *asked.split(), *more], capture_output=True, check=True)
    path.write_bytes(path.read_bytes() + made.stdout)
    return path


@pytest.mark.slow
def test_a_server_with_a_certificate_is_opened_by_tls_and_logs_who_asked(
    tmp_path: Path, certificate: Path
):
    options = ("--tls-cert", str(certificate), "--base-url", "http://127.0.0.1:9/v1")
    logs = ("--log-level", "info")
    with (
        (tmp_path / "log").open("w") as log,
        begun_server(tmp_path, *options, *logs, until="This link", log=log, terminal=True) as (
            lines,
            process,
        ),
    ):
        address, ticket = lines[-1].split()[-1].split("#token=")
        assert address.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=address, verify=trusting, timeout=PATIENCE) as http:
            body = {"token": ticket}
            reply = http.post("/api/login?x=s3cret", json=body, headers={"X-Rubricem": "1"})
            port = httpx.URL(address).port
            assert reply.headers["set-cookie"].startswith(f"__Host-rubricem-{port}=")
            assert "; Secure" in reply.headers["set-cookie"]
            http.headers["X-Rubricem-Key"] = reply.json()["key"]
            assert http.get("/api/runs/%0aforged").status_code == 404
        process.terminate()
        process.wait()
    written = (tmp_path / "log").read_text().splitlines()
    said = [line.split() for line in written if " uvicorn.access: " in line]
    assert [each[5:] for each in said] == [
        ['"POST', "/api/login", 'HTTP/1.1"', "200"],
        ['"GET', "/api/runs/%0Aforged", 'HTTP/1.1"', "404"],
    ]
    assert ticket not in str(said) and "s3cret" not in str(said)
