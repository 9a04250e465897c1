"""Decides which target of a model is asked, and which is asked next if it fails. Pure: no I/O, the clock comes in."""
