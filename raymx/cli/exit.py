"""How a command ends."""

from __future__ import annotations

import sys
from collections.abc import Callable

from raymx.errors import RaymxError

EXIT_OK, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 130
EXIT_SIGNAL = 128  # and the number of the signal, of one that ended everything


class Interrupted(KeyboardInterrupt):
    """A signal that ends a command as Ctrl-C does, with an exit ``code`` of its own."""

    def __init__(self, code: int = EXIT_INTERRUPTED) -> None:
        super().__init__()
        self.code = code


def exit_code(work: Callable[[], int], interrupted: str = "") -> int:
    """Do a command's work and give its exit code. Errors of the user's are one message on stderr, as is Ctrl-C, with
    what it has ``interrupted``.
    """
    try:
        return work()
    except RaymxError as error:
        print(f"raymx: error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt as error:
        print(f"raymx: interrupted{interrupted}", file=sys.stderr)
        return error.code if isinstance(error, Interrupted) else EXIT_INTERRUPTED
