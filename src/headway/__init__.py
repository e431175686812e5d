"""headway: an inference server whose heart is a pure scheduler."""

__version__ = "0.1.0"
