"""What several dialects need: tool names, turns of a history, think tags, one-string functions."""
