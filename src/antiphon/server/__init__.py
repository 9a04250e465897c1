"""The wire to clients: ASGI, keys, hosts and origins, the endpoints."""
