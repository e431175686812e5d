"""A program of PyTorch: what torch.export saved (model.pt2), or TorchScript (model.pt, model.ts).

Neither is a pickle of arbitrary objects, but both can hold some, and torch.load would run what is in them. So: every
pickle inside is read with weights_only (`TORCH_FORCE_WEIGHTS_ONLY_LOAD`), a .pt2 with custom objects is refused, and
so is a .pt that is a plain pickle (torch.save), which has weights but no program. The program itself is operators of
torch, as an ONNX file is operators of ONNX: it cannot reach Python.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch

from headway.config.settings import Padding, Torch
from headway.worker.declaration import Declared
from headway.worker.errors import LoadError
from headway.worker.executor import Array, PartArrays
from headway.worker.torch_tensors import DATATYPES, datatype_of

FILES = ("model.pt2", "model.pt", "model.ts")
OBJECTS = ("custom_obj_", "opaque_obj_")
"""Entries of a .pt2 that torch.export.load would unpickle as objects, whatever the settings."""

GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
"""What torch names as not allowed."""

EXAMPLE = 'x = ["FP32", [-1, 4]] in [torch.inputs]'


class Program:
    """fixed_rows, least_rows: as TorchModel says; from what a .pt2 tells of its first dimension."""

    fixed_rows, least_rows = 0, 1
    platform: str
    inputs: Sequence[Declared]
    outputs: Sequence[Declared]
    padding: Mapping[str, Padding] = {}
    output_padding: Mapping[str, Padding] = {}

    def __init__(self, name: str, file: Path, settings: Torch, device: str) -> None:
        """name: model/version, for messages. Raises LoadError."""
        self._name = name
        kind = _kind(name, file)
        os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is no longer developed; its files are still there
            try:
                if kind == "export":
                    self._load_exported(file, settings, device)
                else:
                    self._load_script(file, settings, device)
            except LoadError:
                raise
            except UnpicklingError as error:
                raise LoadError(f"model {name}: {_refused(file.name, str(error))}") from error
            except Exception as error:  # torch raises whatever its parts do
                raise LoadError(
                    f"model {name}: torch cannot load {file.name}: {type(error).__name__}: {error}"
                ) from error

    def problem(self, part: PartArrays) -> str:
        return ""

    def present(self, part: PartArrays) -> dict[str, Array]:
        return part.inputs

    def packs(self, parts: Sequence[PartArrays]) -> bool:
        return False

    def run_packed(self, parts: Sequence[PartArrays]) -> list[dict[str, Array]]:
        raise AssertionError("a program does not pack")

    def run(self, tensors: Sequence[Any]) -> Sequence[Any]:
        found: Any = self._call(*tensors)
        if isinstance(found, dict):
            found = list(found.values())
        elif not isinstance(found, (tuple, list)):
            found = [found]
        if len(found) != len(self.outputs):
            raise ValueError(f"the program returned {len(found)} tensors, {len(self.outputs)} outputs are declared")
        return list(found)

    # -- torch.export ------------------------------------------------------------------------------

    def _load_exported(self, file: Path, settings: Torch, device: str) -> None:
        self.platform = "pytorch_export"
        program = torch.export.load(str(file))
        self._call: Any = program.module().to(device)
        nodes = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
        taken = [nodes[name] for name in program.graph_signature.user_inputs]
        given = [argument.meta["val"] for argument in _output(program).args[0]][
            -len(program.graph_signature.user_outputs) :
        ]
        names = list(program.graph_signature.user_inputs)
        self._rows(program, dict(zip(names, taken, strict=True)))
        self.inputs = [self._declared("input", *pair) for pair in zip(names, taken, strict=True)]
        told = list(settings.outputs) or _output_names(program, len(given))
        if settings.inputs and list(settings.inputs) != names:
            raise LoadError(f"model {self._name}: torch.inputs has {list(settings.inputs)}, the file says {names}")
        if len(told) != len(given):
            raise LoadError(f"model {self._name}: torch.outputs has {len(told)} names, the file returns {len(given)}")
        self.outputs = [self._declared("output", *pair) for pair in zip(told, given, strict=True)]

    def _rows(self, program: Any, inputs: Mapping[str, Any]) -> None:
        fixed = {name: one.shape[0] for name, one in inputs.items() if len(one.shape) and isinstance(one.shape[0], int)}
        if len(set(fixed.values())) > 1:
            told = ", ".join(f"{name} to {size}" for name, size in fixed.items())
            raise LoadError(
                f"model {self._name}: the first dimension of every input must be the rows of the batch, "
                f"but it is fixed to different sizes: {told}"
            )
        self.fixed_rows = next(iter(fixed.values()), 0)
        symbols = [
            one.shape[0].node.expr for one in inputs.values() if len(one.shape) and not isinstance(one.shape[0], int)
        ]
        lows = [
            int(program.range_constraints[symbol].lower) for symbol in symbols if symbol in program.range_constraints
        ]
        self.least_rows = max([1, *lows])

    def _declared(self, kind: str, name: str, value: Any) -> Declared:
        where = f"model {self._name}: {kind} {name!r}"
        if not isinstance(value, torch.Tensor):
            raise LoadError(f"{where} is a {type(value).__name__}; only tensors can be served")
        sizes = tuple(size if isinstance(size, int) else -1 for size in value.shape)
        return Declared(name, datatype_of(where, value.dtype), (-1, *sizes[1:]) if sizes else ())

    # -- TorchScript -------------------------------------------------------------------------------

    def _load_script(self, file: Path, settings: Torch, device: str) -> None:
        self.platform = "pytorch_libtorch"
        self._call = torch.jit.load(str(file), map_location=device).eval()
        arguments = [argument.name for argument in self._call.forward.schema.arguments[1:]]
        if not settings.inputs or not settings.outputs:
            raise LoadError(
                f"model {self._name}: TorchScript does not say what it takes and gives (its arguments are "
                f"{', '.join(arguments)}); say it in model.toml, such as {EXAMPLE}, and the same under [torch.outputs]"
            )
        if len(settings.inputs) > len(arguments):
            raise LoadError(
                f"model {self._name}: torch.inputs has {len(settings.inputs)} inputs, "
                f"the program takes {len(arguments)}: {', '.join(arguments)}"
            )
        self.inputs = [self._written("inputs", name, *one) for name, one in settings.inputs.items()]
        self.outputs = [self._written("outputs", name, *one) for name, one in settings.outputs.items()]

    def _written(self, table: str, name: str, datatype: str, shape: tuple[int, ...]) -> Declared:
        where = f"model {self._name}: torch.{table}.{name}"
        if datatype not in DATATYPES.values():
            raise LoadError(f"{where}: unknown datatype {datatype!r}, known are {', '.join(DATATYPES.values())}")
        if not shape or shape[0] != -1 or min(shape) < -1:
            raise LoadError(f"{where}: expected -1 (the rows) and sizes, -1 = any, got {list(shape)}")
        return Declared(name, datatype, shape)


def _refused(file: str, text: str) -> str:
    """What torch will not unpickle, without torch's advice to let it. text: of its error."""
    found = GLOBAL.search(text)
    what = (
        f"holds a pickle with more than weights in it (it asks for {found[1]})"
        if found
        else "holds a pickle that is no weights"
    )
    return (
        f"{file} {what}: reading it may run any code that is there, so it is refused. Save the program anew, with "
        "torch.export.save, from a module whose state and example inputs are tensors and plain numbers"
    )


