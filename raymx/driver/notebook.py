"""Whether this is a notebook."""

from __future__ import annotations

import sys


def in_notebook() -> bool:
    """Whether this is a kernel, whose outputs can be updated; IPython in a terminal has none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
