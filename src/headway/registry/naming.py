"""Settings that name an input or output, held against what the version's files say. Nothing is loaded or run.

Where the files do not say it (a model.py that computes its declaration, a model.pt2), the worker finds out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from headway.config.check import join
from headway.config.errors import Problem, nearest
from headway.config.huggingface import FolderError, is_encoder, read_encoder
from headway.config.settings import ModelSettings
from headway.registry import onnx_names
from headway.registry.encoders import output_of
from headway.registry.spec import VersionSpec


class Names(NamedTuple):
    """None = the files do not say."""

    inputs: list[str] | None
    outputs: list[str] | None


def misnamed(manifest: Path, spec: VersionSpec) -> list[Problem]:
    """One problem per setting for an input or output that this version does not have."""
    names = named_by(spec)
    return [
        Problem(str(manifest), place, _no_such(spec, kind, name, known))
        for kind, known, used in (
            ("input", names.inputs, _inputs_used(spec.settings)),
            ("output", names.outputs, _outputs_used(spec.settings)),
        )
        if known is not None
        for place, name in used
        if name not in known
    ]


def named_by(spec: VersionSpec) -> Names:
    folder = Path(spec.path)
    if spec.executor == "python":
        return _of_class(folder / "model.py")
    if spec.executor == "onnx":
        try:
            return Names(*onnx_names.read(folder / "model.onnx"))
        except (onnx_names.NotOnnx, OSError):
            return Names(None, None)  # that it cannot be read is told by ONNX Runtime, which says more
    if is_encoder(folder):
        return _of_encoder(folder, spec.settings)
    told = spec.settings.torch
    return Names(list(told.inputs) or None, list(told.outputs) or None)


def _of_encoder(folder: Path, settings: ModelSettings) -> Names:
    try:
        told = read_encoder(folder)
    except FolderError:
        return Names(None, None)
    types = ["token_type_ids"] if told.types else []
    return Names(["input_ids", "attention_mask", *types], [output_of(settings, told)])


def _of_class(file: Path) -> Names:
    """What class Model declares in plain words, as the interpreter would read them."""
    try:
        body = next(
            (
                one.body
                for one in ast.parse(file.read_bytes()).body
                if isinstance(one, ast.ClassDef) and one.name == "Model"
            ),
            [],
        )
    except (OSError, SyntaxError, ValueError):
        return Names(None, None)  # told when it is loaded
    written = dict(_assigned(body))
    inputs, optional = written.get("inputs"), written.get("optional_inputs", [])
    return Names(None if inputs is None or optional is None else inputs + optional, written.get("outputs"))


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, list[str] | None]]:
    """Name -> the keys of the dict that it is set to; None where it is no dict of plain strings."""
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, _keys(getattr(statement, "value", None))


def _keys(value: object) -> list[str] | None:
    if not isinstance(value, ast.Dict):
        return None
    keys = [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return keys if len(keys) == len(value.keys) else None


def _inputs_used(settings: ModelSettings) -> list[tuple[str, str]]:
    """(place, name)"""
    tables: dict[str, Mapping[str, object]] = {"inputs": settings.inputs, "bounds": settings.bounds}
    return [(join(table, name), name) for table, used in tables.items() for name in used]


def _outputs_used(settings: ModelSettings) -> list[tuple[str, str]]:
    tables: dict[str, Mapping[str, object]] = {"outputs": settings.outputs, "tolerances": settings.tolerances}
    used = [(join(table, name), name) for table, used in tables.items() for name in used]
    return used + ([("embeddings.output", settings.embeddings.output)] if settings.embeddings else [])


def _no_such(spec: VersionSpec, kind: str, name: str, known: list[str]) -> str:
    close = nearest(name, known)
    hint = f"; did you mean {close!r}?" if close else ""
    return f"version {spec.version} has no {kind} {name!r}, it has {', '.join(known) or 'none'}{hint}"
