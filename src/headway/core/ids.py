"""Names of things. A worker that restarts is a new worker: ids are never used twice."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

RequestId: TypeAlias = int
WorkerId: TypeAlias = int
BatchId: TypeAlias = int
"""One dispatch. A part that is tried again travels in another batch, so the batch id fences late answers."""

Tenant: TypeAlias = str


class VersionId(NamedTuple):
    """A model version; also the name of the pool of workers that hold it."""

    model: str
    version: int

    def __str__(self) -> str:
        return f"{self.model}/{self.version}"


class BatchKey(NamedTuple):
    """What may share a batch: equal keys, and nothing else, may run together.

    `signature` is made by whoever knows the payload: input names, datatypes, fixed dimensions,
    which optional inputs are present, and every parameter that does not apply row by row.
    Lengths are not in it; they are a matter of cost, not of correctness. Of a version whose answers
    change with padding they are: it queues by `of_length`; and what is tried again in a group of its own by `of_group`.
    """

    model: str
    version: int
    signature: str

    @property
    def version_id(self) -> VersionId:
        return VersionId(self.model, self.version)

    def of_length(self, length: int) -> BatchKey:
        """For what may share a batch with parts of this length only."""
        return self._replace(signature=f"{self.signature}@{length}")

    def of_group(self, number: int) -> BatchKey:
        """For what is tried again with nobody but its group."""
        return self._replace(signature=f"{self.signature}#{number}")


class Part(NamedTuple):
    """What is scheduled: one row, or a run of rows of equal length.

    rows: how many rows of a batch it takes (>= 1).
    length: size of one row along the model's padded axis, in tokens (1 where nothing is padded).
    """

    rows: int
    length: int


class PartRef(NamedTuple):
    """One part of one request."""

    request: RequestId
    part: int


class Capacity(NamedTuple):
    """What a worker can hold, as it reports it. 0 means: not this kind of worker, or not limited.

    batch_slots: batches it takes at once (fixed-cost models).
    sequences: that it runs at once (streaming and autoregressive models).
    kv_blocks: of an engine's key-value pool, in all.  block_size: tokens that each holds; more than 0: it is an engine
        that plans its steps itself and reports on them.
    step_tokens: that it computes in a step at most.  max_context: tokens of a sequence, prompt and output.
    """

    batch_slots: int = 1
    sequences: int = 0
    kv_blocks: int = 0
    block_size: int = 0
    step_tokens: int = 0
    max_context: int = 0


class Measurement(NamedTuple):
    """One timed execution: `rows` rows padded to `length`, in nanoseconds."""

    rows: int
    length: int
    duration: int
