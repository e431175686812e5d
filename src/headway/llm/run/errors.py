"""What can be wrong with a model's files."""

from __future__ import annotations


class ModelError(Exception):
    """The files cannot be run: what was found, and what was expected. Whoever installed the model has to act."""
