"""Text of a language model, as the gateway makes it: templates, token ids, streams of characters. No torch."""
