"""What the benchmarks share: servers of their own, loads, calibration of the machine, environments for peers."""
