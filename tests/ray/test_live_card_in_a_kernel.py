"""A card that follows a run in a real kernel."""

from __future__ import annotations

import nbclient
import nbformat
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CELLS = (
    """
import math, sys, threading
from raymx.jobs.live import LiveCard
assert "ray" not in sys.modules and "mxnet" not in sys.modules
from raymx.results.view import TrialView, View
step, gone_on = [0], threading.Event()
def look():
    step[0] += gone_on.is_set()
    over = step[0] > 20
    trial = TrialView("t_00000", epoch=min(step[0], 20) / 5, epochs=4, objective=0.5, phase="training",
                      curve=tuple((float(e), e / 8) for e in range(1, step[0] // 5 + 1)))
    return View("tiny_1", "tiny", "finished" if over else "running", metric="accuracy", trials=(trial,))
card = LiveCard(look, every_s=0.05)
card.show()
""",
    """
LiveCard(look, every_s=0.05).show()
LiveCard(lambda: 1 / 0, every_s=0.05).show()
""",
    """
import os, signal, time
gone_on.set()
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
""",
    """
deadline = time.monotonic() + 60
while sum(t.name == "raymx-card" for t in threading.enumerate()) > 1 and time.monotonic() < deadline:
    time.sleep(0.05)
print("threads", sum(t.name == "raymx-card" for t in threading.enumerate()))
""",
)


@pytest.mark.long
def test_in_a_real_kernel_a_card_goes_on_after_its_cell() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    (first,), (second, broken), (interrupt,), (printed,) = (cell.outputs for cell in notebook.cells)
    assert interrupt.ename == "KeyboardInterrupt"
    assert printed.text == "threads 1\n"  # of the look that always fails, which is still tried
    for output in (first, second):
        assert ">finished<" in output.data["text/html"]
        assert "4/4" in output.data["text/html"]
        assert "tiny  finished  tiny_1" in output.data["text/plain"]
    assert "division by zero" in broken.data["text/html"]
