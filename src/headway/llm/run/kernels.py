"""The compiled kernels, `kernels.cpp`: built by whatever C++ compiler there is, once for each kind of processor.

Takes about two seconds, at set-up (`python -m headway.llm.run.kernels`) or when a model is first loaded. It needs no
headers but the compiler's own. The library's threads are those of torch: both ask for the same libgomp.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

import headway

SOURCE = Path(headway.__file__).parent / "llm" / "run" / "kernels.cpp"
"""Not beside a compiled copy of this file, which may be older."""
HEADERS = ("numbers.h", "attention.h", "quantised.h")
FOLDER = Path(headway.__file__).parent / "_kernels"
FLAGS = (
    *("-O3", "-march=native", "-mprefer-vector-width=512", "-std=c++17", "-shared", "-fPIC", "-fopenmp", "-w"),
    *("-fno-math-errno", "-fno-trapping-math"),
)
COMPILERS = ("g++", "c++")
TIME_LIMIT = 120
"""Of the compiler, in seconds."""

_log = logging.getLogger(__name__)

N, L, F, P = ctypes.c_int, ctypes.c_long, ctypes.c_float, ctypes.c_void_p
SIGNATURES = {
    "hw_add_norm": (N, L, L, P, P, P, F, P, N),
    "hw_gated": (N, L, L, P, P, N, N),
    "hw_rope_write": (N, L, L, L, L, P, P, P, P, L, P, P, P, P, F, N),
    "hw_has_few": (),
    "hw_few": (N, L, L, L, P, P, P, P, P, N),
    "hw_attend": (N, L, P, P, P, P, L, L, L, L, L, P, P, P, P, F, L, N),
}


class BuildError(Exception):
    """There is no compiler, or it did not compile."""


def library(folder: Path = FOLDER) -> Path:
    """Where the library for these sources, this compiler and this processor lies, or would lie."""
    sources = b"".join(file.read_bytes() for file in (SOURCE, *map(SOURCE.with_name, HEADERS)))
    whole = sha256(sources + " ".join((*FLAGS, _compiler() or "", _processor())).encode())
    return folder / f"kernels-{whole.hexdigest()[:24]}.so"


def build(folder: Path = FOLDER) -> Path:
    """Raises BuildError. Does nothing where it was built already."""
    wanted, compiler = library(folder), _compiler()
    if wanted.exists():
        return wanted
    if compiler is None:
        raise BuildError(f"found none of {', '.join(COMPILERS)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as directory:
            made = Path(directory) / wanted.name
            command = [compiler, *FLAGS, str(SOURCE), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
            if done.returncode:
                raise BuildError(f"{compiler}: {(done.stderr.strip() or 'failed').splitlines()[0]}")
            os.replace(made, wanted)  # in one move: another process may build the same
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{compiler}: {error}") from None
    return wanted


@cache
def kernels() -> ctypes.CDLL | None:
    """None where they cannot be built here, which is logged in one line."""
    try:
        loaded = ctypes.CDLL(str(build()))
        for name, types in SIGNATURES.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = types, None if types else N
        return loaded
    except (BuildError, OSError, AttributeError) as error:
        _log.warning("language models run without compiled kernels, several times slower: %s", error)
        return None


def _compiler() -> str | None:
    return next((path for path in map(shutil.which, COMPILERS) if path), None)


def _processor() -> str:
    """What `-march=native` goes by."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    kept = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return " ".join((platform.machine(), *dict.fromkeys(kept)))


if __name__ == "__main__":
    logging.basicConfig(format="set-up: %(message)s")
    kernels()
