"""The worker process: one model version, one loop, one channel. User code runs here and nowhere else."""
