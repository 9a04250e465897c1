"""Request traces: records of what happened to a request, written to disk if the operator enables them."""
