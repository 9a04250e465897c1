"""Sockets out: the HTTP pool, and the embedded model's process."""
