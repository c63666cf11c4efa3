"""Build the experiment's net, loss and metric, and hybridize the net where that gives the same numbers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from numpy.typing import NDArray

from raymx.errors import TrainingError
from raymx.experiment import names
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.references import SIGNATURES
from raymx.experiment.sample_schema import LENGTHS
from raymx.experiment.user_code import load_function, require_call
from raymx.training import metrics, symbols
from raymx.training.accumulation import add_up
from raymx.training.freezing import freeze, multiply_rates
from raymx.training.heads import make_anew
from raymx.training.precision import Prepare, require_avx512, with_cast, with_input
from raymx.training.registered import check_registered
from raymx.training.sequences import cross_entropy, is_sequence
from raymx.training.shapes import require_a_row_each, require_arrays, require_labels, require_one
from raymx.training.structure import leaves, mapped
from raymx.training.weights import begin_with, zoo_file_at_hand

log = logging.getLogger(__name__)

Loss = Callable[[Any, Any], Any]  # (outputs, labels) -> a loss a sample, (rows,)
Metric = Callable[[Any, Any], Any]  # (outputs, labels) -> a score a sample, (rows,)


def build_net(
    experiment: ExperimentConfig, devices: Sequence[mx.Context], *, is_trained: bool = False, goes_on: bool = False
) -> gluon.Block:
    """The experiment's net, initialized from its seed: the same weights in every process.

    Where its weights are still to come, since it ``is_trained`` already or ``goes_on`` from a checkpoint, it does not
    begin with those of ``model.parameters``. Raises TrainingError when the net cannot take the experiment's image
    shape, or, unless it ``is_trained`` already, cannot learn by its loss.
    """
    model = experiment.model
    if experiment.precision.amp == "bfloat16":
        require_avx512()
    np.random.seed(experiment.training.seed)
    mx.random.seed(experiment.training.seed)
    net = _make(experiment, weights_come=is_trained or goes_on)
    check_registered(net)
    anew = make_anew(net, model.head.name, model.outputs) if model.head.name else symbols.NEW if model.features else ()
    with _initializers_limits(experiment):
        _initialize(net, experiment, devices, anew)
    try:
        net.collect_params().reset_ctx(list(devices))  # those that the net's own function initialized
    except ValueError as error:
        raise TrainingError(
            f"model.initializer is none, but {model.net} left a parameter uninitialized ({error}): "
            "initialize it there, or choose an initializer"
        ) from None
    dtype = experiment.precision.net_dtype
    if dtype != "float32":
        net.cast(dtype)  # batch norm keeps float32 under float16: Gluon's own cast does so
    with _initializers_limits(experiment):
        outputs = _settle_shapes(net, experiment, devices)
    if experiment.training.loop == "default" and not is_trained and outputs is not None:
        _require_scores(net, outputs, experiment)
    if model.parameters and not is_trained and not goes_on:
        begin_with(net, experiment, anew)
    freeze(net, model.freeze, anew)
    multiply_rates(net, model.lr_mult)
    if experiment.training.accumulate > 1:
        add_up(net)
    return net


def _make(experiment: ExperimentConfig, *, weights_come: bool) -> gluon.Block:
    """The net as its function gives it; without the model zoo's own weights where others take their place."""
    model = experiment.model
    if model.symbol:
        return symbols.net_of(experiment)
    if ":" in model.net:
        given = {"classes": model.classes, **model.options}
        wanted = SIGNATURES["model.net"].wanted
        net = load_function("model.net", model.net, experiment.directory, wanted, **given)(**given)
    elif model.zoo_pretrained and not weights_come:
        with zoo_file_at_hand(model.net, model.options.get("root")):
            net = gluon.model_zoo.vision.get_model(model.net, classes=model.classes, **model.options)
    else:
        options = {key: value for key, value in model.options.items() if key not in ("pretrained", "root")}
        net = gluon.model_zoo.vision.get_model(model.net, classes=model.classes, **options)
    if not isinstance(net, gluon.Block):
        raise TrainingError(f"model.net {model.net} returned a {type(net).__name__}, not a Gluon block")
    return net


def _initialize(
    net: gluon.Block, experiment: ExperimentConfig, devices: Sequence[mx.Context], anew: Collection[str]
) -> None:
    """Queue or make the first weights. What has some already keeps them, as the net's function gave them."""
    initializer, devices = names.INITIALIZERS[experiment.model.initializer], list(devices)
    if initializer and not anew and not experiment.model.zoo_pretrained:
        net.initialize(getattr(mx.init, initializer)(), ctx=devices)
        return
    first = getattr(mx.init, initializer or names.INITIALIZERS["xavier"])()
    for name, param in net._collect_params_with_prefix().items():
        if param._data is None and not param._deferred_init and (initializer or name in anew):
            param.initialize(None, devices, first)


