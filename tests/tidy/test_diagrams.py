"""The drawn lifecycles are those that the code obeys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_drawn_lifecycles_are_up_to_date() -> None:
    drawn = subprocess.run([sys.executable, ROOT / "tools" / "diagrams.py"], capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "lifecycles.md").read_text() == drawn.stdout, "run: make diagrams"
