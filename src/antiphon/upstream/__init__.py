"""Outgoing connections: the HTTP pool, WebSockets, and the process of the embedded model."""
