"""One step of an experiment in a process of its own: what its code would meet in a worker, before anything is placed.

    python -m raymx.training.first_step GIVEN FOUND

GIVEN is a JSON file, ``{"directory": ..., "experiments": [...]}``; FOUND gets a list, `try_step`'s answer for each.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raymx.errors import LoopError, RaymxError
from raymx.experiment.loading import parse_experiment
from raymx.experiment.user_code import as_written
from raymx.kvstore import native
from raymx.kvstore.guard import no_other_store
from raymx.training.channel import LoopEnded
from raymx.training.running import KeptWarnings, loop_of, users_error


def main(given: str, found: str) -> None:
    """Try the experiments one after the other, as far as the first that has an error."""
    asked = json.loads(Path(given).read_text())
    answers = []
    for experiment in asked["experiments"]:
        answers.append(try_step(experiment, asked["directory"]))
        if "error" in answers[-1]:
            break
    Path(found).write_text(json.dumps(answers))


def try_step(experiment: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """``{"loss": ..., "notes": [...]}`` of one step on the CPU; ``loss`` is None in a loop of the user's own.

    Where it fails, ``{"error": ...}``; where MXNet cannot be had here, ``{"absent": ...}``.
    """
    try:
        native.import_mxnet()
    except RaymxError as error:
        return {"absent": str(error)}
    warnings = KeptWarnings()
    logging.getLogger("raymx").addHandler(warnings)
    try:
        return {"loss": _train(experiment, directory), "notes": warnings.take()}
    except RaymxError as error:
        return {"error": as_written(str(error), directory)}
    except BaseException as error:
        return {"error": str(users_error("the experiment's code", error, directory))}
    finally:
        logging.getLogger("raymx").removeHandler(warnings)


def _train(experiment: Mapping[str, Any], directory: str) -> float | None:
    import mxnet as mx

    from raymx.training.first_context import FirstStepContext
    from raymx.training.membership import Membership

    loop = loop_of(experiment, directory)
    parsed = parse_experiment(experiment, directory)
    membership = Membership(rank=0, num_workers=1, generation=0, distributed=False)
    ctx = FirstStepContext(parsed, membership, mx.kv.create("local"), [mx.cpu()], None)
    try:
        with no_other_store():
            loop(ctx)
    except LoopEnded:
        return ctx.first_loss
    finally:
        mx.nd.waitall()
        ctx.close()
    raise LoopError("the loop ended without ctx.report({...}), so a run would have no result")


if __name__ == "__main__":
    (_, *files), sys.argv = sys.argv, sys.argv[:1]
    main(*files)
