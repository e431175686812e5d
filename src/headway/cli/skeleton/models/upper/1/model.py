"""Text in, the same text in capitals out."""


class Model:
    inputs = {"text": ("BYTES", [-1])}  # name: (datatype, shape); the first dimension is the rows
    outputs = {"upper": ("BYTES", [-1])}

    def execute(self, requests):
        """A list of requests in, a list of results out, in the same order. They share this call: batch here."""
        return [{"upper": [text.decode().upper() for text in request["text"]]} for request in requests]
