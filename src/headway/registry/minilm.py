"""Makes the default model ready: `python -m headway.registry.minilm REPOSITORY`.

Exports the sentence encoder all-MiniLM-L6-v2, whose weights are data of an installed package, to
ONNX as the model's own configuration says, checks it against transformers, and puts it into the
model repository. Runs once; a second call sees that it is there and imports nothing heavy. Nothing
is fetched from anywhere.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from headway.registry.minilm_parts import NAME, PACKAGE, RECIPE, STAMP, ExportError


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m headway.registry.minilm REPOSITORY", file=sys.stderr)
        return 2
    try:
        prepare(Path(arguments[0]))
    except ExportError as error:
        print(f"the default model cannot be made ready: {error}", file=sys.stderr)
        return 1
    return 0


def prepare(repository: Path) -> Path:
    """The model's folder in the repository; made only if it is not there yet. Raises ExportError."""
    folder = repository / NAME
    if is_ready(folder):
        return folder
    source = find_source()
    started = time.monotonic()
    say(f"exporting {NAME} to ONNX and comparing it with transformers (once, under a minute) ...")
    building = repository / f".{NAME}.{os.getpid()}"
    try:
        worst = make(source, building)
        put_in_place(building, folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    say(f"{NAME} is ready: largest difference to transformers {worst:.1e}, took {time.monotonic() - started:.0f} s")
    return folder


def is_ready(folder: Path) -> bool:
    """Whether this recipe's export is there, whole."""
    try:
        stamp = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return False
    return bool(stamp.get("recipe") == RECIPE) and (folder / "1" / "model.onnx").is_file()


def find_source() -> Path:
    """The folder with the weights, inside the installed package."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ExportError(f"the package {PACKAGE.replace('_', '-')} is not installed; `make serve` installs it")
    return Path(spec.origin).parent / "model"


def make(source: Path, folder: Path) -> float:
    """Writes the whole model to `folder`, the stamp last; returns the largest difference to transformers."""
    try:
        from headway.registry import minilm_export
    except ImportError as error:
        raise ExportError(f"{error}; install headway with its extra `export`") from error
    worst = minilm_export.build(source, folder)
    (folder / STAMP).write_text(json.dumps({"recipe": RECIPE, "largest_difference": worst}) + "\n")
    return worst


def put_in_place(new: Path, folder: Path) -> None:
    """By renaming: whoever looks sees the old model, none, or the new one, never half of one."""
    old = folder.with_name(f".{folder.name}.old.{os.getpid()}")
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
