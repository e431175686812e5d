"""A real worker process, spoken to by hand over a blocking socket: the runtime's side of the protocol."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from headway.config.settings import ModelSettings
from headway.wire.frames import Reader, frames
from headway.wire.messages import Execute, Executed, FromWorker, Hello, Load, PartInput, Progress, Ready
from headway.wire.tensors import Tensor, from_numpy, to_numpy

TOKEN = "a secret"

Parts = Sequence[dict[str, Any]]


class WorkerProcess:
    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, worker: int) -> None:
        self.process = process
        self.socket = sock
        self.worker = worker
        self._reader: Reader[FromWorker] = Reader(FromWorker)
        self._received: deque[tuple[Any, memoryview]] = deque()
        self._stream = 0

    def send(self, message: Any, buffers: Sequence[Any] = ()) -> None:
        self._stream += 1
        for frame in frames(message, buffers, self._stream):
            self.socket.sendall(b"".join(frame))

    def receive(self, progress: bool = False) -> tuple[Any, memoryview]:
        """The next message (Progress only if asked for). Raises EOFError."""
        while True:
            while not self._received:
                data = self.socket.recv(1 << 16)
                if not data:
                    raise EOFError
                self._received.extend(self._reader.feed(data))
            message, data = self._received.popleft()
            if progress or not isinstance(message, Progress):
                return message, data

    def load(self, path: Path, executor: str, settings: ModelSettings | None = None, threads: int = 1) -> Any:
        """Hello, Load; the worker's answer."""
        hello, _ = self.receive()
        assert isinstance(hello, Hello)
        assert (hello.worker, hello.token, hello.pid) == (self.worker, TOKEN, self.process.pid)
        return self.load_as(path, executor, settings, threads)

    def load_as(self, path: Path, executor: str, settings: ModelSettings | None = None, threads: int = 1) -> Any:
        """Load, of the version in path (NAME/VERSION); the worker's answer."""
        builtins = msgspec.to_builtins(settings or ModelSettings())
        self.send(Load(self.worker, path.parent.name, int(path.name), str(path), executor, "cpu", threads, builtins))
        return self.receive()[0]

    def execute(self, batch: int, parts: Parts) -> Any:
        """Sends arrays as parts of one batch; the worker's answer, with `outputs` unpacked if it is Executed."""
        inputs: list[PartInput] = []
        buffers: list[Any] = []
        for index, arrays in enumerate(parts):
            tensors = [from_numpy(name, array) for name, array in arrays.items()]
            buffers += [tensor.data for tensor in tensors]
            first = next(iter(arrays.values()))
            length = first.shape[1] if first.ndim > 1 else 1
            inputs.append(PartInput(index, 0, len(first), length, [tensor.header for tensor in tensors], {}))
        self.send(Execute(self.worker, batch, inputs), buffers)
        return self.outcome()

    def outcome(self) -> Any:
        message, data = self.receive()
        return (message, outputs(message, data)) if isinstance(message, Executed) else (message, [])


def outputs(message: Executed, data: memoryview) -> list[dict[str, Any]]:
    at = 0
    unpacked = []
    for part in message.parts:
        arrays = {}
        for header in part.tensors:
            tensor = Tensor(header.name, header.datatype, header.shape, data[at : at + header.size])
            arrays[header.name] = to_numpy(tensor)
            at += header.size
        unpacked.append(arrays)
    assert at == len(data)
    return unpacked


def command(address: str, worker: int) -> list[str]:
    return [sys.executable, "-m", "headway.worker", "--connect", address, "--worker", str(worker), "--threads", "1"]


def environment() -> dict[str, str]:
    return {**os.environ, "HEADWAY_WORKER_TOKEN": TOKEN}


@contextmanager
def worker_process(folder: Path, worker: int = 7, tcp: bool = False) -> Iterator[WorkerProcess]:
    """Started and connected; killed at the end if it is still there."""
    with socket.socket(socket.AF_INET if tcp else socket.AF_UNIX) as listener:
        listener.bind(("127.0.0.1", 0) if tcp else str(folder / "s"))
        listener.listen()
        listener.settimeout(60)
        address = f"tcp:127.0.0.1:{listener.getsockname()[1]}" if tcp else f"unix:{folder / 's'}"
        process = subprocess.Popen(command(address, worker), env=environment())
        try:
            sock, _ = listener.accept()
            sock.settimeout(60)
            with sock:
                yield WorkerProcess(process, sock, worker)
        finally:
            process.kill()
            process.wait()


def ready(process: WorkerProcess, path: Path, executor: str, settings: ModelSettings | None = None) -> Ready:
    message = process.load(path, executor, settings)
    assert isinstance(message, Ready), message
    return message
