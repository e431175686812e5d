"""What is measured and how it is shown. It watches events, effects and timings; the core does not know it exists."""
