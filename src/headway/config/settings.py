"""Every setting there is, with its unit and default. Names end in their unit."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Span = Annotated[float, Meta(ge=0)]


class Padding(Struct, frozen=True, forbid_unknown_fields=True):
    """How one input or output is padded. Nothing is padded that does not say so here.

    pad_axis: the axis that grows to the longest of the batch (1 = first after the rows).
    pad_value: what an input is filled with (outputs are cut back, the value is not used).
    """

    pad_axis: Positive = 1
    pad_value: float = 0


class Batching(Struct, frozen=True, forbid_unknown_fields=True):
    """max_batch_size: rows.  max_batch_tokens: rows x longest length, 0 = no cap.
    max_batch_ms: predicted run time, 0 = no cap.  max_queue_delay_ms: ceiling of waiting for company.
    hold: wait that long even beside an idle worker."""

    max_batch_size: Positive = 32
    max_batch_tokens: Count = 0
    max_batch_ms: Span = 0
    max_queue_delay_ms: Span = 5
    hold: bool = False
    max_queued_requests: Positive = 10_000
    max_queued_rows: Positive = 100_000


class WarmUp(Struct, frozen=True, forbid_unknown_fields=True):
    """The grid of sizes that are run before a version is ready; they seed the cost model.

    rows, lengths: 0 entries = chosen from the caps.  repeats: timed runs per point."""

    enabled: bool = True
    rows: tuple[Positive, ...] = ()
    lengths: tuple[Positive, ...] = ()
    repeats: Positive = 3


class Embeddings(Struct, frozen=True, forbid_unknown_fields=True):
    """Makes a model answer /v1/embeddings: how text becomes its inputs.

    tokenizer: file beside the model (tokenizers' JSON).  max_length: tokens.
    output: which output holds the vectors."""

    tokenizer: str = "tokenizer.json"
    max_length: Positive = 256
    output: str = "embedding"


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """models/NAME/model.toml. Everything has a default; an empty or missing file is fine.

    executor: "onnx" or "python"; "" = by the file found.
    device: "cpu", or "cuda:N" where it exists.  instances: worker processes per version.
    threads: compute threads per worker; 0 = its share of the cores.
    default_version: 0 = the highest.  slo_ms: 0 = none.
    per_row_parameters: request parameters that the executor applies row by row.
    max_sequences: streaming models: sequences run at once per worker.
    options: handed to a python model's load().
    """

    executor: Literal["", "onnx", "python"] = ""
    device: str = "cpu"
    instances: Positive = 1
    threads: Count = 0
    default_version: Count = 0
    slo_ms: Span = 0
    max_sequences: Positive = 8
    per_row_parameters: tuple[str, ...] = ()
    batching: Batching = Batching()
    warm_up: WarmUp = WarmUp()
    inputs: dict[str, Padding] = field(default_factory=dict)
    outputs: dict[str, Padding] = field(default_factory=dict)
    embeddings: Embeddings | None = None
    options: dict[str, object] = field(default_factory=dict)


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    """host, port: where it listens (port 0 = any free one, printed).
    models: the model repository.  shutdown_grace_s: for what is in flight at SIGTERM.
    request_timeout_s: deadline of a request that names none; also the longest it may name.
    threads: cores shared by all workers, 0 = all that this process may use.
    allow_remote_admin: answer admin routes to others than this host."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    models: str = "models"
    shutdown_grace_s: Span = 30
    request_timeout_s: Annotated[float, Meta(gt=0)] = 60
    threads: Count = 0
    allow_remote_admin: bool = False


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on what the server takes in."""

    max_body_mb: Annotated[float, Meta(gt=0)] = 16
    max_header_kb: Positive = 64
    max_connections: Positive = 10_000
    idle_timeout_s: Annotated[float, Meta(gt=0)] = 75
    header_timeout_s: Annotated[float, Meta(gt=0)] = 10
    body_timeout_s: Annotated[float, Meta(gt=0)] = 60
    max_parts: Positive = 10_000
    max_queued_mb: Annotated[float, Meta(gt=0)] = 1024


class Scheduling(Struct, frozen=True, forbid_unknown_fields=True):
    """patience_ms: class of priority -> how long after arrival a request is due (earliest due first)."""

    patience_ms: tuple[Span, ...] = (100, 1_000, 10_000)


class Workers(Struct, frozen=True, forbid_unknown_fields=True):
    """start_timeout_s: from start to ready.  A worker that keeps dying is started again after
    backoff_s, doubled each time up to max_backoff_s, and given up after max_failures in a row
    (0 = never)."""

    start_timeout_s: Annotated[float, Meta(gt=0)] = 120
    backoff_s: Span = 0.1
    max_backoff_s: Span = 10
    max_failures: Count = 8


class Recorder(Struct, frozen=True, forbid_unknown_fields=True):
    """directory: "" = off.  Files are rotated at max_file_mb; the newest max_files are kept."""

    directory: str = ""
    max_file_mb: Annotated[float, Meta(gt=0)] = 64
    max_files: Positive = 4


class TenantSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """weight: share of the device beside other tenants."""

    weight: Annotated[float, Meta(gt=0)] = 1


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration file.

    tenant_header: header that names the tenant; "" = everybody is "default".
    """

    server: Server = Server()
    limits: Limits = Limits()
    scheduling: Scheduling = Scheduling()
    workers: Workers = Workers()
    recorder: Recorder = Recorder()
    tenant_header: str = ""
    tenants: dict[str, TenantSettings] = field(default_factory=dict)
    models: dict[str, ModelSettings] = field(default_factory=dict)
    """Overrides of models/NAME/model.toml, whole table by whole table."""
