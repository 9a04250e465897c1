"""One turn from start to end: which upstream, its bytes, and what the client is told."""
