"""Make the pictures of docs/images anew, out of a sweep and a run that this starts: a few minutes on two cores.

    python docs/pictures.py                 # all; or some of: table report card

Needs Chromium, which draws the pages, and no network. Paths of the home folder are written as ~.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
COLUMNS, LINES = 132, 40
SPACE = (  # fewer cells than the file has
    "{precision.dtype: {grid: [float32, float16]}, kvstore.type: {grid: [dist_sync, dist_async]}, "
    "kvstore.compression: {grid: [none, {type: 2bit, threshold: 0.05}]}}"
)
SHOWN_ENDED = 5  # trials of the sweep that have ended when its table is drawn
SHOWN_EPOCHS = 3.4  # epochs of the run that are done when its card is drawn
CHROMIUM = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
DASHBOARD_PORT = 8299
FONTS = "system-ui, 'Liberation Sans', sans-serif"


def draw(page: Path, name: str, width: int, height: int, crop: bool = True) -> None:
    """A picture of a page, without what is empty at its lower end, in few colours."""
    with tempfile.TemporaryDirectory() as profile:
        shot = Path(profile) / "shot.png"
        subprocess.run(
            [*CHROMIUM, f"--user-data-dir={profile}", f"--screenshot={shot}", f"--window-size={width},{height}",
             page.as_uri()],
            check=True,
            capture_output=True,
        )  # fmt: skip
        picture = Image.open(shot).convert("RGB")
    picture = _without_empty_end(picture) if crop else picture
    picture.quantize(128).save(IMAGES / name, optimize=True)
    print(f"{name}: {(IMAGES / name).stat().st_size / 1e3:.0f} kB")


def _without_empty_end(picture: Image.Image) -> Image.Image:
    """Cut below the last line that differs from the last one of all."""
    pixels, last = picture.load(), picture.height - 1
    assert pixels is not None
    background = [pixels[x, last] for x in range(picture.width)]
    low = next(
        (y for y in range(last, 0, -1) if any(pixels[x, y] != background[x] for x in range(picture.width))), last
    )
    return picture.crop((0, 0, picture.width, min(low + 12, picture.height)))


def tidy(text: str) -> str:
    return text.replace(str(Path.home()), "~").replace(os.path.dirname(sys.executable) + "/", "")


class Screen:
    """What a terminal shows: lines of text with their colours. It knows the sequences that rich writes."""

    TOKENS = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")

    def __init__(self) -> None:
        self.lines, self.at = [""], 0

    def write(self, text: str) -> None:
        for arguments, command, control, plain in self.TOKENS.findall(text):
            if control == "\n":
                self.at += 1
                self.lines += [""] * (self.at + 1 - len(self.lines))
            elif plain:
                self.lines[self.at] += plain
            elif command == "K":
                self.lines[self.at] = ""
            elif command == "A":
                self.at = max(0, self.at - int(arguments or 1))
            elif command == "m":
                self.lines[self.at] += f"\x1b[{arguments}m"

    def text(self) -> str:
        return "\n".join(self.lines).rstrip()


def in_terminal(command: list[str]) -> tuple[str, str]:
    """Run a command in a terminal; the screen when enough trials had ended, and all that it shows at its end."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    screen, middle = Screen(), ""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # it has ended
            break
        screen.write(read.decode(errors="replace"))
        if not middle and f"{SHOWN_ENDED} of " in screen.text() and "1 running" in screen.text():
            middle = screen.text()
    os.waitpid(child, 0)
    return middle, screen.text()


def sweep(folder: str) -> tuple[str, str]:
    """Run the sweep; what the terminal showed, and the path of the run."""
    experiment = ROOT / "experiments" / "sweep_fashion_mnist.yaml"
    command = [sys.executable, "-m", "raymx.run", str(experiment), "--set", f"sweep.space={SPACE}"]
    middle, end = in_terminal([*command, "--storage-path", folder])
    found = re.search(r"^results +(\S+)$", Text.from_ansi(end).plain, re.MULTILINE)
    if not found:
        sys.exit(end)
    return middle, found[1]


def table(shown: str) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    text = Text("$ python -m raymx.run experiments/sweep_fashion_mnist.yaml\n") + Text.from_ansi(tidy(shown))
    console.print(text)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="a sweep"), flags=re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "table.html"
        page.write_text(f"<body style='margin:0;background:#fff'><div style='width:1000px'>{svg}</div>")
        draw(page, "sweep-table.png", 1000, 900)


def report(run: str) -> None:
    draw(Path(run) / "report" / "report.html", "report.png", 1000, 1335, crop=False)


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """A Ray cluster of this machine that ends with the block; the address of its dashboard."""
    ray = os.path.join(os.path.dirname(sys.executable), "ray")
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=uuid.uuid4().hex)
    command = [ray, "start", "--head", "--block", "--num-cpus=6", "--port=6399", f"--dashboard-port={DASHBOARD_PORT}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(60):
            time.sleep(1)
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", DASHBOARD_PORT), 1):
                break
        yield f"http://127.0.0.1:{DASHBOARD_PORT}"
    finally:
        process.terminate()
        process.wait()


def _submitted(submit: Callable[[], Any]) -> Any:
    """What ``submit`` gives, once the cluster that has just begun takes jobs."""
    from raymx.errors import JobError

    for _ in range(30):
        with contextlib.suppress(JobError):
            return submit()
        time.sleep(1)
    return submit()


def card(folder: str) -> None:
    """The card of a run that goes on, in the colours of JupyterLab."""
    import raymx
    from raymx.jobs import card

    experiment = raymx.Experiment.from_yaml(ROOT / "experiments" / "fashion_mnist.yaml")
    with cluster() as address:
        run = _submitted(lambda: raymx.submit(experiment, address=address, storage_path=folder))
        while not (view := run.view()).is_over and not (view.trials and view.trials[0].epoch >= SHOWN_EPOCHS):
            time.sleep(0.2)
        fragment = tidy(card.as_html(view, time.time()))
        run.wait()
    for mode, ink, paper in (("light", "#212121", "#ffffff"), ("dark", "#e0e0e0", "#111111")):
        page = Path(folder) / "card.html"
        style = f"margin:8px;color:{ink};background:{paper};font-family:{FONTS}"
        page.write_text(f'<meta charset=utf-8><body style="{style}">{fragment}')
        draw(page, f"card-{mode}.png", 860, 400)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="*", help="table, report, card; by default all of them")
    wanted = set(parser.parse_args().pictures or ("table", "report", "card"))
    storage = os.path.expanduser("~/ray_results")
    if wanted & {"table", "report"}:
        shown, run = sweep(storage)
        if "table" in wanted:
            table(shown)
        if "report" in wanted:
            report(run)
    if "card" in wanted:
        card(storage)


if __name__ == "__main__":
    main()
