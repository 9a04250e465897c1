"""A strict server of the Messages API."""
