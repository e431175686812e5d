"""The path of a request as machine code, where it was compiled: the same sources, the same decisions, in less time.

`tools/compile.py` leaves in `_compiled/`, beside this file, a copy of the packages named there: shared libraries made
by mypyc, the sources of all modules, and a digest of them. A copy that does not agree with the sources as they are
now, or that another Python made, is not looked at, so that an edit is never without effect.
HEADWAY_COMPILED=0 leaves it alone altogether.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableSequence
from hashlib import sha256
from pathlib import Path

PACKAGES = ("core", "gateway", "llm", "runtime", "telemetry", "wire", "worker")
"""Of which modules are compiled: which ones, `tools/compile.py` says."""
READ = ("config", "registry")
"""Which those import: a type that is another one there is one that compiled code would not take."""
FOLDER = Path(__file__).parent / "_compiled"
DIGEST = "digest"


def digest(source: Path) -> str:
    """Of the sources of those packages below `source`, and of the interpreter that they are compiled for."""
    whole = sha256(f"{sys.implementation.cache_tag} {sys.platform}".encode())
    for package in (*PACKAGES, *READ):
        for file in sorted((source / package).rglob("*.py")):
            whole.update(str(file.relative_to(source)).encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()


def is_fresh() -> bool:
    """Whether what was compiled is what the sources say now."""
    try:
        return (FOLDER / DIGEST).read_text() == digest(FOLDER.parent)
    except OSError:
        return False


def use(path: MutableSequence[str]) -> None:
    """Have the compiled packages found before the sources. path: of the package `headway`."""
    if os.environ.get("HEADWAY_COMPILED") != "0" and is_fresh():
        path.insert(0, str(FOLDER))
        sys.path.append(str(FOLDER))  # the libraries that the modules of a package share have names of their own


def in_use() -> bool:
    """Whether this process runs what was compiled."""
    return str(FOLDER) in sys.path