def _output(program: Any) -> Any:
    return next(node for node in program.graph.nodes if node.op == "output")


def _output_names(program: Any, count: int) -> list[str]:
    """The keys, where the program returns a dict; else `output`, or `output_0` and so on."""
    spec = program.call_spec.out_spec
    if spec is not None and spec.type is dict and len(spec.context) == count:
        return [str(key) for key in spec.context]
    return ["output"] if count == 1 else [f"output_{number}" for number in range(count)]


def _kind(name: str, file: Path) -> str:
    """ "export" or "script", by what is in the archive and not by its name. Raises LoadError."""
    try:
        with ZipFile(file) as archive:
            entries = [PurePosixPath(entry) for entry in archive.namelist()]
    except (OSError, BadZipFile) as error:
        raise LoadError(
            f"model {name}: {file.name} is neither torch.export's archive nor TorchScript: {error}"
        ) from error
    names = [entry.name for entry in entries]
    objects = [entry for entry in names if entry.startswith(OBJECTS)]
    if objects:
        raise LoadError(
            f"model {name}: {file.name} holds objects ({objects[0]}) that only a pickle could make; refused"
        )
    if "archive_format" in names:
        return "export"
    if "constants.pkl" in names and any("code" in entry.parts for entry in entries):
        return "script"
    if "data.pkl" in names:
        raise LoadError(
            f"model {name}: {file.name} is a pickle (torch.save): weights without a program; a whole module would "
            "need weights_only=False, which runs any code that is in the file. Save the program instead, with "
            "torch.export.save as model.pt2 or with torch.jit.script(module).save; of transformers' encoders, "
            "the folder that save_pretrained writes"
        )
    raise LoadError(f"model {name}: {file.name} is neither torch.export's archive nor TorchScript")
