"""Structured output: which tokens may come next, so that the text is of the form that was asked for."""
