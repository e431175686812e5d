"""The executors there are, by the name that model.toml uses. Each is imported only where it is used."""

from __future__ import annotations

from typing import TypeAlias

from headway.worker.errors import LoadError
from headway.worker.executor import BatchExecutor, EngineExecutor, StreamExecutor

Executor: TypeAlias = BatchExecutor | StreamExecutor | EngineExecutor
"""Which of them it is, is known when it has loaded: ModelMeta.streaming, ModelMeta.language."""


def create(kind: str) -> Executor:
    if kind == "onnx":
        from headway.worker.onnx_executor import OnnxExecutor

        return OnnxExecutor()
    if kind == "python":
        from headway.worker.python_executor import PythonExecutor

        return PythonExecutor()
    if kind == "torch":
        return _torch()
    if kind == "llm":
        return _language()
    raise LoadError(f"unknown executor {kind!r}, known are 'onnx', 'python', 'torch' and 'llm'")


def _language() -> Executor:
    try:
        from headway.worker.torch_language import LanguageExecutor
    except ImportError as error:
        advice = "install headway with its extra `llm`: pip install 'headway[llm]'"
        raise LoadError(f"language models cannot be run ({error}); {advice}") from error
    return LanguageExecutor()


def _torch() -> Executor:
    """It is an extra: importing it takes seconds and hundreds of megabytes."""
    try:
        from headway.worker.torch_executor import TorchExecutor
    except ImportError as error:
        advice = "install headway with its extra `torch`: pip install 'headway[torch]'"
        raise LoadError(f"the torch executor cannot be imported ({error}); {advice}") from error
    return TorchExecutor()
