"""Tokens from logits: every row by its own parameters, exactly, whoever shares its batch."""
