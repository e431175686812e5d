"""Finds and checks the class `Model` of a model.py. What it may contain: `headway.worker.python_executor`."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from headway.wire.tensors import DATATYPES
from headway.worker.declaration import Declared
from headway.worker.errors import LoadError, did_you_mean


def model_class(model: str, folder: str) -> type[Any]:
    """The class `Model` of folder/model.py. model: name/version. Raises LoadError, or what the file itself raises."""
    module = _module(model, Path(folder) / "model.py")
    found = getattr(module, "Model", None)
    if not isinstance(found, type):
        raise LoadError(f"model {model}: model.py defines no class Model")
    batches, streams = (callable(getattr(found, method, None)) for method in ("execute", "stream"))
    if batches and streams:
        raise LoadError(f"model {model}: class Model has both execute and stream; it must have one of them")
    if not batches and not streams:
        raise LoadError(f"model {model}: class Model has neither execute(self, requests) nor stream(self, request)")
    return found


def declared(model: str, found: type[Any], attribute: str, optional: bool = False) -> list[Declared]:
    """What `Model.inputs` and its like declare: {name: (datatype, shape)}."""
    declaration = getattr(found, attribute, {})
    where = f"model {model}: Model.{attribute}"
    if not isinstance(declaration, dict):
        raise LoadError(f'{where} must be a dict like {{"x": ("FP32", [-1, 4])}}, got {type(declaration).__name__}')
    return [_declared(f"{where}[{name!r}]", name, entry, optional) for name, entry in declaration.items()]


def _declared(where: str, name: object, entry: object, optional: bool) -> Declared:
    if not isinstance(name, str) or not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 2:
        raise LoadError(f'{where} must be a name with a datatype and a shape, like "x": ("FP32", [-1, 4])')
    datatype, shape = entry
    if datatype not in DATATYPES:
        raise LoadError(
            f"{where}: unknown datatype {datatype!r}, known are {', '.join(DATATYPES)}"
            f"{did_you_mean(str(datatype), DATATYPES)}"
        )
    if not isinstance(shape, Sequence) or not all(isinstance(size, int) and size >= -1 for size in shape):
        raise LoadError(f"{where}: the shape must be a list of sizes, -1 = any, got {shape!r}")
    if not shape or shape[0] != -1:
        raise LoadError(f"{where}: the first dimension must be -1, the rows of the batch, got {list(shape)}")
    return Declared(name, datatype, tuple(shape), optional)


def _module(model: str, file: Path) -> ModuleType:
    if not file.is_file():
        raise LoadError(f"model {model}: there is no {file}")
    name = "headway_model_" + re.sub(r"\W", "_", model)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, f"no loader for {file}"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where pickle, dataclasses and the like look a class up
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module
