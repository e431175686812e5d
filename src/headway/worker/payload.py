"""Parts from a message and its bytes to arrays, and results back."""

from __future__ import annotations

from collections.abc import Sequence

from headway.wire.frames import Buffer, ProtocolViolation
from headway.wire.messages import PartInput, PartResult
from headway.wire.tensors import Tensor, TensorHeader, from_numpy, to_numpy
from headway.worker.executor import Array, PartArrays, PartError, PartOutput


def unpack(parts: Sequence[PartInput], data: memoryview) -> list[PartArrays | PartError]:
    """Views of `data`, one entry per part; a part whose tensors are not what they say is an error of its own.

    Raises ProtocolViolation when headers and bytes do not add up.
    """
    unpacked: list[PartArrays | PartError] = []
    at = 0
    for part in parts:
        arrays: dict[str, Array] = {}
        failed: PartError | None = None
        for header in part.tensors:
            end = at + header.size
            try:
                arrays[header.name] = to_numpy(Tensor(header.name, header.datatype, header.shape, data[at:end]))
            except ValueError as error:
                failed = PartError(str(error), "invalid_input")
            at = end
        unpacked.append(failed or PartArrays(part.rows, part.length, arrays, part.parameters))
    if at != len(data):
        raise ProtocolViolation(f"parts with {at} bytes of tensors in a message with {len(data)}")
    return unpacked


def pack(outputs: Sequence[PartOutput], bf16: frozenset[str] = frozenset()) -> tuple[list[PartResult], list[Buffer]]:
    """Results and the buffers that follow them. Arrays are not copied where their memory is contiguous.

    bf16: names of the outputs whose uint16 is BF16.
    """
    results: list[PartResult] = []
    buffers: list[Buffer] = []
    for output in outputs:
        if isinstance(output, PartError):
            results.append(PartResult([], (output.code, output.detail)))
            continue
        headers: list[TensorHeader] = []
        for name, array in output.items():
            tensor = from_numpy(name, array, name in bf16)
            headers.append(tensor.header)
            buffers.append(tensor.data)
        results.append(PartResult(headers))
    return results, buffers
