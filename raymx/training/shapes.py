"""What a net, a loss and a metric give, looked at before it is added up: arrays of other shapes would be, too. Pure."""

from __future__ import annotations

from typing import Any

from raymx.errors import TrainingError
from raymx.training.sequences import is_sequence
from raymx.training.structure import leaves


def require_arrays(net: str, outputs: Any) -> None:
    """Raise TrainingError when a net gives something else than arrays, or lists, tuples and dictionaries of arrays."""
    found = leaves(outputs)
    wrong = [value for value in found if not _is_array(value)]
    if wrong or not found:
        raise TrainingError(
            f"model.net {net} returns {_described(wrong[0] if wrong else outputs)}: a net gives an array, or a list, "
            "tuple or dictionary of arrays"
        )


def require_one(what: str, outputs: Any) -> None:
    """Raise TrainingError when one of raymx's own losses or metrics is to take several outputs."""
    if not _is_array(outputs):
        raise TrainingError(
            f"{what} takes one array, and the net returns {_described(outputs)}: name a module:function of your own, "
            "which gets all that the net returns, or have the net return that array alone"
        )


def require_labels(loss: str, outputs: Any, labels: Any) -> None:
    """Raise TrainingError when one of raymx's own losses cannot take these labels for these outputs."""
    a_row = loss == "softmax_cross_entropy"
    if a_row and is_sequence(outputs, labels):
        return
    if labels.size != (labels.shape[0] if a_row else outputs.size):
        wanted = "one label a row, or a place of it," if a_row else "as many labels as outputs,"
        raise TrainingError(
            f"model.loss {loss} takes {wanted} and got outputs {outputs.shape} and labels {labels.shape}: look at "
            "data.label_width and model.classes, or use a loss of your own"
        )


def require_a_row_each(what: str, values: Any, rows: int) -> None:
    """Raise TrainingError when ``what`` did not give one number for each of ``rows`` rows."""
    if not _is_array(values) or values.shape != (rows,):
        raise TrainingError(
            f"{what} gives {_described(values)} for {rows} rows: it must give one number a row, shape ({rows},); take "
            "the mean over the other axes, or .reshape((-1,)) where there is one number in each"
        )


def _described(value: Any) -> str:
    if _is_array(value):
        return f"shape {value.shape}"
    if isinstance(value, (list, tuple, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _is_array(value: Any) -> bool:
    """Whether it is an NDArray."""
    return hasattr(value, "wait_to_read")
