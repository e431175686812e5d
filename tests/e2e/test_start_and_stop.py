"""How the server starts, what it says when it cannot, and how it ends. Real processes and signals."""

from __future__ import annotations

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.server import Server, put, served

pytestmark = pytest.mark.e2e

ECHO = """
class Model:
    inputs = {"x": ("FP32", [-1])}
    outputs = {"y": ("FP32", [-1])}

    def execute(self, requests):
        return [{"y": request["x"]} for request in requests]
"""

GATED = """
class Model:
    inputs = {"x": ("FP32", [-1])}
    outputs = {"y": ("FP32", [-1])}

    def load(self, context):
        self.gate = context.settings.options["gate"]

    def execute(self, requests):
        with open(self.gate + ".begun", "w") as begun:
            begun.write("executing")
        with open(self.gate) as gate:
            gate.read()
        return [{"y": request["x"]} for request in requests]
"""


class Gate:
    """A model that says when it executes, and goes on when it is told. Both block in named pipes, nobody polls."""

    def __init__(self, tmp_path: Path) -> None:
        self._pipe = tmp_path / "gate"
        os.mkfifo(self._pipe)
        os.mkfifo(f"{self._pipe}.begun")
        put(tmp_path, "models/gated/1/model.py", GATED)
        put(tmp_path, "models/gated/model.toml", f'[options]\ngate = "{self._pipe}"\n')

    def wait(self) -> None:
        Path(f"{self._pipe}.begun").read_text()

    def open(self) -> None:
        self._pipe.write_text("go on")


def send(server: Server) -> tuple[int, object]:
    return server.infer("gated", "x", "FP32", [7], [1])


def test_a_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    put(tmp_path, "models/echo/1/model.py", ECHO)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with served("--models", tmp_path / "models", "--port", str(port), cwd=tmp_path) as server:
            assert server.ended() == 2
            assert server.printed == [
                f"server: port {port} on 127.0.0.1 is in use; name another with --port, or --port 0 for any free one"
            ]


def test_a_host_that_is_not_this_machines_is_a_clear_error(tmp_path: Path) -> None:
    put(tmp_path, "models/echo/1/model.py", ECHO)
    with served("--models", tmp_path / "models", "--host", "192.0.2.1", "--port", "0", cwd=tmp_path) as server:
        assert server.ended() == 2
        assert "cannot listen on 192.0.2.1 port 0" in server.printed[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_is_in_flight_finish_and_ends_with_code_0(tmp_path: Path, number: signal.Signals) -> None:
    gate = Gate(tmp_path)
    with served("--models", tmp_path / "models", "--port", "0", cwd=tmp_path) as server, ThreadPoolExecutor() as pool:
        server.until_serving()
        reply = pool.submit(send, server)
        gate.wait()
        server.terminate(number)
        server.wait_for("stopping: ")
        gate.open()
        status, body = reply.result()
        assert status == 200, body
        assert server.ended() == 0


def test_what_does_not_finish_within_the_grace_is_answered_all_the_same(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    put(tmp_path, "headway.toml", "[server]\nshutdown_grace_s = 0.2\n")
    with served("--port", "0", cwd=tmp_path) as server, ThreadPoolExecutor() as pool:
        server.until_serving()
        reply = pool.submit(send, server)
        gate.wait()
        server.terminate(signal.SIGTERM)
        status, body = reply.result()
        assert status == 503, body
        assert server.ended() == 0


def test_a_second_signal_ends_the_server_at_once(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with served("--models", tmp_path / "models", "--port", "0", cwd=tmp_path) as server, ThreadPoolExecutor() as pool:
        server.until_serving()
        reply = pool.submit(send, server)
        gate.wait()
        server.terminate(signal.SIGINT)
        server.wait_for("stopping: ")
        server.terminate(signal.SIGINT)
        assert server.ended() == 130
        assert isinstance(reply.exception(), OSError)


def test_a_signal_while_models_are_loading_ends_with_code_0(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    loading = f"    def load(self, context):\n        open({str(tmp_path / 'never')!r}).read()\n"
    put(tmp_path, "models/slow/1/model.py", ECHO + loading)
    with served("--models", tmp_path / "models", "--port", "0", cwd=tmp_path) as server:
        server.until_listening()
        assert server.request("GET", "/health")[0] == 200
        assert server.request("GET", "/ready")[0] == 503
        server.terminate(signal.SIGTERM)
        assert server.ended() == 0


def test_a_model_that_cannot_be_loaded_is_named_and_the_others_serve(tmp_path: Path) -> None:
    put(tmp_path, "models/echo/1/model.py", ECHO)
    put(tmp_path, "models/broken/1/model.py", "raise RuntimeError('no such weights')\n")
    with served("--models", tmp_path / "models", "--port", "0", cwd=tmp_path) as server:
        server.until_serving()
        said = server.wait_for("  broken/1 is not ready")
        assert "no such weights" in said
        assert server.infer("echo", "x", "FP32", [7], [1])[0] == 200
        assert server.request("GET", "/ready")[0] == 503
