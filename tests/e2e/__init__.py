"""Real processes, real sockets, real models."""

import pytest

pytest.register_assert_rewrite(*(f"tests.e2e.{name}" for name in ("server", "client", "books", "witness", "stepper")))
