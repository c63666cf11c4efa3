"""How fast and how good a trained net is in the forms that MXNet can give it on a CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raymx.cli.machine import cores
from raymx.errors import DataError, TrainingError
from raymx.jobs.trained import Trained
from raymx.text.words import columns

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # of the tables in MXNet's guides
_CALIBRATION_RECORDS = 256
FORMS = {
    "float32": "Gluon, hybridized with static memory",
    "module": "mx.mod.Module, as MXNet's benchmark_score",
    "fused": "operators fused by oneDNN: optimize_for(backend='MKLDNN')",
    "int8": "MXNet's own quantization of that",
}
"""What is measured, in this order."""


@dataclass(frozen=True)
class Form:
    """One form of a net: images/s by batch size, its score on the validation records, or why there is none."""

    form: str
    images_per_s: dict[int, float]
    score: float | None
    absent: str = ""  # why MXNet cannot make it


@dataclass(frozen=True)
class Score:
    """The forms of one trained net. ``metric`` names their score, "" where there are no validation records."""

    run: str
    trial: str
    epoch: float
    net: str
    metric: str
    records: int  # validation records of the score
    cores: float
    node: str
    forms: tuple[Form, ...]
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def score(
    run: str,
    found: Trained,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    least_s: float = 0.5,
    say: Callable[[str], None] = lambda text: None,
) -> Score:
    """Measure all forms on this machine's CPU. ``least_s``: seconds of each figure; ``say`` is told what is next."""
    import mxnet as mx

    from raymx.training import deploy, held_out, nets

    with found.opened() as (net, experiment):
        metric, scored = nets.build_metric(experiment)
        batches, note = _records(held_out.held_out, experiment)
        example = mx.nd.zeros((1, *experiment.data.picture_shape))
        given = [inputs for inputs, _ in batches] or [example]
        size = min(32, *(len(inputs) for inputs in given))
        calibration = [inputs[:size] for inputs in given][: max(1, _CALIBRATION_RECORDS // size)]
        make: dict[str, Callable[[], Any]] = {
            "module": lambda: deploy.AsModule(net, example),
            "fused": lambda: deploy.fused(net, example),
            "int8": lambda: deploy.quantized(net, calibration),
            "float32": lambda: _hybridized(net),
        }
        judged = batches if experiment.data.validation and experiment.model.target == "labels" else []
        forms = {form: _measured(form, make[form], example, batch_sizes, least_s, scored, judged, say) for form in make}
    return Score(
        run=run,
        trial=found.trial_id,
        epoch=found.epoch,
        net=experiment.model.net,
        metric=metric if judged else "",
        records=sum(len(inputs) for inputs, _ in judged),
        cores=cores(),
        node=os.uname().nodename,
        forms=tuple(forms[form] for form in FORMS),
        note=note,
    )


def _records(held_out: Callable[[Any], Any], experiment: Any) -> tuple[list[tuple[Any, Any]], str]:
    try:
        return list(held_out(experiment)), ""
    except DataError as error:
        return [], f"no score, and int8 is not calibrated by records: {error}"


def _hybridized(net: Any) -> Any:
    net.hybridize(static_alloc=True, static_shape=True)
    return net


def _measured(
    form: str,
    make: Callable[[], Any],
    example: Any,
    batch_sizes: Sequence[int],
    least_s: float,
    scored: Callable[[Any, Any], Any],
    batches: Sequence[tuple[Any, Any]],
    say: Callable[[str], None],
) -> Form:
    import mxnet as mx

    from raymx.training.speed import images_per_s, mean_score

    say(f"{form}: {FORMS[form]}")
    try:
        net = make()
        speeds = {}
        for size in batch_sizes:
            x = mx.nd.random.uniform(-1, 1, shape=(size, *example.shape[1:]))
            speeds[size] = images_per_s(net, x, least_s)
        return Form(form, speeds, mean_score(net, scored, batches) if batches else None)
    except (TrainingError, mx.MXNetError) as error:
        return Form(form, {}, None, str(error).strip().splitlines()[-1])


def table(found: Score) -> str:
    """Images/s by batch size, a form a column, and below the score with what it loses against float32."""
    forms = [form for form in found.forms if not form.absent]
    sizes = list(forms[0].images_per_s) if forms else []
    lines = [["batch", *(form.form for form in forms)]]
    lines += [[str(size), *(f"{form.images_per_s[size]:,.0f}" for form in forms)] for size in sizes]
    if found.metric and forms:
        lines.append([found.metric, *(f"{form.score:.4f}" for form in forms if form.score is not None)])
        first = forms[0].score or 0.0
        lines.append(["difference", "", *(f"{(form.score or 0.0) - first:+.4f}" for form in forms[1:])])
    head = f"{found.net}, trial {found.trial}, epoch {found.epoch:g}: images/s on {found.cores:g} cores of {found.node}"
    told = [f"  {form.form}: {FORMS[form.form]}" for form in forms]
    told += [f"  {form.form}: not to be had ({form.absent})" for form in found.forms if form.absent]
    told += [f"  {found.metric}: of {found.records:,} validation records"] if found.metric else []
    return "\n".join([head, "", *columns(lines), "", *told, *([f"  note: {found.note}"] if found.note else [])])
