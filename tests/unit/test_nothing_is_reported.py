"""Libraries that report to their makers are told not to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NOWHERE = "http://127.0.0.1:9"
"""A proxy that nobody answers at: the control must not report anything either."""


def left_by(code: str, home: Path, **environment: str) -> list[Path]:
    """What ONNX Runtime's telemetry has written for the next report."""
    named = {"TMPDIR": str(home), "HOME": str(home), "https_proxy": NOWHERE, "http_proxy": NOWHERE, **environment}
    subprocess.run([sys.executable, "-c", code], env=named, check=True)
    return [path for path in home.rglob("*") if path.is_file()]


def test_onnx_runtime_by_itself_would_keep_a_session_to_report(tmp_path: Path) -> None:
    """The control: should this fail, the test below shows nothing any more."""
    assert left_by("import onnxruntime", tmp_path) != []


def test_onnx_runtime_inside_headway_leaves_no_session_file_of_its_telemetry(tmp_path: Path) -> None:
    assert left_by("import headway, onnxruntime", tmp_path) == []


def test_whoever_wants_the_reports_can_have_them(tmp_path: Path) -> None:
    assert left_by("import headway, onnxruntime", tmp_path, ORT_DISABLE_TELEMETRY="0") != []
