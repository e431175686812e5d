"""The scheduler as machine code, where it was compiled: the same sources, the same decisions, in less time.

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

PACKAGES = ("core",)
FOLDER = Path(__file__).parent / "_compiled"
DIGEST = "digest"


def digest(source: Path) -> str:
    """Of the compiled packages' sources below `source` and of what compiles them for this interpreter."""
    whole = sha256(f"{sys.implementation.cache_tag} {sys.platform}".encode())
    for package in PACKAGES:
        for file in sorted((source / package).glob("*.py")):
            whole.update(file.name.encode() + b"\0" + file.read_bytes())
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
        sys.path.append(str(FOLDER))  # the library that the modules share has a name of its own


def in_use() -> bool:
    """Whether the scheduler of this process is the compiled one."""
    return str(FOLDER) in sys.path
