"""Exit codes, and the exceptions that map to them.

Commands raise; `cli.entry` prints the error and returns its code. Errors of a configuration or a profile
(`antiphon.errors`) count as `InvalidUsage`.
"""

from __future__ import annotations

from typing import Final

from antiphon.errors import AntiphonError

OK: Final = 0
FAILED: Final = 1
INVALID_USAGE: Final = 2  # argparse uses the same code
LOSSY: Final = 3  # only of `translate --strict`: the translation has losses
INTERRUPTED: Final = 130  # the shells' code for a command that Ctrl-C ended

EXIT_CODES: Final = """exit codes:
  0    success
  1    failure: no gateway, an error, a refusal, an incomplete answer
  2    the command line or the configuration is invalid; nothing was done
  130  interrupted with Ctrl-C"""


class CommandFailed(AntiphonError):
    """The command ran and failed."""


class InvalidUsage(AntiphonError):
    """The command line or the environment is invalid; the message has what to do."""
