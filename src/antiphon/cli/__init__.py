"""The command `antiphon`: one module for each subcommand, and shared modules."""

from antiphon.cli.entry import main

__all__ = ["main"]
