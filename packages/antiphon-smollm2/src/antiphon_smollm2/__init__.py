"""The file of SmolLM2-135M-Instruct (Q4_1, GGUF). Antiphon reads the file without an import of this package."""
