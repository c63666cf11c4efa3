"""What ``--dry-run`` tries: one step of an experiment, in a process of its own on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from raymx.errors import ExperimentError
from raymx.experiment.loading import ExperimentConfig

ROWS = 8  # of the batch that is tried
MOST = 8  # cells of a sweep that are tried, of those whose code or data differ
TIMEOUT_S = 300
_OTHERWISE = "(--dry-run=fast does not try a step)"


def try_first_steps(experiments: Sequence[ExperimentConfig], *, elsewhere: bool) -> Iterator[str]:
    """What one step of each came to, in words. ``elsewhere``: the run will not be on this machine.

    Raises ExperimentError for the first one that fails.
    """
    kinds = list({json.dumps(one, sort_keys=True): one for one in map(small, experiments)}.values())
    tried = kinds[:MOST]
    answers = _in_a_process(experiments[0].directory, tried)
    if failed := [answer["error"] for answer in answers if "error" in answer]:
        raise ExperimentError(f"one step was tried here: {failed[0]}\n{_OTHERWISE}")
    if absent := [answer["absent"] for answer in answers if "absent" in answer]:
        if not elsewhere:
            raise ExperimentError(absent[0])
        yield f"note: no step was tried, since {absent[0]}"
        return
    losses = ", ".join(f"{answer['loss']:.4g}" for answer in answers if answer["loss"] is not None)
    of = f" for each of {len(tried)} of the {len(kinds)} kinds of cells" if kinds[1:] else ""
    yield f"One step of at most {ROWS} records was tried here{of}" + (f": loss {losses}." if losses else ".")
    yield from dict.fromkeys(f"note: {note}" for answer in answers for note in answer["notes"])


def small(experiment: ExperimentConfig) -> dict[str, Any]:
    """The experiment for one process on a CPU, with a small batch: what is left are its code and its data. Pure.

    A loop of the user's own that wants GPUs may want them by name, so raymx's own loop is tried in its place.
    """
    given = experiment.to_dict()
    given |= {"kvstore": {"type": "local"}, "precision": {}, "resources": {"workers": 1}, "sweep": {}}
    training = given["training"]
    rows = min(ROWS, training["global_batch_size"])
    loop = "default" if experiment.resources.gpus_per_worker else training["loop"]
    given["training"] = {
        "optimizer": training["optimizer"],
        "loop": loop,
        "global_batch_size": rows,
        "label_smoothing": training["label_smoothing"],
        "accumulate": min(training["accumulate"], rows),
    }
    given["data"] = {**given["data"], "cache": "none", "cpus": 1}
    for section in ("failures", "checkpoint", "report", "tracking"):
        given.pop(section, None)
    return given


def _in_a_process(directory: str, experiments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers, of `raymx.training.first_step`. What the user's code prints is not shown."""
    with tempfile.TemporaryDirectory(prefix="raymx_") as folder:
        given, found = os.path.join(folder, "given.json"), os.path.join(folder, "found.json")
        with open(given, "w") as file:
            json.dump({"directory": directory, "experiments": experiments}, file)
        command = [sys.executable, "-m", "raymx.training.first_step", given, found]
        try:
            done = subprocess.run(
                command, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise ExperimentError(
                f"one step was tried here, and had not ended in {TIMEOUT_S} s\n{_OTHERWISE}"
            ) from None
        if not os.path.exists(found):
            ended = f"one step was tried here, and its process ended with exit code {done.returncode}"
            raise ExperimentError("\n".join([ended, *done.stderr.strip().splitlines()[-6:], _OTHERWISE]))
        with open(found) as file:
            return list(json.load(file))
