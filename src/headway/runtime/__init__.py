"""Drives the core live: mailbox, effects, worker processes and their channels, recorder."""
