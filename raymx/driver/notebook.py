"""Whether this is a notebook, and an output of one that can be replaced."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


def in_notebook() -> bool:
    """Whether this is a kernel, whose outputs can be updated; IPython in a terminal has none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Output:
    """A place in a notebook's cell whose HTML can be replaced."""

    def __init__(self) -> None:
        from IPython.display import display

        self._handle: Any = display(_Html(""), display_id=True)

    def show(self, html: str) -> None:
        self._handle.update(_Html(html))


@dataclass
class _Html:
    text: str

    def _repr_html_(self) -> str:
        return self.text
