"""A card that keeps itself up to date in a notebook, also after its cell has ended."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from raymx.driver.notebook import in_notebook
from raymx.jobs.card import as_html, as_text, notice_html
from raymx.results.view import View

FIRST_LOOK_S = 3.0  # so long ``show`` waits for the first view
TROUBLE_S = 5.0  # of failed looks until the card says so
GIVE_UP_S = 60.0  # of failed looks until it is not updated any more


class LiveCard:
    """Shows a run's card in a notebook, and updates it from a thread until the run is over.

    Each one is on its own: a run may be shown in several places. What fails is said in the card, and never raised into
    the kernel. Outside of a notebook the card goes to stdout once, as text.
    """

    def __init__(self, look: Callable[[], View], every_s: float = 1.0) -> None:
        """``look`` gives the newest view. It is called from a thread every ``every_s`` seconds, and may raise."""
        self._look, self._every_s = look, every_s
        self._view: View | None = None
        self._failure, self._failing_since = "", 0.0
        self._looked, self._shown = threading.Event(), threading.Event()
        self._handle: Any = None
        self._html = ""

    def show(self) -> None:
        """Show the card, within seconds also when ``look`` takes longer."""
        if not in_notebook():
            self._step()
            sys.stdout.write(f"{self._content()[1]}\n")
            return
        threading.Thread(target=self._follow, daemon=True, name="raymx-card").start()
        self._looked.wait(FIRST_LOOK_S)
        self._html, text = self._content()
        from IPython.display import display

        self._handle = display(_bundle(self._html, text), raw=True, display_id=True)
        self._shown.set()

    def _follow(self) -> None:
        """The thread."""
        goes_on = self._step()
        self._looked.set()
        if not self._shown.wait(2 * FIRST_LOOK_S):  # show() was interrupted: there is nothing to update
            return
        while goes_on:
            self._update()
            time.sleep(self._every_s)
            goes_on = self._step()
        self._update()

    def _step(self) -> bool:
        """Look once; whether to go on."""
        try:
            self._view = self._look()
        except Exception as error:
            if not self._failure:
                self._failing_since = time.monotonic()
            self._failure = str(error) or type(error).__name__
            return self._failing_s < GIVE_UP_S
        self._failure = ""
        return not self._view.is_over

    @property
    def _failing_s(self) -> float:
        return time.monotonic() - self._failing_since if self._failure else 0.0

    def _update(self) -> None:
        """Send the card when it has changed. A kernel that is ending cannot be reached any more."""
        html, text = self._content()
        if html != self._html:
            with contextlib.suppress(Exception):
                self._handle.update(_bundle(html, text), raw=True)
                self._html = html

    def _content(self) -> tuple[str, str]:
        """HTML and text."""
        view, notice, now = self._view, self._notice(), time.time()
        if view is None:
            notice = notice or self._failure or "looking for the run ..."
            return notice_html(notice), notice
        try:
            return as_html(view, now, notice), "\n".join(filter(None, [as_text(view, now), notice]))
        except Exception as error:  # a view of another version of raymx may hold anything
            notice = f"{view.run_id} is {view.state}; its card cannot be drawn ({type(error).__name__}: {error})"
            return notice_html(notice), notice

    def _notice(self) -> str:
        """What to say of looks that fail."""
        if self._failing_s >= GIVE_UP_S:
            again = f"raymx.attach({self._view.run_id!r})" if self._view else "the same again"
            return (
                "The cluster cannot be reached, and this card is not updated any more. The run may go on: look "
                f"again with {again}. The last error: {self._failure}"
            )
        return f"trying again: {self._failure}" if self._failing_s >= TROUBLE_S else ""


def _bundle(html: str, text: str) -> dict[str, str]:
    return {"text/html": html, "text/plain": text}
