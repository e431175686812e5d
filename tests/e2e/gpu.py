"""A GPU that is none: for workers there is a driver, and whoever probes it is answered by a file.

It is put in by a module that Python imports at every start, in the workers and in the probe as they really are.
"""

from __future__ import annotations

import os
from pathlib import Path

STARTED_WITH = """
import os
import sys

FOLDER = {folder!r}


class Driver:
    def __init__(self):
        self.broken = os.path.exists(os.path.join(FOLDER, "broken"))
        with open(os.path.join(FOLDER, "probes"), "a") as probes:
            probes.write("broken\\n" if self.broken else "works\\n")

    def cuInit(self, flags):
        return 999 if self.broken else 0

    def cuGetErrorString(self, result, text):
        text._obj.value = b"the GPU has fallen off the bus"

    def cuMemsetD32_v2(self, address, word, count):
        self.word = word.value
        return 0

    def cuMemcpyDtoH_v2(self, to, address, size):
        to[:] = [self.word] * len(to)
        return 0

    def __getattr__(self, name):
        return lambda *arguments: 0


if "headway.worker.device_probe" in sys.orig_argv:
    import ctypes

    ctypes.CDLL = lambda name: Driver()
elif "headway.worker" in sys.orig_argv:
    from pathlib import Path

    from headway.worker import devices

    devices.NVIDIA = (Path("/dev/null"),)
    devices.GPUS = Path(FOLDER)
"""

MODEL = """
import os
import time

class Model:
    inputs = {"x": ("FP32", [-1, 1])}
    outputs = {"y": ("FP32", [-1, 1])}

    def load(self, context):
        self.path = context.path
        while os.path.exists(os.path.join(self.path, "slow")):
            time.sleep(0.01)
        if os.path.exists(once := os.path.join(self.path, "once")):
            os.unlink(once)
            raise ValueError("it cannot load, once")

    def execute(self, requests):
        for request in requests:
            value = int(request["x"][0, 0])
            if value == -1:
                raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
            if value == -2:
                with open(os.path.join(self.path, "gate")) as gate:
                    gate.read()
        return [{"y": request["x"] * 2} for request in requests]
"""
"""-1: what it runs on breaks.  -2: it waits at its gate.  It loads for as long as there is a file `slow`, and fails to
where there is one `once`, which it takes away."""


class FakeGpu:
    """In `environment` every Python that is started finds it."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "gpu"
        self._folder.mkdir()
        (self._folder / "nvidia0").touch()
        (self._folder / "sitecustomize.py").write_text(STARTED_WITH.replace("{folder!r}", repr(str(self._folder))))
        before = os.environ.get("PYTHONPATH")
        self.environment = {"PYTHONPATH": os.pathsep.join([str(self._folder), *([before] if before else [])])}

    def breaks(self) -> None:
        """For whoever probes it."""
        (self._folder / "broken").touch()

    def is_repaired(self) -> None:
        (self._folder / "broken").unlink()

    def probes(self) -> list[str]:
        """What each found, so far."""
        log = self._folder / "probes"
        return log.read_text().split() if log.exists() else []
