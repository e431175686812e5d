"""Text in, the same text in capitals out."""

import numpy as np

from headway.worker.errors import InputError


class Model:
    inputs = {"text": ("BYTES", [-1, 1])}
    outputs = {"upper": ("BYTES", [-1, 1])}

    def execute(self, requests):
        return [self.one(request["text"]) for request in requests]

    def one(self, text):
        try:
            upper = [element.decode().upper() for element in text.ravel()]
        except UnicodeDecodeError as error:
            return InputError(f"text must be UTF-8: {error}")
        return {"upper": np.array(upper, dtype=object).reshape(text.shape)}
