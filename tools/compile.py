"""Compiles the scheduler to machine code (mypyc and a C compiler), for servers that start from this checkout.

    .venv/bin/python tools/compile.py

Does nothing where that was done for the sources as they are. A machine that has no C compiler, or no headers of its
Python, is told so, and its servers run the sources: they decide the same, and take longer over it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "headway"
sys.path.insert(0, str(SOURCE.parent))

from headway.compiled import DIGEST, FOLDER, PACKAGES, digest, is_fresh  # noqa: E402

INTERPRETED = ("__init__", "record", "units", "ids", "events", "effects", "outcomes", "errors", "policy")
"""Plain data, made by decorators that mypyc does not know."""

SETUP = """
from mypyc.build import mypycify
from setuptools import setup
setup(name="headway-compiled", packages=[], ext_modules=mypycify({modules!r}, opt_level="2", group_name="headway"))
"""


def build(directory: Path) -> None:
    """Raises subprocess.CalledProcessError."""
    copied = directory / "headway"
    shutil.copytree(SOURCE, copied, ignore=shutil.ignore_patterns("_compiled", "__pycache__"))
    modules = [
        str(file.relative_to(directory))
        for package in PACKAGES
        for file in sorted((copied / package).glob("*.py"))
        if file.stem not in INTERPRETED
    ]
    (directory / "setup.py").write_text(SETUP.format(modules=modules))
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)


def keep(directory: Path, found: str) -> None:
    """Put what was built in its place; the digest comes last."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for package in PACKAGES:
        shutil.copytree(directory / "headway" / package, FOLDER / package)
    for library in directory.glob("headway__mypyc*"):
        shutil.copy(library, FOLDER)
    (FOLDER / DIGEST).write_text(found)


def main() -> None:
    if is_fresh():
        return
    found = digest(SOURCE)
    print("set-up: compiling the scheduler (about a minute and a half)", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        try:
            build(Path(directory))
        except subprocess.CalledProcessError as error:
            last = (error.stderr or error.stdout).strip().splitlines()[-1:]
            print(
                f"set-up: the scheduler could not be compiled ({' '.join(last)}); it runs as it is, slower. "
                "It takes gcc and the headers of Python; on Debian and Ubuntu: apt install gcc python3-dev",
                file=sys.stderr,
            )
            return
        keep(Path(directory), found)


if __name__ == "__main__":
    main()