@contextmanager
def _initializers_limits(experiment: ExperimentConfig) -> Iterator[None]:
    """Xavier and its like scale by rows and columns, and raise a ValueError for a parameter that has none."""
    try:
        yield
    except ValueError as error:
        if "initializer" not in str(error):
            raise
        raise TrainingError(
            f"model.initializer {experiment.model.initializer} cannot make a parameter of model.net "
            f"{experiment.model.net} ({error}): give that one an initializer of its own, as "
            'self.params.get(name, shape=..., init="zeros") does, or use model.initializer normal or uniform'
        ) from None


# Of an output that is a loss of its own, MXNet takes no gradient from what comes behind it.
_NO_GRADIENT = (
    *symbols.LOSSES,
    *("MakeLoss", "make_loss", "BlockGrad", "stop_gradient"),
)


def _require_scores(net: gluon.Block, outputs: Any, experiment: ExperimentConfig) -> None:
    """Raise TrainingError for a net whose last operator the loss has itself, or which lets no gradient through.

    Of several outputs some may be meant to.
    """
    if not isinstance(outputs, mx.nd.NDArray):
        return
    what, last = f"model.net {experiment.model.net}", _last_operator(net)
    if last in _NO_GRADIENT:
        raise TrainingError(
            f"{what} ends in {last}, which takes no gradient from model.loss, so nothing would be trained by it: cut "
            "that off; of a symbol, symbol.get_internals() has the layer before"
        )
    if experiment.model.loss == "sigmoid_bce" and last == "sigmoid":
        raise TrainingError(
            f"{what} ends in a sigmoid, and model.loss sigmoid_bce has one itself: leave the net's out, "
            "since two would hide which outputs are above probability 0.5"
        )
    if experiment.model.loss == "softmax_cross_entropy" and _are_probabilities(outputs):
        raise TrainingError(
            f"{what} gives probabilities (none is negative, and they add up to 1), and model.loss "
            "softmax_cross_entropy has a softmax itself: leave the net's out, since two hardly learn"
        )


def _are_probabilities(outputs: mx.nd.NDArray) -> bool:
    rows = outputs.astype("float64").asnumpy()
    return rows.shape[-1] > 1 and bool((rows >= 0).all() and np.allclose(rows.sum(axis=-1), 1, atol=1e-2))


def _last_operator(net: gluon.Block) -> str:
    """MXNet's name of what a net computes last; "" where it has no graph."""
    try:
        graph = json.loads(net(mx.sym.Variable("data")).tojson())
    except Exception:  # whatever the user's forward raises on symbols
        return ""
    last = graph["nodes"][graph["heads"][0][0]]
    return str(last.get("attrs", {}).get("act_type", last["op"]))


def _settle_shapes(net: gluon.Block, experiment: ExperimentConfig, devices: Sequence[mx.Context]) -> Any:
    """Run one empty sample through, and return its outputs: Gluon knows a layer's shape only then."""
    outputs = None
    if not experiment.data.input_shapes:  # a loop with data of its own, which it says nothing of
        return outputs
    for device in devices:
        try:
            outputs = net(*_empty_sample(experiment, device))
            mx.nd.waitall()
        except (mx.MXNetError, TypeError, ValueError) as error:
            if not isinstance(error, mx.MXNetError) and (
                experiment.data.kind == "image" or "initializer" in str(error)
            ):
                raise
            raise TrainingError(
                f"model.net {experiment.model.net} cannot take {_inputs_in_words(experiment)}: "
                f"{str(error).splitlines()[-1]}"
            ) from None
        if experiment.training.loop == "default":
            require_arrays(experiment.model.net, outputs)
    return outputs


def _empty_sample(experiment: ExperimentConfig, device: mx.Context) -> list[mx.nd.NDArray]:
    """Zeros of what the net gets of one sample; a length that differs is the shortest bucket, or the longest."""
    data, dtype = experiment.data, experiment.precision.net_dtype
    length = data.pad.most if data.pad.to == "batch" else data.pad.to[0]
    types = {name: dtype if "float" in each.dtype else each.dtype for name, each in data.inputs.items()}
    arrays = []
    for name, shape in data.input_shapes.items():
        sizes = tuple(length if size is None else size for size in shape)
        of_type = "int32" if name == LENGTHS else types.get(name, dtype)
        make = mx.nd.ones if name == LENGTHS else mx.nd.zeros
        arrays.append(make((1, *sizes), ctx=device, dtype=of_type))
    return arrays


def _inputs_in_words(experiment: ExperimentConfig) -> str:
    data = experiment.data
    if data.kind == "image":
        return f"data.image_shape {list(data.picture_shape)}"
    shapes = ", ".join(f"{name} {list(shape)}".replace("None", "null") for name, shape in data.input_shapes.items())
    return f"the inputs {shapes} of data.inputs, each with the rows of a batch before its sizes"


