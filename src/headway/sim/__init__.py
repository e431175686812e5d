"""The discrete-event simulator: drives the very same core in virtual time.

Imports only the core and the standard library.
"""
