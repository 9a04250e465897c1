"""A strict server of the Gemini API."""
