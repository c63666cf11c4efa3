"""What jobs say to whoever submits them: by logging, on stdout where the program has not set logging up itself."""

from __future__ import annotations

import logging
import sys

log = logging.getLogger(__package__)


class _OnStdout(logging.Handler):
    """As logging's own last resort, but for messages that are no warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            sys.stdout.write(f"{self.format(record)}\n")
            sys.stdout.flush()


log.setLevel(logging.INFO)
log.addHandler(_OnStdout())
