"""A gateway on a real loopback socket with a fake runtime behind it, and a client that speaks raw bytes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from headway.config.settings import Batching, Limits, ModelSettings, Settings
from headway.core.outcomes import Outcome
from headway.gateway.access import Access
from headway.gateway.admin import AdminGate
from headway.gateway.catalog import CatalogModel, CatalogVersion
from headway.gateway.gateway import Gateway
from headway.gateway.listening import tls
from headway.wire.messages import (
    Cancel,
    InputMeta,
    ModelMeta,
    Reply,
    StreamChunk,
    Submit,
    Timings,
    ToRuntime,
    VersionStatus,
    Written,
)
from headway.wire.tensors import DATATYPES, Tensor

T = TypeVar("T")
M = TypeVar("M")

CERTIFICATES = Path(__file__).parents[1] / "certificates"
CERTIFICATE, KEY = CERTIFICATES / "certificate.pem", CERTIFICATES / "key.pem"
PATIENCE_S = 20
"""How long a test waits for what must come; it decides nothing unless something is broken."""

ADD = ModelMeta(
    "fake",
    (InputMeta("x", "FP32", (-1, 2)), InputMeta("bias", "FP32", (-1, 2), optional=True)),
    (InputMeta("y", "FP32", (-1, 2)), InputMeta("z", "INT64", (-1,))),
)
TEXT = ModelMeta(
    "fake",
    (InputMeta("ids", "INT64", (-1, -1), pad_axis=1), InputMeta("mask", "INT64", (-1, -1), pad_axis=1)),
    (InputMeta("ids", "INT64", (-1, -1)),),
)
KINDS = ModelMeta(
    "fake",
    tuple(InputMeta(datatype.lower(), datatype, (-1, -1), optional=True) for datatype in DATATYPES),
    tuple(InputMeta(datatype.lower(), datatype, (-1, -1)) for datatype in DATATYPES),
)
TALK = ModelMeta("fake", (), (), streaming=True)


def model(name: str, *versions: int, settings: ModelSettings | None = None, **batching: Any) -> CatalogModel:
    settings = settings or ModelSettings(batching=Batching(**batching))
    return CatalogModel(name, tuple(CatalogVersion(v, f"/nowhere/{name}/{v}") for v in versions), settings)


MODELS = {"add": ADD, "text": TEXT, "kinds": KINDS, "talk": TALK}


def echo(submit: Submit) -> Reply:
    """Every input comes back as the output of its name; an x is also y, with z counting the rows."""
    outputs = []
    for payload in submit.payload:
        tensors = list(payload.tensors)
        for tensor in payload.tensors:
            if tensor.name == "x":
                rows = tensor.shape[0]
                counted = b"".join(row.to_bytes(8, "little") for row in range(rows))
                tensors += [Tensor("y", "FP32", tensor.shape, tensor.data), Tensor("z", "INT64", (rows,), counted)]
        outputs.append(tensors)
    return done(submit.request, outputs)


def done(request: int, outputs: list[list[Tensor]] | None = None) -> Reply:
    return Reply(request, Outcome.COMPLETED, "", 0, outputs or [], Timings())


def failed(request: int, outcome: Outcome, detail: str = "", retry_after: int = 0) -> Reply:
    return Reply(request, outcome, detail, retry_after, [], Timings())


class FakeRuntime:
    """Answers at once by `answer`, or when the test says so (answer = None)."""

    def __init__(self, answer: Callable[[Submit], Reply] | None = echo) -> None:
        self.answer = answer
        self.deliver: Callable[[Any], None] = lambda message: None
        self.said: list[ToRuntime] = []
        self._unseen: asyncio.Queue[ToRuntime] = asyncio.Queue()

    def send(self, message: ToRuntime) -> None:
        self.said.append(message)
        self._unseen.put_nowait(message)
        if self.answer is not None and isinstance(message, Submit):
            self.deliver(self.answer(message))

    async def next(self, kind: type[M]) -> M:
        """The next message of this kind; others before it are passed over."""
        while True:
            message = await within(self._unseen.get())
            if isinstance(message, kind):
                return message

    def all(self, kind: type[M]) -> list[M]:
        return [message for message in self.said if isinstance(message, kind)]

    def chunk(self, request: int, index: int, value: Any) -> None:
        self.deliver(StreamChunk(request, index, value))


class World:
    """trust: how its clients check its certificate; None = it has none. unix: where it listens instead of the port."""

    def __init__(
        self,
        gateway: Gateway,
        runtime: FakeRuntime,
        port: int,
        trust: ssl.SSLContext | None = None,
        unix: Path | None = None,
    ) -> None:
        self.gateway = gateway
        self.runtime = runtime
        self.port = port
        self.trust = trust
        self.unix = unix

    async def connect(self) -> Client:
        if self.unix is not None:
            return Client(*await asyncio.open_unix_connection(self.unix, limit=1 << 24))
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24, ssl=self.trust))

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request on a connection of its own. body: bytes as they are, anything else as JSON."""
        client = await self.connect()
        try:
            client.send(message(method, path, body, **headers))
            return await client.answer(head=method == "HEAD")
        finally:
            client.close()

    async def infer(self, name: str, body: Any, **headers: str) -> Answer:
        return await self.ask("POST", f"/v2/models/{name}/infer", body, **headers)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"Answer({self.status}, {self.body[:200]!r})"


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def close(self) -> None:
        self.writer.close()

    def close_half(self) -> None:
        """Send nothing more, and go on reading."""
        self.writer.write_eof()

    async def line(self) -> bytes:
        return await within(self.reader.readline())

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers; ConnectionError when there is no reply."""
        first = await self.line()
        if not first:
            raise ConnectionError("closed without a reply")
        headers: dict[str, str] = {}
        while (line := await self.line()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return int(first.split()[1]), headers

    async def answer(self, head: bool = False) -> Answer:
        status, headers = await self.head()
        if head:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while chunk := await self.chunk():
                body += chunk
        elif "content-length" in headers:
            body = await within(self.reader.readexactly(int(headers["content-length"])))
        else:
            body = await within(self.reader.read())
        return Answer(status, headers, body)

    async def chunk(self) -> bytes:
        """One chunk of a chunked body; b"" at its end."""
        size = int(await self.line(), 16)
        data = await within(self.reader.readexactly(size + 2))
        return data[:-2]

    async def closed(self) -> bool:
        """Waits for the end of the connection; whether nothing came before it."""
        try:
            return await within(self.reader.read()) == b""
        except ConnectionError:
            return True


def message(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    if body is not None:
        lines.append(f"Content-Length: {len(raw)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + raw


async def within(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE_S)


@asynccontextmanager
async def world(
    runtime: FakeRuntime | None = None,
    models: list[CatalogModel] | None = None,
    metas: dict[str, ModelMeta] | None = None,
    ready: bool = True,
    secured: bool = False,
    unix: Path | None = None,
    unix_mode: int = 0o600,
    settings: Settings = Settings(),  # noqa: B008 - it is frozen
    **more: Any,
) -> AsyncIterator[World]:
    """Models by the names in MODELS unless given, all ready unless said otherwise.

    secured: it speaks TLS. unix: it listens there. settings: of tenants, keys and admin routes; more: see Gateway.
    """
    runtime = runtime or FakeRuntime()
    metas = MODELS | (metas or {})
    models = [model(name, 1) for name in MODELS] if models is None else models
    gateway = Gateway(models, runtime.send, access=Access(settings), gate=AdminGate(settings.server), **more)
    runtime.deliver = gateway.deliver
    if ready:
        for entry in models:
            for version in entry.versions:
                gateway.deliver(VersionStatus(entry.name, version.version, "ready", metas[entry.name]))
    port, trust = 0, None
    if unix is not None:
        await gateway.start_unix(unix, unix_mode)
    else:
        _, port = await gateway.start("127.0.0.1", 0, tls(str(CERTIFICATE), str(KEY)) if secured else None)
    if secured:
        trust = ssl.create_default_context(cafile=CERTIFICATE)
    try:
        yield World(gateway, runtime, port, trust, unix)
    finally:
        gateway.close()


def run(scenario: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(scenario)


def tensor(name: str, datatype: str, shape: list[Any], data: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data, **more}


def x(rows: int = 1, **more: Any) -> dict[str, Any]:
    """A good request to the model `add`."""
    data = [float(value) for value in range(rows * 2)]
    return {"inputs": [tensor("x", "FP32", [rows, 2], data)], **more}


GOOD = x()
LIMITS = Limits(max_body_mb=0.05, max_header_kb=8)
__all__ = ["Cancel", "Submit", "Written"]
