"""The model repository: what is on disk, checked, as a list of versions."""
