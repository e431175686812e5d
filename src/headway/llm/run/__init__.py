"""What computes the steps of a language model: a `StepPlan` on tensors. Imports torch: only for a worker process."""
