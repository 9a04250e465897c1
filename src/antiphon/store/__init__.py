"""Responses at rest: one interface, on SQLite and on PostgreSQL. Nothing here knows what a response says."""
