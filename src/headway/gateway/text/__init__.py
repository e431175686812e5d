"""Language models over HTTP: what is asked as text becomes token ids, and the token ids that come back text."""
