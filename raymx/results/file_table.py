"""The files that a run leaves, each with what it is: a table for whoever lists them. Patterns are relative to the run's
folder, and TRIAL is a trial's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from raymx.checkpoint.files import OPTIMIZER, PARAMETERS, STATE
from raymx.checkpoint.in_epoch import IN_EPOCH, TUNE
from raymx.results.run_folder import RUN, SUMMARY, SWEEP
from raymx.results.run_folder import TRIAL as TRIAL_FILE

TRIAL = "TRIAL"
"""Stands for a trial's folder, whose name begins with it: Trial_7b100_00000."""

_CHECKPOINT, _IN_EPOCH = f"{TRIAL}/{TUNE}*", f"{TRIAL}/{IN_EPOCH}/*"

RUN_FILES: Mapping[str, str] = {
    RUN: "The experiment with every key, as it was last started or resumed, and its folder.",
    SUMMARY: "How it ended, final and best metrics, versions, git commit, hardware.",
    SWEEP: "Axes, cells and verdicts; objective, repeats and prices.",
    "code.zip": "The experiment's own modules, as they were when the run was last started.",
    "source.zip": "Of a submitted run: the modules that came with it.",
    "report/*": "Of a sweep: its report.",
    f"{TRIAL}/{TRIAL_FILE}": "Its settings, how it ended, seconds, CPUs and GPUs.",
    f"{TRIAL}/result.json": "A row a report, in JSON.",
    f"{TRIAL}/progress.csv": "The same as CSV.",
    f"{TRIAL}/events.out.tfevents.*": "The same for TensorBoard.",
    f"{_CHECKPOINT}/{PARAMETERS}": "A checkpoint's parameters, in Gluon's own format.",
    f"{_CHECKPOINT}/{OPTIMIZER}": "Its optimizer state.",
    f"{_CHECKPOINT}/{STATE}": "Its position, update counts and checksums.",
    f"{_IN_EPOCH}/*": "The two newest checkpoints within an epoch, of the same three files; gone once the training has "
    "finished.",
    f"{TRIAL}/logs/*": "Of a script of ``raymx.launch``: what each role printed.",
    f"{TRIAL}/stacks_*.txt": "After a stall: what all threads of all workers were doing.",
    f"{TRIAL}/wandb/*": "With ``tracking.wandb``: what it keeps on this machine.",
    f"{TRIAL}/params.json": "Tune's: the trial's config.",
    f"{TRIAL}/params.pkl": "Tune's: the same as a pickle.",
    f"{TRIAL}/error.*": "Tune's: what the trial failed with.",
    "experiment_state-*.json": "Tune's: how the trials stand, for ``--resume``.",
    "experiment_state-*.json.damaged": "One of those that was cut short, put aside when the run was resumed.",
    "*-state-*.json": "Tune's: how the search and the callbacks stand, for ``--resume``.",
    "searcher-state-*.pkl": "Tune's: how a search library stands, for ``--resume``.",
    "*.pkl": "Tune's: what else ``--resume`` needs.",
    ".validate_storage_marker": "Tune's: an empty file, which shows that it may write there.",
}
"""Patterns, in the order in which they are looked at: the first that fits says what a file is."""


def what_is(path: str) -> str:
    """What a file of a run's folder is, by its path in there; "" for one that the table lacks."""
    named = re.sub(rf"^{TRIAL.title()}_[^/]+", TRIAL, path)
    return next((text for pattern, text in RUN_FILES.items() if fnmatchcase(named, pattern)), "")
