"""The strict server of Ollama's own API."""
