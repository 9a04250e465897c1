"""Antiphon: any LLM client to any LLM server, through Open Responses."""

__version__ = "0.1.0.dev0"
