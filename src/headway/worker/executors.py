"""The executors there are, by the name that model.toml uses. Each is imported only where it is used."""

from __future__ import annotations

from typing import TypeAlias

from headway.worker.errors import LoadError
from headway.worker.executor import BatchExecutor, StreamExecutor

Executor: TypeAlias = BatchExecutor | StreamExecutor
"""Which of the two it is, is known when it has loaded: ModelMeta.streaming."""


def create(kind: str) -> Executor:
    if kind == "onnx":
        from headway.worker.onnx_executor import OnnxExecutor

        return OnnxExecutor()
    if kind == "python":
        from headway.worker.python_executor import PythonExecutor

        return PythonExecutor()
    if kind == "torch":
        return _torch()
    raise LoadError(f"unknown executor {kind!r}, known are 'onnx', 'python' and 'torch'")


def _torch() -> Executor:
    """It is an extra: importing it takes seconds and hundreds of megabytes."""
    try:
        from headway.worker.torch_executor import TorchExecutor
    except ImportError as error:
        advice = "install headway with its extra `torch`: pip install 'headway[torch]'"
        raise LoadError(f"the torch executor cannot be imported ({error}); {advice}") from error
    return TorchExecutor()
