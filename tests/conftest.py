"""Tests replace parts of the scheduler by others, which compiled classes do not allow: here it runs as it is written.
The servers of tests/e2e run what `make serve` runs."""

import os

os.environ["HEADWAY_COMPILED"] = "0"
