"""The messages. Two conversations: gateway <-> runtime, and runtime <-> worker.

Tensors never sit inside a message: a message that has them carries their headers, and their raw
bytes follow in the same frame, in order (`headway.wire.frames`). Every message to and from a worker
names the worker's incarnation. Workers report durations in nanoseconds, never instants.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from headway.core.ids import BatchKey, Capacity, Measurement, Part
from headway.core.outcomes import Outcome
from headway.wire.engine import Counters, GiveBack, Start, Stepped
from headway.wire.generation import Generation, LanguageMeta
from headway.wire.safety import SafetyReport
from headway.wire.tensors import Tensor, TensorHeader

PROTOCOL_VERSION = 1


class InputMeta(msgspec.Struct, frozen=True):
    """One input or output as the model declares it.

    shape: -1 = any size. The first dimension is the batch (rows) dimension.
    pad_axis: the axis that is padded to the longest of the batch (None: this tensor never is).
    pad_value: what it is padded with.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False
    pad_axis: int | None = None
    pad_value: float = 0


class MemoryPoint(msgspec.Struct, frozen=True, array_like=True):
    """peak: bytes that a batch of so many rows of this length took, beside the loaded model."""

    rows: int
    length: int
    peak: int


class MemoryUse(msgspec.Struct, frozen=True):
    """What batches take of a worker's memory, as measured while it warmed up.

    limit: bytes that a batch may take; 0 = no cap.  fixed, per_token: bytes of a line that no point lies above.
    max_batch_tokens: rows x length that keep within the limit; 0 = any.
    """

    limit: int
    fixed: int
    per_token: float
    max_batch_tokens: int
    points: tuple[MemoryPoint, ...]


class ModelMeta(msgspec.Struct, frozen=True):
    """What the gateway needs to know of a loaded version in order to validate a request.

    platform: as the Open Inference Protocol names it, e.g. "onnxruntime_onnx", "python".
    max_batch_size: rows the model itself can take at once (a fixed batch dimension in the file);
        the operator's cap may be lower. 0 = any.
    streaming: answers by generate_stream, one sequence per request.
    per_row_parameters: request parameters that may differ within a batch.
    length_classes: each row is padded to the least of these that holds it; () = to the longest of its batch.
    memory: None where it was not measured.
    unpadded: the rows of a batch are run end to end, without padding.
    language: of a language model, which takes a `Generation`; None where it is something else.
    """

    platform: str
    inputs: tuple[InputMeta, ...]
    outputs: tuple[InputMeta, ...]
    max_batch_size: int = 0
    streaming: bool = False
    per_row_parameters: tuple[str, ...] = ()
    length_classes: tuple[int, ...] = ()
    memory: MemoryUse | None = None
    unpadded: bool = False
    language: LanguageMeta | None = None

    @property
    def max_batch_tokens(self) -> int:
        """Tokens that the worker's memory holds at once; the operator's cap may be lower. 0 = any."""
        return self.memory.max_batch_tokens if self.memory else 0


# -- gateway <-> runtime -----------------------------------------------------------------------


class PartPayload(msgspec.Struct):
    """The tensors of one part (each with the part's rows as first dimension)."""

    tensors: list[Tensor]


class Submit(msgspec.Struct):
    """gateway -> runtime. deadline and received: monotonic nanoseconds of this host.

    parameters: the request's parameters, for the executor (JSON values).
    body: for a streaming model, the request as JSON (tensors are empty then).
    generation: the same for a language model. Its only part has the prompt's tokens for a length.
    """

    request: int
    tenant: str
    key: BatchKey
    parts: list[Part]
    payload: list[PartPayload]
    bytes: int
    deadline: int
    priority: int
    parameters: dict[str, Any]
    received: int
    body: dict[str, Any] | None = None
    generation: Generation | None = None


class Enough(msgspec.Struct):
    """gateway -> runtime: the client has all that it wants of this stream, which is completed."""

    request: int


class Cancel(msgspec.Struct):
    """gateway -> runtime: the client went away."""

    request: int


class Written(msgspec.Struct):
    """gateway -> runtime: the reply's last byte was handed to the socket, at this instant."""

    request: int
    at: int


class Timings(msgspec.Struct):
    """Phases of one request in nanoseconds; with `reply` (known to the gateway) they add up to its whole time.

    parse: from the request's last byte to its submission.  queue: until (last) dispatch.
    hand_over: unpacking, padding and stacking in the worker.  execute: the model itself.
    back: the rest of the round trip: both ways of the channel, slicing, waiting for other parts.
    """

    parse: int = 0
    queue: int = 0
    hand_over: int = 0
    execute: int = 0
    back: int = 0


class Reply(msgspec.Struct):
    """runtime -> gateway: the one outcome. outputs: per part, in order (only when COMPLETED).

    retry_after: nanoseconds, 0 = not known.
    begun: a worker was given some of it, so that it may have been run.
    """

    request: int
    outcome: Outcome
    detail: str
    retry_after: int
    outputs: list[list[Tensor]]
    timings: Timings
    begun: bool = False


class StreamChunk(msgspec.Struct):
    """runtime -> gateway: one result of a stream, as a JSON value; of a language model, as a `Result`. index counts
    from 0, without gaps."""

    request: int
    index: int
    value: Any


