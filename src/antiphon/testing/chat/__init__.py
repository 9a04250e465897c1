"""A strict server of Chat Completions."""
