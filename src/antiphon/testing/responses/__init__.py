"""A strict server of the Responses API."""
