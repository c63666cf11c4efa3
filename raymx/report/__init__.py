"""The report of a sweep: which settings train fastest for the accuracy, with the evidence.

    path = build(["~/ray_results/sweep_fashion_mnist_2026-11-30_10-00-00"])

`raymx.results.run_files` reads, ``plots`` draws; all the rest is pure: files' texts -> ``load`` -> ``study`` (trials
with their ``measures``) -> ``findings`` (``cells``, ``effects``, ``diagnoses``, ``answer``) -> ``export``, ``page``. It
needs neither ray nor mxnet, nor a network.
"""

from __future__ import annotations

from collections.abc import Sequence

from raymx.errors import ExperimentError
from raymx.report import load
from raymx.report.findings import Findings, findings, plain
from raymx.report.study import study
from raymx.report.why import explain
from raymx.results import run_files, run_folder
from raymx.results.run_files import RunFiles
from raymx.storage import child, write_files

__all__ = ["FOLDER", "build", "summary", "why"]

FOLDER = "report"  # in a run's folder
FILES = {
    "report.html": "The answer, diagnoses, plots, a table to sort, what was skipped or failed and why; one file, which "
    "opens offline.",
    "*.png": "The plots.",
    "results.csv": "A row a trial.",
    "results.parquet": "The same, with a column ``rows`` that has all reports: every figure follows from it.",
    "findings.json": "All statistics.",
}
"""What a report is."""


def build(paths: Sequence[str], output: str | None = None, target: float | None = None) -> str:
    """Make the report of the runs in ``paths`` (folders or URIs; several are compared) and return report.html's path.

    It goes to ``output``: by default PATH/report for one path, ./report for several. ``target`` is the value of the
    objective for the time to it, by default `raymx.report.model.SLACK` from the best. Raises a RaymxError where a path
    holds no run, where runs have different objectives, and where nothing can be written.
    """
    return str(summary(paths, output, target)["report"])


def summary(paths: Sequence[str], output: str | None = None, target: float | None = None) -> dict[str, object]:
    """Make the report, as `build` does: where it is (``report``), and its answer in words (``findings``)."""
    from raymx.report import export, page, plots  # matplotlib takes a second to import

    read = [run_files.read_run(path) for path in dict.fromkeys(map(_whole, paths))]
    found = look(read, target)
    folder = (
        _whole(output) if output else child(read[0].path, FOLDER) if len(read) == 1 else run_folder.storage_path(FOLDER)
    )
    pictures = plots.draw(found)
    rows = export.records(found)
    write_files(
        folder,
        {
            **{f"{picture.name}.png": picture.png for picture in pictures},
            "results.csv": export.as_csv(rows),
            "results.parquet": export.as_parquet(found, rows),
            "findings.json": run_folder.as_json(plain(found)).encode(),
            "report.html": page.page(found, pictures).encode(),
        },
    )
    return {"report": child(folder, "report.html"), "findings": " ".join(found.answer_sentences)}


def why(paths: Sequence[str]) -> str:
    """Why the runs in ``paths`` are as fast as they are, in words: `python -m raymx.why`. Raises as `build` does."""
    read = [run_files.read_run(path) for path in dict.fromkeys(map(_whole, paths))]
    found = look(read)
    by_name = {sweep.name: run for run, sweep in zip(read, found.sweeps, strict=True)}
    return "\n".join(explain(found, lambda trial: load.setup_of(by_name[trial.sweep], trial)))


def look(runs: Sequence[RunFiles], target: float | None = None) -> Findings:
    """What the files of some runs say, and what follows from it."""
    if not runs:
        raise ExperimentError("no PATH was given: name the folder of a run, such as ~/ray_results/NAME_DATE")
    names = load.names_of([run.path for run in runs])
    sweeps = [load.load(run, name) for run, name in zip(runs, names, strict=True)]
    axes = load.compared(sweeps)
    trials = [
        trial
        for run, sweep in zip(runs, sweeps, strict=True)
        for trial in load.with_axes(sweep, load.experiment_of(run), axes)
    ]
    return findings(sweeps, study(sweeps, axes, trials, target))


def _whole(path: str) -> str:
    return run_folder.storage_path(path.rstrip("/") or path)