class VersionStatus(msgspec.Struct):
    """runtime -> gateway: state of a version: "loading", "ready", "unavailable", "draining", "failed".

    meta is kept through restarts; None until it was loaded once.
    """

    model: str
    version: int
    state: str
    meta: ModelMeta | None
    reason: str = ""
    retry_after: int = 0


class Quarantined(msgspec.Struct, frozen=True):
    """What the runtime tells of a content that is refused, since it has killed what ran it.

    content: what all that the model was given hashes to, 64 bits.  since, until: monotonic nanoseconds of this host.
    request, tenant: who asked it last.  cause: what it did.
    """

    model: str
    version: int
    content: int
    since: int
    until: int
    request: int
    tenant: str
    cause: str = ""


ToRuntime: TypeAlias = Submit | Cancel | Enough | Written
ToGateway: TypeAlias = Reply | StreamChunk | VersionStatus


# -- runtime <-> worker ------------------------------------------------------------------------


class Hello(msgspec.Struct, tag="hello"):
    """worker -> runtime, first of all. token: the secret it was started with."""

    protocol: int
    worker: int
    pid: int
    token: str


class Load(msgspec.Struct, tag="load"):
    """runtime -> worker: what to be. settings: the model's settings (headway.config) as builtins."""

    worker: int
    model: str
    version: int
    path: str
    executor: str
    device: str
    threads: int
    settings: dict[str, Any]


class Ready(msgspec.Struct, tag="ready"):
    """worker -> runtime: loaded and warmed up. safety: what batching does to the answers, and what follows from it."""

    worker: int
    meta: ModelMeta
    capacity: Capacity
    measurements: list[Measurement]
    safety: SafetyReport = SafetyReport()


class LoadFailed(msgspec.Struct, tag="load_failed"):
    """worker -> runtime; it exits after this. final: the same files would fail the same way again."""

    worker: int
    detail: str
    final: bool = False


class PartInput(msgspec.Struct, array_like=True):
    """request, index: for messages to people. tensors: headers; the bytes follow the message."""

    request: int
    index: int
    rows: int
    length: int
    tensors: list[TensorHeader]
    parameters: dict[str, Any]


class Execute(msgspec.Struct, tag="execute"):
    """runtime -> worker (data lane): run these parts together."""

    worker: int
    batch: int
    parts: list[PartInput]


class Withdraw(msgspec.Struct, tag="withdraw"):
    """runtime -> worker (control lane): leave this part of a batch out, if the batch has not begun. It may come
    before the batch it is meant for. The part's result is an error then, which nobody reads."""

    worker: int
    batch: int
    position: int


class PartResult(msgspec.Struct, array_like=True):
    """error: None, or [code, detail] with code "model_error" or "invalid_input"."""

    tensors: list[TensorHeader]
    error: tuple[str, str] | None = None


class Executed(msgspec.Struct, tag="executed"):
    """worker -> runtime (data lane). parts: as in Execute, same order."""

    worker: int
    batch: int
    hand_over: int
    execute: int
    finish: int
    parts: list[PartResult]


class ExecuteFailed(msgspec.Struct, tag="execute_failed"):
    """worker -> runtime: the whole batch failed; the worker lives on. code as in PartResult.

    out_of_memory: it was too large for the worker's memory, so that a smaller one may do.
    """

    worker: int
    batch: int
    elapsed: int
    code: str
    detail: str
    out_of_memory: bool = False


class Admit(msgspec.Struct, tag="admit"):
    """runtime -> worker: start a sequence. body: the request as JSON values."""

    worker: int
    request: int
    attempt: int
    body: dict[str, Any]


class Abort(msgspec.Struct, tag="abort"):
    """runtime -> worker (control lane): stop a sequence at the next step."""

    worker: int
    request: int
    attempt: int


class Emitted(msgspec.Struct, tag="emitted"):
    """worker -> runtime: results first .. first + len(values) - 1 of a sequence. service: device nanoseconds."""

    worker: int
    request: int
    attempt: int
    first: int
    values: list[Any]
    service: int


class Finished(msgspec.Struct, tag="finished"):
    """worker -> runtime: the sequence ended by itself, or was aborted; its room is free."""

    worker: int
    request: int
    attempt: int


class Failed(msgspec.Struct, tag="failed"):
    """worker -> runtime: the sequence raised; its room is free. code as in PartResult."""

    worker: int
    request: int
    attempt: int
    code: str
    detail: str


class CapacityReport(msgspec.Struct, tag="capacity"):
    worker: int
    capacity: Capacity


class Progress(msgspec.Struct, tag="progress"):
    """worker -> runtime: alive and getting on. steps: a count that only grows."""

    worker: int
    steps: int


class Stop(msgspec.Struct, tag="stop"):
    """runtime -> worker (control lane): finish what runs, then exit 0."""

    worker: int


ToWorker: TypeAlias = Load | Execute | Withdraw | Admit | Start | Counters | GiveBack | Abort | Stop
FromWorker: TypeAlias = (
    Hello
    | Ready
    | LoadFailed
    | Executed
    | ExecuteFailed
    | Emitted
    | Finished
    | Failed
    | Stepped
    | CapacityReport
    | Progress
)