def as_input_net(
    net: gluon.Block,
    experiment: ExperimentConfig,
    devices: Sequence[mx.Context],
    *,
    ready: bool = False,
    mixes: bool = False,
) -> gluon.Block:
    """``net`` taking what the data streams give: ``Part.inputs``. ``ready`` and ``mixes``: see `Prepare`.

    With ``model.target: input`` it returns (what ``net`` gives, its input), which the loss and the metric take.
    """
    if experiment.data.kind != "image":
        dtype, inputs = experiment.precision.net_dtype, experiment.data.inputs.values()
        others = [at for at, each in enumerate(inputs) if "float" in each.dtype and each.dtype != dtype]
        return with_cast(net, others, dtype)
    prepare = preparing(experiment, ready=ready, mixes=mixes)
    return with_input(net, prepare, devices, gives_input=experiment.model.target == "input")


def preparing(experiment: ExperimentConfig, *, ready: bool = False, mixes: bool = False) -> Prepare:
    """What makes the pictures of ``Part.inputs`` the net's input, not initialized."""
    channels = experiment.data.picture_shape[0]
    mean, std = (_a_channel(value, channels) for value in (experiment.data.mean, experiment.data.std))
    return Prepare(mean, std, experiment.precision.net_dtype, ready=ready, mixes=mixes)


def _a_channel(value: Any, channels: int) -> list[float]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return [float(v) for v in (values * channels if len(values) == 1 else values)]


def hybridize_on_first_batch(net: gluon.Block, experiment: ExperimentConfig) -> gluon.Block:
    """``net``, which is hybridized when it is first called with NDArrays, inside autograd.record() or not; see below.

    Until then its ``forward`` is one of its own, which hides that of its class.
    """

    def forward(*inputs: Any) -> Any:
        if not all(isinstance(value, mx.nd.NDArray) for value in inputs):  # traced as a part of another block
            return type(net).forward(net, *inputs)
        del net.forward
        with autograd.pause():
            hybridize(net, inputs, experiment)
        return net.forward(*inputs)

    net.forward = forward
    return net


def hybridize(net: gluon.Block, inputs: Sequence[mx.nd.NDArray], experiment: ExperimentConfig) -> None:
    """Hybridize ``net`` with static memory, checked on one batch against the imperative run (model.hybridize auto).

    A net that cannot be hybridized, or gives something else, runs without; a warning names why.
    """
    # Where lengths differ, there is a graph for each, which shares no memory with another one's.
    flags = ({} if experiment.data.lengths_differ else _STATIC) | (_BY_NAME if experiment.profile.steps else {})
    mode = experiment.model.hybridize
    if mode is False:
        return
    if mode == "auto":
        reason = _difference(net, inputs, _TOLERANCE.get(experiment.precision.dtype, 1e-4), flags)
        if reason:
            log.warning("the net runs without hybridize: %s", reason)
            net.hybridize(False)
            return
    net.hybridize(**flags)


_STATIC = {"static_alloc": True, "static_shape": True}
_BY_NAME = {"forward_bulk_size": 0, "backward_bulk_size": 0}  # for a trace: operators that run in one go have one name
# Of the largest output: a graph may fuse operators, and round at other points than the imperative run.
_TOLERANCE = {"float16": 2e-2, "amp_float16": 2e-2, "amp_bfloat16": 1e-1}


def _difference(net: gluon.Block, inputs: Sequence[mx.nd.NDArray], tolerance: float, flags: Mapping[str, Any]) -> str:
    if not isinstance(net, gluon.HybridBlock):
        return "it is a Block and no HybridBlock"
    imperative = _arrays(net(*inputs))
    net.hybridize(**flags)
    try:
        hybrid = _arrays(net(*inputs))
    except Exception as error:  # whatever the user's hybrid_forward raises is the reason
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
    for expected, found in zip(imperative, hybrid, strict=True):
        if not np.allclose(expected, found, rtol=1e-3, atol=tolerance * max(1.0, float(np.abs(expected).max()))):
            return f"its hybrid and its imperative outputs differ by up to {float(np.abs(expected - found).max()):.2g}"
    return ""


def _arrays(outputs: Any) -> list[NDArray[np.float32]]:
    """One output or several, on the host."""
    return [array.astype("float32").asnumpy() for array in leaves(outputs)]


def build_loss(experiment: ExperimentConfig) -> Loss:
    """The loss by name, or the user's: a Gluon loss class, or a function of (outputs, labels).

    It gets what the net gives, with ``model.target: input`` as `as_input_net` says.
    """
    name = experiment.model.loss
    loss = _named_loss(name, experiment) if name in names.LOSSES else _own_loss(name, experiment.directory)
    # Labels are float32, and MXNet mixes no types. Gluon's softmax loss stays float16 for float16 input, and overflows.
    wide = {"float32": "", "float64": "float64"}.get(experiment.precision.dtype, "float32")
    return _on_target(experiment, _in_type(wide, _a_row_each(f"model.loss {name}", loss)))


