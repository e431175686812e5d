"""HTTPS and unix sockets, as one starts them and as one pastes what is printed."""

from __future__ import annotations

import http.client
import json
import shlex
import socket
import ssl
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import HEADWAY, PATIENCE_S, Server, put, running, served
from tests.models import affine

pytestmark = pytest.mark.e2e

CERTIFICATES = Path(__file__).parents[1] / "certificates"
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    affine(tmp_path / "models" / "affine" / "1")
    return tmp_path


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def infer(connection: http.client.HTTPConnection) -> Any:
    connection.request("POST", "/v2/models/affine/infer", json.dumps(BODY))
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    assert response.status == 200, answer
    return answer["outputs"][0]["data"]


def printed_commands(server: Server) -> list[list[str]]:
    server.wait_for("/metrics")
    return [shlex.split(line) for line in server.printed if line.startswith("  curl")]


def test_https_by_two_options(root: Path) -> None:
    files = ["--ssl-certfile", CERTIFICATES / "certificate.pem", "--ssl-keyfile", CERTIFICATES / "key.pem"]
    with served("--models", root / "models", "--port", "0", *files, cwd=root) as server:
        server.until_serving()
        assert server.address.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=CERTIFICATES / "certificate.pem")
        port = int(server.address.rpartition(":")[2])
        assert infer(http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=trust)) == [3, 5, 7, 9]
        server.stop()


def test_a_unix_socket_by_the_configuration_beside_it(root: Path) -> None:
    put(root, "headway.toml", '[server]\nunix_socket = "run.sock"\nunix_socket_mode = "660"\naccess_log = true\n')
    with served(root / "headway.toml", cwd=Path("/")) as server:
        server.until_serving()
        path = root / "run.sock"
        assert server.address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert infer(UnixConnection(str(path))) == [3, 5, 7, 9]
        assert '"POST /v2/models/affine/infer" 200' in server.wait_for("headway.access")
        for command in printed_commands(server):
            ran = subprocess.run([*command, "--fail", "-sS"], capture_output=True, text=True, timeout=PATIENCE_S)
            assert ran.returncode == 0, (command, ran.stderr)
        server.stop()
        assert not path.exists()


def test_a_second_server_at_the_same_socket_says_so_and_harms_nobody(root: Path) -> None:
    with running(root, '[server]\nunix_socket = "s"\n') as server:
        with served(root / "headway.toml", cwd=root) as second:
            assert second.ended() == 2
            assert any("another server listens there" in line for line in second.printed)
        assert infer(UnixConnection(str(root / "s"))) == [3, 5, 7, 9]
        server.stop()


def client(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    called = [HEADWAY, *command.split(), *arguments]
    return subprocess.run(called, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_bench_and_explain_talk_https_and_check_whom_they_talk_to(root: Path) -> None:
    (root / "body.json").write_text(json.dumps(BODY))
    files = ["--ssl-certfile", CERTIFICATES / "certificate.pem", "--ssl-keyfile", CERTIFICATES / "key.pem"]
    with served("--models", root / "models", "--port", "0", *files, cwd=root) as server:
        server.until_serving()
        url = f"{server.address}/v2/models/affine/infer"
        load = ["--body", root / "body.json", "--requests", "20", "--warmup", "0"]
        for trust in (["--cacert", CERTIFICATES / "certificate.pem"], ["-k"]):
            assert client("explain affine --url", server.address, *trust).stdout.startswith("affine/1 is ready")
            asked = client("bench", url, *load, *trust)
            assert asked.returncode == 0, asked.stderr
        for refused in (client("explain affine --url", server.address), client("bench", url, *load)):
            assert refused.returncode == 1
            assert "self-signed certificate" in refused.stderr and "--cacert FILE" in refused.stderr
        in_the_clear = client("explain affine --url", server.address.replace("https", "http"))
        assert (in_the_clear.returncode, "does not answer" in in_the_clear.stderr) == (1, True)
        server.stop()


def test_bench_and_explain_talk_through_a_unix_socket(root: Path) -> None:
    (root / "body.json").write_text(json.dumps(BODY))
    with served("--models", root / "models", "--unix-socket", root / "s", cwd=root) as server:
        server.until_serving()
        assert client("explain affine --url", f"unix:{root}/s").stdout.startswith("affine/1 is ready")
        load = ["--body", root / "body.json", "--requests", "20", "--warmup", "0", "--json", root / "figures"]
        asked = client("bench", f"unix:{root}/s:/v2/models/affine/infer", *load)
        assert asked.returncode == 0, asked.stderr
        assert json.loads((root / "figures").read_text())["ok"] == 20
        nowhere = client("bench", f"unix:{root}/nowhere", *load)
        assert (nowhere.returncode, f"unix:{root}/nowhere cannot be reached" in nowhere.stderr) == (1, True)
        server.stop()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ('[server]\nssl_certfile = "nowhere.pem"\n', "nowhere.pem"),
        ('[server]\nssl_keyfile = "key.pem"\n', "server.ssl_certfile"),
        ('[server]\nunix_socket = "s"\nssl_certfile = "c.pem"\n', "server.unix_socket"),
        ('[server]\nunix_socket_mode = "rw"\n', "octal"),
        ('[server]\ntrusted_proxies = ["10.0.0.1/8"]\n', "server.trusted_proxies[0]"),
        ('[server]\ncors_origins = ["example.com"]\n', "server.cors_origins[0]"),
    ],
)
def test_what_cannot_be_is_told_at_the_start(root: Path, config: str, says: str) -> None:
    put(root, "headway.toml", config)
    with served(root / "headway.toml", "--port", "0", cwd=root) as server:
        assert server.ended() == 2
        assert any(says in line for line in server.printed), server.printed
