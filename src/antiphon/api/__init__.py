"""Routes and endpoints of every client dialect, and the OpenAPI document."""
