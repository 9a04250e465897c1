"""Check whether a server conforms to Open Responses: black-box cases over HTTP and SSE, each for rows of the
requirements."""
