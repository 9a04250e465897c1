"""The URLs of a server's endpoints. A path may contain the model name, which the client chooses."""

from __future__ import annotations

from urllib.parse import quote

from antiphon.dialects.dialect import ServerDialect


def turn_url(dialect: ServerDialect, base_url: str, model: str, *, streams: bool) -> str:
    """The URL for a turn."""
    return url_at((streams and dialect.stream_path) or dialect.turn_path, dialect, base_url, model)


def url_at(path: str, dialect: ServerDialect, base_url: str, model: str) -> str:
    """The URL of a path; `{model}` is replaced with the resource name of the model."""
    if dialect.model_resource_name is None or "{model}" not in path:
        return base_url + path
    return base_url + path.replace("{model}", quote(dialect.model_resource_name(model), safe="/"))
