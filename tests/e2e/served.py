"""A real server in a process of its own, for tests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HEADWAY = Path(sys.executable).with_name("headway")
SERVING = "headway is serving on "
LISTENING = "listening on "


class Served:
    """process: `headway serve`.  address: http://HOST:PORT, known once it listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.address = ""
        self.printed: list[str] = []

    def wait_for(self, beginning: str) -> str:
        """The rest of the first line that begins so. The server's end is an error."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append(line.rstrip("\n"))
            if line.startswith(beginning):
                return line.removeprefix(beginning).strip()
        raise AssertionError(f"the server ended with {self.process.wait()}; it printed:\n" + "\n".join(self.printed))

    def until_listening(self) -> Served:
        self.address = self.wait_for(LISTENING).split(",")[0]
        return self

    def until_serving(self) -> Served:
        self.address = self.wait_for(SERVING)
        return self

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status, and the body as JSON (text where it is something else)."""
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            raw = response.read().decode()
            return response.status, json.loads(raw) if raw.startswith(("{", "[")) else raw
        finally:
            connection.close()

    def infer(self, model: str, name: str, datatype: str, data: list[Any], shape: list[int]) -> tuple[int, Any]:
        tensor = {"name": name, "datatype": datatype, "shape": shape, "data": data}
        return self.request("POST", f"/v2/models/{model}/infer", {"inputs": [tensor]})

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(60)


@contextmanager
def served(*arguments: str | Path, cwd: Path | None = None) -> Iterator[Served]:
    """`headway serve` with these arguments; killed at the end if it still runs. Its log goes to its stdout too."""
    command = [str(HEADWAY), "serve", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield Served(process)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        assert process.stdout is not None
        process.stdout.close()
        process.wait()


def put(root: Path, name: str, text: str) -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file
