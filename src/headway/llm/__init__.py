"""Language models: by the token, over a paged KV cache."""
