"""Compiles what every request passes to machine code (mypyc, a C compiler), for servers that start from this checkout.

    .venv/bin/python tools/compile.py

Does nothing where that was done for the sources as they are. A machine that has no C compiler, or no headers of its
Python, is told so, and its servers run the sources: they decide the same, and take longer over it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "headway"
sys.path.insert(0, str(SOURCE.parent))

from headway.compiled import DIGEST, FOLDER, PACKAGES, digest, is_fresh  # noqa: E402

PLAIN = (
    *("__init__", "record", "units", "ids", "events", "effects", "outcomes", "errors", "policy"),
    *("plan/__init__", "plan/policy", "plan/request", "plan/step"),
)
"""Modules of the core and the planner that stay as they are: plain data, by decorators that mypyc does not know."""


CHOSEN = {
    "wire": ("frames", "tensors"),
    "telemetry": ("counters", "generations", "histogram", "phases"),
    "runtime": ("channel", "crew", "effects", "held", "mailbox", "memory", "runtime", "slot", "worker_process"),
    "worker": ("batches", "channel", "payload", "progress", "python_executor", "python_results", "stacking"),
    "gateway": (
        *("bounds", "budget", "calls", "catalog", "connection", "exchange", "gateway", "http", "idempotency"),
        *("json_tensors", "kept_replies", "oip", "oip_parameters", "options", "parts", "reading", "rendering"),
        *("router", "routes", "shapes", "signature"),
    ),
}
"""Of the other packages: what each request passes, apart from what is decoded (decision 31)."""

SETUP = """
from mypyc.build import mypycify
from setuptools import setup
groups = {groups!r}
modules = [module for group, _ in groups for module in group]
setup(name="headway-compiled", packages=[], ext_modules=mypycify(modules, opt_level="2", separate=groups))
"""
"""A library for each package: one for all takes several times as long to compile."""

TYPES = """
[mypy]
[mypy-torch.*,transformers.*,safetensors.*,gguf.*,llguidance.*]
ignore_missing_imports = True
follow_imports = skip
"""
"""Reading what these say of their types takes minutes, and nothing that is compiled is about them."""


def modules_of(source: Path, package: str) -> list[Path]:
    """What is compiled of it. source: the folder `headway`."""
    files = {
        file.relative_to(source / package).with_suffix("").as_posix(): file
        for file in sorted((source / package).rglob("*.py"))
    }
    if package in CHOSEN:
        return [file for name, file in files.items() if name in CHOSEN[package]]
    pure = [name for name in files if package != "llm" or name.startswith(("__init__", "plan/"))]
    return [files[name] for name in pure if name not in PLAIN]


def prepare(directory: Path) -> None:
    """A copy of the sources, and beside it a setup.py that translates them to C each time that it is run."""
    copied = directory / "headway"
    shutil.copytree(SOURCE, copied, ignore=shutil.ignore_patterns("_compiled", "_kernels", "__pycache__"))
    groups = [
        ([str(file.relative_to(directory)) for file in modules_of(copied, package)], f"headway_{package}")
        for package in PACKAGES
    ]
    (directory / "mypy.ini").write_text(TYPES)
    (directory / "setup.py").write_text(SETUP.format(groups=groups))


def set_up(directory: Path, *arguments: str) -> None:
    """Raises subprocess.CalledProcessError."""
    command = [sys.executable, "setup.py", "--quiet", *arguments]
    flags = {"CFLAGS": "-g0"}  # to describe every line to a debugger takes longer than to compile it
    subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, env={**os.environ, **flags})


def keep(directory: Path, found: str) -> None:
    """Put what was built in its place; the digest comes last."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for package in PACKAGES:
        shutil.copytree(directory / "headway" / package, FOLDER / package)
    for library in directory.glob("headway_*__mypyc*"):
        shutil.copy(library, FOLDER)
    (FOLDER / DIGEST).write_text(found)


def main() -> None:
    if is_fresh():
        return
    found = digest(SOURCE)
    print("set-up: compiling scheduler, runtime and gateway (one to three minutes)", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        try:
            prepare(Path(directory))
            set_up(Path(directory), "build_ext", "--inplace", "--parallel", str(os.cpu_count() or 1))
        except subprocess.CalledProcessError as error:
            last = (error.stderr or error.stdout).strip().splitlines()[-1:]
            print(
                f"set-up: scheduler, runtime and gateway were not compiled ({' '.join(last)}): they run as they are "
                "and slower. It takes gcc and the headers of Python; on Debian and Ubuntu: apt install gcc python3-dev",
                file=sys.stderr,
            )
            return
        keep(Path(directory), found)


if __name__ == "__main__":
    main()
