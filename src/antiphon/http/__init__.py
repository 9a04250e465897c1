"""Client connections: HTTP/1.1, WebSocket, bodies and the access policy. Knows no endpoint."""
