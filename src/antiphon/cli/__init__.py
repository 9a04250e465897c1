"""The command `antiphon`: one module for each subcommand, and shared modules.

This module imports little: a Ctrl-C before `exit_on_interrupt` prints a traceback.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # importing it from `typing` would take longer than all the rest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

__all__ = ["exit_on_interrupt", "main", "restore_interrupt"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names and return its exit code."""
    exit_on_interrupt()
    try:
        from antiphon.cli import entry

        return entry.main(argv)
    finally:
        restore_interrupt()


def exit_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, with the shells' exit code. `KeyboardInterrupt` in the import of a C
    extension can crash the interpreter."""
    # Another handler is kept: a shell starts background jobs with SIGINT ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _set_handler(_exit_process)


def restore_interrupt() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again."""
    if signal.getsignal(signal.SIGINT) is _exit_process:
        _set_handler(signal.default_int_handler)


def _set_handler(handler: Callable[[int, FrameType | None], object]) -> None:
    try:
        signal.signal(signal.SIGINT, handler)
    except ValueError:
        return  # not the main thread, which alone handles signals


def _exit_process(*_: object) -> None:
    if os.isatty(2):
        os.write(2, b"\n")  # ends the line that shows what is being done
    os._exit(130)
