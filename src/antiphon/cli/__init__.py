"""The command `antiphon`: one file for each of its commands, and what they share."""

from antiphon.cli.entry import main

__all__ = ["main"]
