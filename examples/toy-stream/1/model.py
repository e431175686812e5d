"""A toy language model: streams the words of its input back, one step per word."""

import time

from headway.worker.errors import InputError


class Model:
    def load(self, context):
        self.delay = float(context.settings.options.get("delay_ms", 0)) / 1000

    def stream(self, request):
        text = request.get("text_input")
        if not isinstance(text, str):
            raise InputError(f"text_input must be a string, got {type(text).__name__}")
        limit = (request.get("parameters") or {}).get("max_tokens")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InputError(f"parameters.max_tokens must be a whole number, 0 or more, got {limit!r}")
        for index, word in enumerate(text.split()[:limit]):
            time.sleep(self.delay)  # stands for the model's own work
            yield {"text_output": f" {word}" if index else word, "index": index}  # the pieces join to a text
