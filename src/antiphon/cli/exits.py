"""How a command ends: the exit codes that scripts read, and the exceptions that lead to them.

Commands raise; `cli.entry` prints what they raised and ends with its code. Errors of a configuration or a profile
(`antiphon.errors`) count as `InvalidUsage`.
"""

from __future__ import annotations

from typing import Final

from antiphon.errors import AntiphonError

OK: Final = 0
FAILED: Final = 1
INVALID_USAGE: Final = 2  # argparse ends with this one too
LOSSY: Final = 3  # of `translate --strict` alone: something was lost
INTERRUPTED: Final = 130  # what shells say of a command that Ctrl-C ended

EXIT_CODES: Final = """exit codes:
  0    it worked
  1    it was tried and failed: no gateway, an error, a refusal, an answer that was cut
  2    nothing was tried: the command line or the configuration cannot be used
  130  interrupted with Ctrl-C"""


class CommandFailed(AntiphonError):
    """It was tried and did not work."""


class InvalidUsage(AntiphonError):
    """What the command line or the environment says cannot be used; the message says what to do."""
