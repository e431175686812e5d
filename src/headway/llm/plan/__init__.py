"""Who computes which tokens in the next step of an engine: pure, standard library only, ints and lists."""
