"""The figures of a run's report, in a notebook or as files."""

from __future__ import annotations

from raymx import report
from raymx.driver.notebook import in_notebook
from raymx.errors import JobError
from raymx.report import plots
from raymx.results import run_files
from raymx.storage import child


def show(path: str) -> list[str] | None:
    """Show the figures of the run in a folder or URI in the notebook; elsewhere write its report: the paths of figures.

    Raises JobError before the first report.
    """
    found = report.look([run_files.read_run(path)])
    pictures = plots.draw(found)
    if not pictures:
        raise JobError(f"{path} has no report yet, so there is nothing to plot: try again after the first epoch")
    if not in_notebook():
        report.build([path])
        return [child(path, report.FOLDER, f"{picture.name}.png") for picture in pictures]
    from IPython.display import Image, Markdown, display

    display(Markdown(" ".join(found.answer_sentences)))
    for picture in pictures:
        display(Image(data=picture.png, format="png", width=picture_width(picture.png)))
    return None


def picture_width(png: bytes) -> int:
    """Half of a PNG's width in pixels: figures are drawn for screens with twice the usual density."""
    return int.from_bytes(png[16:20], "big") // 2