def _in_type(dtype: str, function: Loss) -> Loss:
    """``function`` of outputs and labels of another type than they have; "" leaves them."""
    if not dtype:
        return function

    def cast(array: Any) -> Any:
        return array.astype(dtype)

    return lambda outputs, labels: function(mapped(cast, outputs), mapped(cast, labels))


def _on_target(experiment: ExperimentConfig, function: Loss) -> Loss:
    """``function`` of what `as_input_net` gives and labels, which the input may take the place of."""
    if experiment.model.target == "labels":
        return function
    return lambda given, _: function(*given)


def _named_loss(name: str, experiment: ExperimentConfig) -> Loss:
    loss = getattr(gluon.loss, names.LOSSES[name])()
    in_training = SmoothedLoss(smoothing) if (smoothing := experiment.training.label_smoothing) else loss
    for block in (loss, in_training):
        block.hybridize()

    def call(outputs: Any, labels: Any) -> Any:
        require_one(f"model.loss {name}", outputs)
        require_labels(name, outputs, labels)
        if name == "softmax_cross_entropy" and is_sequence(outputs, labels):
            if smoothing:
                raise TrainingError(
                    f"training.label_smoothing is {smoothing:g}, and labels that are a class a step of a sequence are "
                    "not smoothed: set it to 0, or name a loss of your own"
                )
            return cross_entropy(outputs, labels)
        return (in_training if autograd.is_training() else loss)(outputs, labels)

    return call


class SmoothedLoss(gluon.HybridBlock):
    """Softmax cross-entropy, a part of each label shared out over all classes: Szegedy et al. 2016, section 7."""

    def __init__(self, smoothing: float) -> None:
        super().__init__()
        self._smoothing = smoothing

    def hybrid_forward(self, F: Any, outputs: Any, labels: Any) -> Any:
        logs = F.log_softmax(outputs, axis=-1)
        own, even = F.pick(logs, labels, axis=-1, keepdims=True), F.mean(logs, axis=-1, keepdims=True)
        losses = -(1.0 - self._smoothing) * own - self._smoothing * even
        return F.mean(losses, axis=0, exclude=True)


def _own_loss(name: str, directory: str) -> Loss:
    called = SIGNATURES["model.loss"]
    loss = load_function("model.loss", name, directory, called.wanted)
    if isinstance(loss, type):
        loss = load_function("model.loss", name, directory, f"{called.wanted}; a class is made with no arguments")()
        require_call(f"model.loss: {name}()", loss, called.wanted, *called.arguments)
    elif not isinstance(loss, gluon.Block):
        require_call(f"model.loss: {name}", loss, called.wanted, *called.arguments)
    if isinstance(loss, gluon.Block):
        _require_no_parameters(name, loss)
    if isinstance(loss, gluon.HybridBlock):
        loss.hybridize()
    return loss


def _require_no_parameters(name: str, loss: gluon.Block) -> None:
    """Raise TrainingError for a loss with weights, such as class centres: the trainer has the net's alone."""
    trained = [param.name for param in loss.collect_params().values() if param.grad_req != "null"]
    if trained:
        raise TrainingError(
            f"model.loss {name} has a parameter {trained[0]}, which would be neither trained nor saved, since that is "
            "the net's alone: make it a part of model.net, which returns all that the loss needs, or give "
            'it grad_req="null" if it never changes'
        )


def _a_row_each(what: str, function: Loss) -> Loss:
    def call(outputs: Any, labels: Any) -> Any:
        values = function(outputs, labels)
        require_a_row_each(what, values, leaves(labels)[0].shape[0])
        return values

    return call


def build_metric(experiment: ExperimentConfig) -> tuple[str, Metric]:
    """(name in results, score a sample), which gets outputs as float32."""
    name = experiment.model.metric
    if name in names.METRICS:
        logits = experiment.model.loss == "sigmoid_bce" and name == "accuracy"
        score = _of_one(name, metrics.accuracy_of_logits if logits else getattr(metrics, name))
    else:
        called = SIGNATURES["model.metric"]
        score = load_function("model.metric", name, experiment.directory, called.wanted, *called.arguments)
    score = _in_type(
        "" if experiment.precision.dtype == "float32" else "float32", _a_row_each(f"model.metric {name}", score)
    )
    return name.rpartition(":")[2], _on_target(experiment, score)


def _of_one(name: str, score: Metric) -> Metric:
    def call(outputs: Any, labels: Any) -> Any:
        require_one(f"model.metric {name}", outputs)
        return score(outputs, labels)

    return call
