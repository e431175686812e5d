"""Libraries that report to their makers are told not to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_onnx_runtime_inside_headway_leaves_no_session_file_of_its_telemetry(tmp_path: Path) -> None:
    code = "import headway, onnxruntime"
    subprocess.run([sys.executable, "-c", code], env={"TMPDIR": str(tmp_path), "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.iterdir()) == []
