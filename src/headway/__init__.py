"""headway: an inference server whose heart is a pure scheduler."""

import os

from headway import compiled

__version__ = "0.1.0"

# ONNX Runtime reports what it loads to its makers, over the network, unless it is told not to before it is
# imported. Nothing of a server leaves its machine by default; whoever wants that sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

compiled.use(__path__)
