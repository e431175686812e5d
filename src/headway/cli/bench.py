"""`headway bench`: put load on a server and say what it did."""

from __future__ import annotations

import http.client
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from headway.bench.address import Address, advice
from headway.bench.bodies import embeddings_body, encode_request, infer_body
from headway.bench.lengths import Sampler, parse_lengths
from headway.bench.report import summarise, table, warning
from headway.bench.run import Plan, run
from headway.cli.common import address, cacert_option, insecure_option

DISTINCT_BODIES = 512


@click.command()
@click.argument("url")
@click.option("--endpoint", type=click.Choice(["embeddings", "infer"]), default="embeddings", show_default=True)
@click.option("--model", default="", help="Model to ask; not named: the only one that the server lists.")
@click.option("--concurrency", type=click.IntRange(1), default=None, help="Closed loop: users (default 1).")
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=None, help="Open loop: requests/s.")
@click.option("--arrivals", type=click.Choice(["poisson", "constant"]), default="poisson", show_default=True)
@click.option("--duration", type=click.FloatRange(0, min_open=True), default=None, help="Seconds (default 10).")
@click.option("--requests", type=click.IntRange(1), default=None, help="Stop after so many, instead of --duration.")
@click.option("--warmup", type=click.FloatRange(0), default=1.0, show_default=True, help="Seconds, not measured.")
@click.option(
    "--lengths",
    default="lognormal:44:256",
    show_default=True,
    help="Tokens per input: lognormal:MEDIAN:MAX[:SIGMA], fixed:N or choices:A,B,...",
)
@click.option("--rows", type=click.IntRange(1), default=1, show_default=True, help="Inputs per request.")
@click.option("--body", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="POST this file to URL.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Sent with every request.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of lengths, texts and arrivals.")
@click.option(
    "--timeout-ms",
    type=click.FloatRange(0, min_open=True),
    default=60_000.0,
    show_default=True,
    help="The client gives a request up so long after it was due.",
)
@click.option("--connections", type=click.IntRange(1), default=1024, show_default=True, help="Open loop: at most.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here.")
@cacert_option
@insecure_option
def bench(
    url: str,
    endpoint: str,
    model: str,
    concurrency: int | None,
    rate: float | None,
    arrivals: str,
    duration: float | None,
    requests: int | None,
    warmup: float,
    lengths: str,
    rows: int,
    body: Path | None,
    headers: tuple[str, ...],
    seed: int,
    timeout_ms: float,
    connections: int,
    json_path: Path | None,
    cacert: Path | None,
    insecure: bool,
) -> None:
    """Put load on the server at URL: closed loop (--concurrency) or open loop (--rate).

    Latency counts from the moment at which a request was due. URL is the server's address; its path is
    used as it is when it has one, else the endpoint's is added. Of a unix socket it is unix:/SOCKET[:/PATH].
    Exits 1 when nothing was answered.
    """
    if concurrency is not None and rate is not None:
        raise click.UsageError("--concurrency is a closed loop and --rate an open one: name one of them")
    if duration is not None and requests is not None:
        raise click.UsageError("--duration and --requests both say when to stop: name one of them")
    sampler = _sampler(lengths)
    target = address(url, cacert, insecure)
    try:
        if body is None and not model:
            model = _only_model(target, _checked(headers))
        target, bodies = _bodies(target, endpoint, model, sampler, rows, body, seed)
        wires = [encode_request(target.url, one, _checked(headers)) for one in bodies]
        plan = Plan(
            concurrency=concurrency or 1,
            rate=rate,
            poisson=arrivals == "poisson",
            duration=duration or 10,
            requests=requests,
            warmup=warmup,
            timeout=timeout_ms / 1e3,
            connections=connections,
            seed=seed,
        )
        measured = run(plan, target.host, target.port, wires, tls=target.tls, unix=target.socket)
    except OSError as error:
        raise click.ClickException(f"{target.name} cannot be reached: {error}{advice(error)}") from None
    except http.client.HTTPException as error:
        raise click.ClickException(f"{target.name} does not answer in HTTP: {error}") from None
    summary = summarise(measured)
    click.echo(f"POST {target.shown}  {_describe(plan, lengths, body)}")
    click.echo(table(summary))
    if doubt := warning(summary):
        click.echo(f"warning: {doubt}", err=True)
    if json_path is not None:
        json_path.write_text(json.dumps({"url": target.shown, "plan": vars(plan), **summary}, indent=1) + "\n")
    if not summary["ok"]:
        raise SystemExit(1)


def _sampler(lengths: str) -> Sampler:
    try:
        return parse_lengths(lengths)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _checked(headers: tuple[str, ...]) -> tuple[str, ...]:
    for header in headers:
        if ":" not in header or "\n" in header or "\r" in header:
            raise click.UsageError(f"--header {header!r}: expected 'Name: value'")
    return headers


def _bodies(
    target: Address, endpoint: str, model: str, sampler: Sampler, rows: int, body: Path | None, seed: int
) -> tuple[Address, list[bytes]]:
    """Where to POST to, and what."""
    if body is not None:
        return target, [body.read_bytes()]
    rng = random.Random(seed)
    if endpoint == "embeddings":
        path = "/v1/embeddings"
        bodies = [embeddings_body(model, sampler, rows, rng) for _ in range(DISTINCT_BODIES)]
    else:
        path = f"/v2/models/{model}/infer"
        bodies = [infer_body(sampler, rows, rng) for _ in range(DISTINCT_BODIES)]
    return (target if target.url.path.strip("/") else replace(target, url=target.url._replace(path=path))), bodies


def _only_model(target: Address, headers: tuple[str, ...]) -> str:
    """Ask the server which model it has. Raises UsageError when that is not one."""
    connection = target.connection(timeout_s=10)
    named = {name.strip(): value.strip() for name, _, value in (header.partition(":") for header in headers)}
    try:
        connection.request("GET", "/v1/models", headers=named)
        answer = connection.getresponse()
        names = _model_names(answer.read()) if answer.status == 200 else []
    finally:
        connection.close()
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise click.UsageError(f"name a model with --model; the server lists {found}")
    return names[0]


def _model_names(answer: bytes) -> list[str]:
    try:
        listed: Any = json.loads(answer)
        return [entry["id"] for entry in listed["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _describe(plan: Plan, lengths: str, body: Path | None) -> str:
    loop = f"closed loop, concurrency {plan.concurrency}"
    if plan.rate is not None:
        loop = f"open loop, {plan.rate:g}/s {'poisson' if plan.poisson else 'constant'}"
    what = f"body {body.name}" if body is not None else f"lengths {lengths}"
    return f"{loop}, {what}, warm-up {plan.warmup:g} s"
