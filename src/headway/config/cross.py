"""Settings that are right alone and wrong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from itertools import pairwise
from typing import Any

from headway.config.check import join
from headway.config.cross_tenants import Found, tenants
from headway.config.settings import ModelSettings, Settings

CPU = "cpu"
DEVICE = re.compile(rf"{CPU}|cuda:\d+")
MODE = re.compile(r"0?[0-7]{3}")
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s,]+")
UNIX = "unix"
"""In server.trusted_proxies: whoever connects by the unix socket."""


def cross_check_server(settings: Settings) -> list[Found]:
    return [*server(settings), *listening(settings), *scheduling(settings), *tenants(settings)]


def cross_check_models(model: ModelSettings) -> list[Found]:
    return [*model_limits(model), *lengths(model), *bounds(model)]


def server(settings: Settings) -> Iterator[Found]:
    limits, workers = settings.limits, settings.workers
    if not settings.server.host:
        yield "server.host", "expected an address or a host name, got ''"
    if not settings.server.models:
        yield "server.models", "expected a folder, got ''"
    if limits.max_queued_mb < limits.max_body_mb:
        yield (
            "limits.max_queued_mb",
            f"expected at least limits.max_body_mb ({limits.max_body_mb:g}), got {limits.max_queued_mb:g}: "
            "the largest body that is let in could never be queued",
        )
    if workers.max_backoff_s < workers.backoff_s:
        yield (
            "workers.max_backoff_s",
            f"expected at least workers.backoff_s ({workers.backoff_s:g}), got {workers.max_backoff_s:g}",
        )


def written_limits(settings: Settings, written: Mapping[str, Any]) -> Iterator[Found]:
    """Of those that the file sets: a default gives way in silence."""
    limits = settings.limits
    if "max_json_mb" in written.get("limits", {}) and limits.max_json_mb > limits.max_body_mb:
        yield (
            "limits.max_json_mb",
            f"expected at most limits.max_body_mb ({limits.max_body_mb:g}), got {limits.max_json_mb:g}: "
            "JSON is a body, and no larger one is let in",
        )
    keys = settings.idempotency
    if "max_reply_kb" in written.get("idempotency", {}) and keys.max_reply_kb > keys.max_mb * 1024:
        yield (
            "idempotency.max_reply_kb",
            f"expected at most idempotency.max_mb, which is {keys.max_mb:g} MiB, got {keys.max_reply_kb}: "
            "no larger reply could ever be kept",
        )


def listening(settings: Settings) -> Iterator[Found]:
    server = settings.server
    if server.ssl_keyfile and not server.ssl_certfile:
        yield "server.ssl_keyfile", "expected server.ssl_certfile beside it: a key alone makes no HTTPS"
    if server.unix_socket and server.ssl_certfile:
        yield "server.unix_socket", "expected no server.ssl_certfile beside it: HTTPS is for host and port"
    if not MODE.fullmatch(server.unix_socket_mode):
        yield (
            "server.unix_socket_mode",
            f'expected three octal digits (for example "660"), got {server.unix_socket_mode!r}',
        )
    for number, proxy in enumerate(server.trusted_proxies):
        if proxy != UNIX and not is_network(proxy):
            yield (
                f"server.trusted_proxies[{number}]",
                f'expected an address, a network (for example "10.0.0.0/8") or "{UNIX}", got {proxy!r}',
            )
    for number, origin in enumerate(server.cors_origins):
        if not ORIGIN.fullmatch(origin):
            yield (
                f"server.cors_origins[{number}]",
                f'expected scheme://host[:port] in small letters, without a path, or "*", got {origin!r}',
            )


def is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def scheduling(settings: Settings) -> Iterator[Found]:
    patience = settings.scheduling.patience_ms
    if not patience:
        yield "scheduling.patience_ms", "expected at least one class of priority, got an empty list"
    if any(later < earlier for earlier, later in pairwise(patience)):
        yield (
            "scheduling.patience_ms",
            f"expected values that do not decrease (class 0 is the most urgent), got {list(patience)}",
        )


def model_limits(model: ModelSettings) -> Iterator[Found]:
    batching, warm_up = model.batching, model.warm_up
    if not DEVICE.fullmatch(model.device):
        yield "device", f'expected "cpu" or "cuda:N" (for example "cuda:0"), got {model.device!r}'
    elif model.device != CPU and (model.cores or 0) > 1:
        yield (
            "cores",
            f"expected nothing or 0 (it takes no turns), got {model.cores}: on {model.device} a worker takes a turn of "
            "the GPU, and keeps none of the server's cores",
        )
    if batching.max_queued_rows < batching.max_batch_size:
        yield (
            "batching.max_queued_rows",
            f"expected at least max_batch_size ({batching.max_batch_size}), got {batching.max_queued_rows}: "
            "no full batch could ever wait",
        )
    delay = batching.max_queue_delay_ms
    if batching.hold and model.slo_ms and delay is not None and delay >= model.slo_ms:
        yield (
            "batching.max_queue_delay_ms",
            f"with hold = true every part batch waits {delay:g} ms, which leaves nothing of slo_ms = {model.slo_ms:g}",
        )
    if warm_up.rows and max(warm_up.rows) > batching.max_batch_size:
        yield (
            "warm_up.rows",
            f"expected at most batching.max_batch_size ({batching.max_batch_size}), got {max(warm_up.rows)}",
        )


def lengths(model: ModelSettings) -> Iterator[Found]:
    """Of three bounds on the length the tightest is the model's own, max_length."""
    embeddings, longest = model.embeddings, max(model.warm_up.lengths, default=0)
    if model.batch_invariant and model.inputs and not model.max_length:
        yield (
            "max_length",
            "expected the longest that a row may be beside batch_invariant = true: rows are padded to fixed lengths, "
            "and the last of them must be one that the model takes",
        )
    if embeddings and longest > embeddings.max_length:
        yield "warm_up.lengths", f"expected at most embeddings.max_length ({embeddings.max_length}), got {longest}"
    elif 0 < model.max_length < longest:
        yield "warm_up.lengths", f"expected at most max_length ({model.max_length}), got {longest}"
    if embeddings and 0 < model.max_length < embeddings.max_length:
        yield (
            "embeddings.max_length",
            f"expected at most the model's max_length ({model.max_length}), got {embeddings.max_length}",
        )


def bounds(model: ModelSettings) -> Iterator[Found]:
    for name, bound in model.bounds.items():
        if bound.minimum is None and bound.maximum is None:
            yield join("bounds", name), "expected a minimum or a maximum, got neither"
        elif bound.minimum is not None and bound.maximum is not None and bound.minimum > bound.maximum:
            yield (
                join("bounds", name),
                f"expected a minimum that is at most the maximum, got {bound.minimum:.15g} and {bound.maximum:.15g}",
            )
