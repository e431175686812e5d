"""A virtual environment for each peer, made when it is first wanted: peers never share packages with headway."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "benchmarks" / "peers"
ENVIRONMENTS = ROOT / ".headway" / "peers"


def python_of(peer: str) -> str:
    """The interpreter that has what peers/PEER.txt lists. Installs anew when the list has changed.

    Raises subprocess.CalledProcessError where pip cannot.
    """
    wanted = PEERS / f"{peer}.txt"
    environment = ENVIRONMENTS / peer
    python = environment / "bin" / "python"
    installed = environment / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted.read_text():
        print(f"installing {peer} into {environment.relative_to(ROOT)} ...", file=sys.stderr)
        venv.create(environment, with_pip=True, clear=True, symlinks=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(wanted)]
        subprocess.run(command, check=True)
        installed.write_text(wanted.read_text())
    return str(python)
