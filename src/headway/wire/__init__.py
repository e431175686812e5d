"""What is said between gateway, runtime and workers: message structs, tensors, and their framing."""
