"""Every setting there is, with its unit and default. Names end in their unit."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

from headway.config.tenants import Keys, OtherTenants, TenantSettings

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Span = Annotated[float, Meta(ge=0)]

MEBIBYTE = 1 << 20


MAX_QUEUE_DELAY_MS = 5
"""Where neither a delay is set nor an SLO that one could be derived from."""


class Padding(Struct, frozen=True, forbid_unknown_fields=True):
    """How one input or output is padded. Nothing is padded that does not say so here.

    pad_axis: the axis that grows to the longest of the batch; 1 = the first after the rows.
    pad_value: what an input is filled with; outputs are cut back, theirs is not used.
    """

    pad_axis: Positive = 1
    pad_value: float = 0


class Bounds(Struct, frozen=True, forbid_unknown_fields=True):
    """What an input's values may be, where the datatype would let in more: an index into a table of the model, say.

    A request with any other value is refused (400) before it reaches a batch. Numeric inputs only.

    minimum: the smallest value that is taken; not set = whatever the datatype holds.
    maximum: the largest.
    """

    minimum: float | None = None
    maximum: float | None = None


class Tolerance(Struct, frozen=True, forbid_unknown_fields=True):
    """By how much an output may differ between a batch and alone before batching counts as unsafe. Not set = as its
    datatype has it, see models.md.

    absolute: that much in any case.
    relative: and so much of the value, or of the root mean square of its row where that is more.
    """

    absolute: Span | None = None
    relative: Span | None = None


class Batching(Struct, frozen=True, forbid_unknown_fields=True):
    """What may run together, and what may wait for it.

    max_batch_size: rows in one batch.
    max_batch_tokens: padded tokens in one batch (rows x longest length), 0 = no cap.
    max_batch_mb: payload of one batch in MiB, as it travels to the worker; 0 = no cap. One row always runs.
    max_batch_ms: predicted run time of one batch; 0 = automatic: 250, and half of `slo_ms` where that is set and less,
        or twice its first row alone if that is more. With `hold = true`: half of `slo_ms`, else no cap.
    max_queue_delay_ms: the longest that a request waits for company while a worker is free; not set = derived from
        `slo_ms` where that is set, else 5.
    hold: wait that long even where nothing is gained by it.
    max_queued_requests: requests that may wait for one version; more are refused.
    max_queued_rows: rows that may wait for one version; more are refused.
    """

    max_batch_size: Positive = 32
    max_batch_tokens: Count = 0
    max_batch_mb: Span = 0
    max_batch_ms: Span = 0
    max_queue_delay_ms: Span | None = None
    hold: bool = False
    max_queued_requests: Positive = 10_000
    max_queued_rows: Positive = 100_000

    @property
    def max_batch_bytes(self) -> int:
        """max_batch_mb in bytes. The least cap is 1, for 0 is none."""
        return max(1, int(self.max_batch_mb * MEBIBYTE)) if self.max_batch_mb else 0


class WarmUp(Struct, frozen=True, forbid_unknown_fields=True):
    """The grid of sizes that are run before a version is ready; they seed the cost model.

    enabled: false = ready at once, and the first requests pay for it.
    rows: batch sizes to run; [] = chosen from the caps.
    lengths: lengths along the padded axis to run; [] = chosen from the caps.
    repeats: timed runs per point.
    """

    enabled: bool = True
    rows: tuple[Positive, ...] = ()
    lengths: tuple[Positive, ...] = ()
    repeats: Positive = 3


class Embeddings(Struct, frozen=True, forbid_unknown_fields=True):
    """Makes a model answer /v1/embeddings: how text becomes its inputs.

    tokenizer: file in the version's folder, or in the model's (the JSON of the library `tokenizers`).
    max_length: tokens; longer texts are refused, or cut where the request says so.
    output: which output holds the vectors.
    dimensions: shorter vectors that a request may ask for, of models trained so that the first few numbers are a vector
        of their own (Matryoshka); they are cut, and scaled to length 1 again. [] = only the model's own size.
    """

    tokenizer: str = "tokenizer.json"
    max_length: Positive = 256
    output: str = "embedding"
    dimensions: tuple[Positive, ...] = ()


Signature: TypeAlias = dict[str, tuple[str, tuple[int, ...]]]


class Torch(Struct, frozen=True, forbid_unknown_fields=True):
    """How PyTorch runs a model: a Hugging Face encoder's folder, or a program (model.pt2, model.pt, model.ts).

    dtype: what an encoder computes in. int8 = weights and, token by token, activations of its linear layers, on a CPU.
    pooling: an encoder's states to one vector per text: "mean" of the tokens or "cls", the first; "none" = all states.
        "" = as the folder's modules.json says, none where there is none.
    normalize: bring that vector to length 1; not set = as modules.json says.
    packing: "on" runs the tokens of a batch end to end, without padding; "auto" = where that is right and no slower.
    inputs: of a program, in the order of its arguments: x = ["FP32", [-1, 4]], the first dimension being the rows and
        -1 any size. A model.pt2 says it by itself.
    outputs: of a program, in the order in which it returns them.
    """

    dtype: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    pooling: Literal["", "mean", "cls", "none"] = ""
    normalize: bool | None = None
    packing: Literal["auto", "on", "off"] = "auto"
    inputs: Signature = field(default_factory=dict)
    outputs: Signature = field(default_factory=dict)


class Language(Struct, frozen=True, forbid_unknown_fields=True):
    """How a language model is run: a GGUF file (model.gguf) or a Hugging Face folder.

    dtype: of weights, states, keys and values.
    quantised: weights of a GGUF file are used as they lie there for steps of few rows, where that is faster.
    memory_mb: for keys and values. 0 = a quarter of what is free, 2048 at most.
    block_size: tokens of a block of keys and values.
    max_context: tokens of prompt and output together; 0 = as many as the model was trained for, and memory holds.
    max_step_tokens: that a step computes at most, of prompts and outputs together.
    tile: chunks of prompts are multiples of so many tokens.
    target_itl_ms: that steps are kept within beside running streams, for requests that do not say.
    admit: how the memory that a sequence will come to need is judged. "future_peak" = by lengths as they turned out
        lately; "worst_case" = as if all produced what they may, so that none is ever set back; "estimate" = by a part
        of that.
    prefix_cache: prompts that begin alike are computed once, within a tenant.
    """

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    quantised: bool = True
    memory_mb: Count = 0
    block_size: Positive = 16
    max_context: Count = 0
    max_step_tokens: Positive = 512
    tile: Positive = 32
    target_itl_ms: Annotated[float, Meta(gt=0)] = 100
    admit: Literal["future_peak", "worst_case", "estimate"] = "future_peak"
    prefix_cache: bool = True


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """models/NAME/model.toml. Everything has a default; an empty or missing file is fine.

    executor: "onnx", "python", "torch" or "llm"; "" = by the file found.
    device: "cpu", or "cuda:N" where it exists.
    instances: worker processes per version.
    threads: compute threads per worker; 0 = its share of the cores.
    cores: of the server's cores, what a worker keeps busy while it runs a batch; not set = its threads. 0 = none, for a
        model that waits for something else than the processor. On a GPU: 0 = it does not take turns with others.
    default_version: answers requests that name no version; 0 = the highest.
    max_length: the longest that a request may be along the padded axis; longer ones are refused (400). 0 = any.
    slo_ms: the latency that is aimed for, from the request's last byte to its answer; 0 = none. Caps a batch's run
        time, and decides how long a request may wait for company unless `max_queue_delay_ms` does.
    fallback: the model that is given a request which this one has no room or time for, or no worker; once, and if the
        request fits it. Its default version answers, and says so in a header. "" = none.
    max_sequences: streaming models: sequences that run at once per worker. 0 = 8, of a language model 64.
    per_row_parameters: request parameters that the executor applies row by row; all others keep requests apart.
    batch_safety: whether a row's answer in a batch is compared with its answer alone when a worker loads.
        "check" = yes, and where they differ the version is served with equal lengths only, or row by row;
        "report" = yes, and it is only said; "off" = no.
    batch_invariant: every batch is run at a fixed size, so that an answer has the same bits in whatever company. Needs
        `max_length` where inputs are padded.
    memory_mb: of a worker, for one batch at its peak, beside the loaded model; what warm-up measures then caps the
        tokens of a batch. 0 = on a GPU all that is free after loading, elsewhere no cap.
    idempotent: running a request twice is the same as once, as where a model only computes. false = what has begun is
        never begun again: a request whose worker is lost ends as `may_have_run`, and a batch that raises fails whole.
    max_attempts: workers that die while they run nothing but one request before it is given up, `poison_request`.
    hang_s: the least time after which a worker that has a batch and does not answer is suspected, and after as much
        again killed. Or 10 times the upper prediction, if that is more; 6 times that for a size never run. 0 = never.
    quarantine_s: for how long requests with the content of one that killed its workers are refused. 0 = they are not.
    options: handed to a python model's load() as they are.
    """

    executor: Literal["", "onnx", "python", "torch", "llm"] = ""
    device: str = "cpu"
    instances: Positive = 1
    threads: Count = 0
    cores: Count | None = None
    default_version: Count = 0
    max_length: Count = 0
    slo_ms: Span = 0
    fallback: str = ""
    max_sequences: Count = 0
    per_row_parameters: tuple[str, ...] = ()
    batch_safety: Literal["check", "report", "off"] = "check"
    batch_invariant: bool = False
    memory_mb: Count = 0
    idempotent: bool = True
    max_attempts: Positive = 2
    hang_s: Span = 5
    quarantine_s: Span = 600
    batching: Batching = Batching()
    warm_up: WarmUp = WarmUp()
    inputs: dict[str, Padding] = field(default_factory=dict)
    outputs: dict[str, Padding] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    embeddings: Embeddings | None = None
    torch: Torch = Torch()
    language: Language = Language()
    options: dict[str, object] = field(default_factory=dict)

    def sequences(self, executor: str) -> int:
        """max_sequences, as it holds for a streaming model that this executor runs."""
        return self.max_sequences or (64 if executor == "llm" else 8)


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    """Where it listens, what it serves, how it ends.

    host: address to listen on; the default is reachable from this machine only.
    port: 0 = any free one, which is printed.
    unix_socket: path of a unix socket to listen on instead of host and port; "" = none. Only this process's user can
        connect unless unix_socket_mode says more. A relative path counts from the configuration file's folder.
    unix_socket_mode: permissions of that socket, in octal.
    ssl_certfile: PEM file with the certificate and its chain: HTTPS instead of HTTP; "" = none.
    ssl_keyfile: PEM file with its private key, not encrypted; "" = it is in ssl_certfile.
    trusted_proxies: addresses or networks (`10.0.0.0/8`) of proxies whose Forwarded and X-Forwarded-For are believed;
        "unix" = whoever connects by the unix socket. [] = nobody's.
    cors_origins: origins (`https://app.example`) whose pages may call this server from a browser; "*" = all; [] = none.
    compress_replies_kb: replies of at least this size go out compressed to clients that accept it; 0 = none do.
    access_log: one line in the log for each reply.
    log_format: "text" or "json", one line per record.
    models: the model repository; a relative path counts from the configuration file's folder.
    shutdown_grace_s: at SIGTERM, for what is in flight.
    request_timeout_s: deadline of a request that names none; also the longest it may name.
    threads: cores that all workers share, taking turns where they are too few; 0 = all that this process may use.
    require_keys: nobody gets in without a key, also where no tenant has one (yet).
    admin_port: admin routes and `/metrics` are answered at this port only, which answers nothing else; 0 = any free
        one, which is printed. Not set = where everything else is, and to this host only.
    admin_host: address of that port. Whoever reaches it is let in, unless there are admin_keys.
    admin_keys: a list of tables, `[[server.admin_keys]]`: admin routes and `/metrics` want one of these keys, from
        anywhere.
    allow_remote_admin: where there are neither: answer admin routes and `/metrics` to others than this host.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    unix_socket: str = ""
    unix_socket_mode: str = "600"
    ssl_certfile: str = ""
    ssl_keyfile: str = ""
    trusted_proxies: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    compress_replies_kb: Count = 32
    access_log: bool = False
    log_format: Literal["text", "json"] = "text"
    models: str = "models"
    shutdown_grace_s: Span = 30
    request_timeout_s: Annotated[float, Meta(gt=0)] = 60
    threads: Count = 0
    require_keys: bool = False
    admin_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    admin_host: str = "127.0.0.1"
    admin_keys: Keys = ()
    allow_remote_admin: bool = False


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds on what the server takes in.

    max_body_mb: of one request, decompressed; larger ones are refused before they are read.
    max_json_mb: of one request's JSON, which is parsed in one go while everybody else waits. Beyond it tensors must be
        binary.
    max_header_kb: of one request, all headers together.
    max_connections: open at once; more are refused.
    idle_timeout_s: a connection without a request is closed after it.
    header_timeout_s: from a request's first byte to its last header.
    body_timeout_s: from its last header to its last byte.
    max_parts: rows or texts in one request.
    max_queued_mb: payload of all requests that have no outcome yet; and, counted apart, all bodies that are being
        read or wait for their turn.
    """

    max_body_mb: Annotated[float, Meta(gt=0)] = 64
    max_json_mb: Annotated[float, Meta(gt=0)] = 16
    max_header_kb: Positive = 64
    max_connections: Positive = 10_000
    idle_timeout_s: Annotated[float, Meta(gt=0)] = 75
    header_timeout_s: Annotated[float, Meta(gt=0)] = 10
    body_timeout_s: Annotated[float, Meta(gt=0)] = 60
    max_parts: Positive = 10_000
    max_queued_mb: Annotated[float, Meta(gt=0)] = 1024


class Idempotency(Struct, frozen=True, forbid_unknown_fields=True):
    """Replies that are kept for requests with an `Idempotency-Key`, for whoever sends the same again with it.

    keep_s: for how long, from the reply on. 0 = not at all: the same again joins what runs, and else runs.
    max_mb: of all keys and the replies kept under them; beyond it the tenant that has most loses its oldest.
    max_reply_kb: of one reply; a larger one is not kept.
    """

    keep_s: Span = 600
    max_mb: Annotated[float, Meta(gt=0)] = 64
    max_reply_kb: Positive = 1024


class Scheduling(Struct, frozen=True, forbid_unknown_fields=True):
    """The order in which requests are served.

    patience_ms: for each class of priority, 0 first, how long after its arrival a request is due; earliest due first.
    """

    patience_ms: tuple[Span, ...] = (100, 1_000, 10_000)


class Workers(Struct, frozen=True, forbid_unknown_fields=True):
    """How worker processes are started, and started again.

    start_timeout_s: from its start until it is ready.
    backoff_s: before one that died is started again; doubled each time it dies again, unless it was killed from
        outside.
    max_backoff_s: the longest such wait.
    max_failures: failures to load in a row after which it is given up; 0 = never. One that dies while it serves is
        always started again. A version that cannot be loaded as it lies on disk is given up at once and for good,
        unless it was ready before.
    retry_given_up_s: after which one that was given up is tried again; 0 = never.
    """

    start_timeout_s: Annotated[float, Meta(gt=0)] = 120
    backoff_s: Span = 0.1
    max_backoff_s: Span = 10
    max_failures: Count = 8
    retry_given_up_s: Span = 60


class Recorder(Struct, frozen=True, forbid_unknown_fields=True):
    """The trace of all that the scheduler was told and decided, for `headway replay`.

    directory: where it is written; "" = off. A relative path counts from the configuration file's folder.
    max_file_mb: a file that has reached it is closed and a new one begun.
    max_files: the newest so many are kept.
    """

    directory: str = ""
    max_file_mb: Annotated[float, Meta(gt=0)] = 64
    max_files: Positive = 4


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration file.

    tenant_header: header that names the tenant, where something that is trusted sets it; "" = everybody is "default".
        Where tenants have keys, those name them, and there is no such header.
    unknown_tenants: what the header may name beside `[tenants.NAME]`. "each" = any name, each a tenant by itself;
        "default" = they are all "default"; "refuse" = none (403), nor may it be missing unless there is
        `[tenants.default]`.
    """

    server: Server = Server()
    limits: Limits = Limits()
    idempotency: Idempotency = Idempotency()
    scheduling: Scheduling = Scheduling()
    workers: Workers = Workers()
    recorder: Recorder = Recorder()
    tenant_header: str = ""
    unknown_tenants: Literal["each", "default", "refuse"] = "each"
    tenants: dict[str, TenantSettings] = field(default_factory=dict)
    other_tenants: OtherTenants = OtherTenants()
    models: dict[str, ModelSettings] = field(default_factory=dict)
    """Overrides of models/NAME/model.toml, whole table by whole table."""
