"""Settings: frozen structs, one loader, errors with their place."""
