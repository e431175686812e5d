"""What `headway serve` prints when it is ready: the address, and requests to paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from headway.config.settings import Settings
from headway.registry.spec import VersionSpec, default_versions
from headway.wire.messages import InputMeta, VersionStatus

MAX_ELEMENTS = 64
"""Inputs with more elements than this make no request that one would paste."""

ANY_SIZE = 4
"""What stands in for a dimension of any size."""

EXAMPLES = {"BYTES": "text", "BOOL": True}


class Answer(msgspec.Struct, frozen=True):
    """A version that is configured, and the last that was heard of it."""

    spec: VersionSpec
    status: VersionStatus


UNIX = "unix:"
"""Before the path of a unix socket."""


class Entrance(msgspec.Struct, frozen=True):
    """How one gets in.  address: http://HOST:PORT as a client on this machine would say it, or what `unix_address`
    makes.  admin: the same of admin routes, "" = they have no address of their own.
    keyed, admin_keyed: a key is wanted.  models: that whoever has one may call, empty = all."""

    address: str
    admin: str = ""
    keyed: bool = False
    admin_keyed: bool = False
    models: frozenset[str] = frozenset()


KEY, ADMIN_KEY = "HEADWAY_KEY", "HEADWAY_ADMIN_KEY"
"""Variables that requests to paste take keys from."""


def lines(entrance: Entrance, answers: Sequence[Answer]) -> Iterator[str]:
    yield f"headway is serving on {entrance.address}"
    if entrance.admin:
        yield f"  admin routes and /metrics on {entrance.admin}"
    for answer in answers:
        name = answer.spec.name
        if answer.status.state != "ready":
            yield f"  {name} is not ready ({answer.status.state}): {answer.status.reason or 'no reason given'}"
        else:
            yield f"  {name} is ready"
    yield "Try:"
    curl, address = how_to_ask(entrance.address)
    key = with_key(KEY) if entrance.keyed else ""
    ready = [answer for answer in answers if answer.status.state == "ready"]
    for example in examples([a for a in ready if not entrance.models or a.spec.model in entrance.models]):
        yield f"  {curl} {key}{example.format(address=address)}"
    curl, address = how_to_ask(entrance.admin or entrance.address)
    yield f"  {curl} {with_key(ADMIN_KEY) if entrance.admin_keyed else ''}{address}/metrics"


def examples(ready: Sequence[Answer]) -> Iterator[str]:
    """One request for each kind of model there is; `{address}` is left to fill in."""
    defaults = default_versions(answer.spec for answer in ready)
    served = [answer for answer in ready if defaults[answer.spec.model] == answer.spec.version]
    for answer in first(answer for answer in served if answer.spec.settings.embeddings):
        body = {"model": answer.spec.model, "input": "A vehicle leaves when it is full."}
        yield paste("/v1/embeddings", body)
    for answer in first(answer for answer in served if is_language_model(answer)):
        question = [{"role": "user", "content": "Why do buses leave in bunches?"}]
        chat: dict[str, object] = {"model": answer.spec.model, "messages": question, "stream": True}
        yield "-N " + paste("/v1/chat/completions", chat)
    streaming = [answer for answer in served if answer.status.meta and answer.status.meta.streaming]
    for answer in first(answer for answer in streaming if not is_language_model(answer)):
        yield "-N " + paste(f"/v2/models/{answer.spec.model}/generate_stream", {"text_input": "one two three"})
    for answer in first(answer for answer in served if infer_body(answer)):
        yield paste(f"/v2/models/{answer.spec.model}/infer", infer_body(answer))


def is_language_model(answer: Answer) -> bool:
    return answer.status.meta is not None and answer.status.meta.language is not None


def callable_with_a_key(settings: Settings) -> frozenset[str]:
    """Models that every tenant with a key may call; where there is none, that any of them may. Empty = all."""
    lists = [frozenset(tenant.models) for tenant in settings.tenants.values() if tenant.keys and tenant.models]
    if not lists:
        return frozenset()
    return frozenset.intersection(*lists) or frozenset.union(*lists)


def infer_body(answer: Answer) -> dict[str, object] | None:
    """A request with one row, where the model's inputs are small enough to paste."""
    meta = answer.status.meta
    if meta is None or meta.streaming:
        return None
    inputs = [example_input(entry) for entry in meta.inputs if not entry.optional]
    return {"inputs": inputs} if inputs and None not in inputs else None


def example_input(entry: InputMeta) -> dict[str, object] | None:
    shape = [1, *(ANY_SIZE if size < 0 else size for size in entry.shape[1:])]
    count = 1
    for size in shape:
        count *= size
    if count > MAX_ELEMENTS:
        return None
    data = [EXAMPLES.get(entry.datatype, 1)] * count
    return {"name": entry.name, "datatype": entry.datatype, "shape": shape, "data": data}


def paste(path: str, body: object) -> str:
    text = json.dumps(body).replace("{", "{{").replace("}", "}}")
    return f"{{address}}{path} -H 'content-type: application/json' -d '{text}'"


def first(found: Iterable[Answer]) -> Iterator[Answer]:
    for answer in found:
        yield answer
        return


def with_key(variable: str) -> str:
    return f'-H "Authorization: Bearer ${variable}" '


def how_to_ask(address: str) -> tuple[str, str]:
    """The command, and the address to give it."""
    if not address.startswith(UNIX):
        return "curl", address
    return f"curl --unix-socket {shlex.quote(address.removeprefix(UNIX))}", "http://localhost"


def unix_address(path: Path) -> str:
    return f"{UNIX}{path}"


def client_address(host: str, port: int, scheme: str = "http") -> str:
    """Where a client on this machine reaches a server that is bound to this host."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"
