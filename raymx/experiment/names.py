"""The names that an experiment file may use for what MXNet 1.9.1 and raymx provide.

They are listed here, not asked of MXNet, so that a wrong name is refused in milliseconds, on a machine that need not
have MXNet. A test compares the lists with the installed MXNet.
"""

from __future__ import annotations

import re

REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
"""``module:name``: something of the user's own, in a module beside the experiment file."""

OBJECTS = "raymx_objects"
"""The module that a submitted run finds objects of a notebook in (see raymx.jobs.by_value)."""

RUN_FILE = "run.yaml"
"""The experiment of a run, in the run's folder: by it such a folder is known."""

SUMMARY_FILE = "summary.json"
"""What came out of a run, in its folder."""

PARAMETERS_FILE = "net.params"
"""The net's parameters in a checkpoint, in Gluon's format."""

SYMBOL = "symbol"
"""What ``model.net`` is where ``model.symbol`` gives the net."""

MODEL_ZOO = (
    *(f"resnet{depth}_v{version}" for version in (1, 2) for depth in (18, 34, 50, 101, 152)),
    *(f"vgg{depth}{suffix}" for suffix in ("", "_bn") for depth in (11, 13, 16, 19)),
    "alexnet",
    *(f"densenet{depth}" for depth in (121, 161, 169, 201)),
    "squeezenet1.0",
    "squeezenet1.1",
    "inceptionv3",
    *(f"mobilenet{version}{width}" for version in ("", "v2_") for width in ("1.0", "0.75", "0.5", "0.25")),
)
"""What ``mxnet.gluon.model_zoo.vision.get_model`` takes."""

LOSSES = {
    "softmax_cross_entropy": "SoftmaxCrossEntropyLoss",
    "l2": "L2Loss",
    "sigmoid_bce": "SigmoidBinaryCrossEntropyLoss",
}
"""Losses, and the class of ``mxnet.gluon.loss`` that each is. To add one: a row here."""

METRICS = {
    "accuracy": "whether the largest output is the label; with sigmoid_bce the part of the outputs on the right side",
    "top5": "whether the label is among the five largest outputs",
    "mse": "the mean square of output - label",
}
"""Metrics, and what each says of a sample. To add one: a row here, and a function of its name in
``raymx.training.metrics``."""

TAKE_A_CLASS = ("softmax_cross_entropy", "accuracy", "top5")
"""Losses and metrics that take one label a record: the number of its class. The others take a label an output."""

INITIALIZERS = {"xavier": "Xavier", "msra": "MSRAPrelu", "normal": "Normal", "uniform": "Uniform", "none": ""}
"""Initializers, and the class of ``mxnet.init`` that each is ("": the net's own). To add one: a row here."""

OPTIMIZERS: dict[str, tuple[str, ...]] = {
    "sgd": ("momentum", "lazy_update"),
    "nag": ("momentum",),
    "adam": ("beta1", "beta2", "epsilon", "lazy_update"),
    "adamax": ("beta1", "beta2"),
    "nadam": ("beta1", "beta2", "epsilon", "schedule_decay"),
    "adagrad": ("eps",),
    "adadelta": ("rho", "epsilon"),
    "rmsprop": ("gamma1", "gamma2", "epsilon", "centered", "clip_weights"),
    "ftrl": ("lamda1", "beta"),
    "ftml": ("beta1", "beta2", "epsilon"),
    "lamb": ("beta1", "beta2", "epsilon", "lower_bound", "upper_bound", "bias_correction"),
    "lars": ("momentum", "lazy_update", "eta", "eps", "momentum_correction"),
    "lbsgd": (
        *("momentum", "warmup_strategy", "warmup_epochs", "batch_scale"),
        *("updates_per_epoch", "begin_epoch", "num_epochs"),
    ),
    "signum": ("momentum", "wd_lh"),
    "dcasgd": ("momentum", "lamda"),
    "sgld": (),
    "groupadagrad": ("eps",),
}
"""MXNet's optimizers and each one's own keyword arguments; all take ``OPTIMIZER_COMMON`` too."""

OPTIMIZER_COMMON = ("wd", "clip_gradient", "multi_precision")

OPTIMIZER_REFUSED = {
    "learning_rate": "use training.base_lr, which the batch rule, warmup and decay start from",
    "lr_scheduler": "use training.warmup_epochs and training.decay",
    "rescale_grad": "raymx sets it, so that an update is the mean over the samples of a global batch",
    "param_dict": "set lr_mult and wd_mult on the net's parameters; raymx brings them to the servers",
    "begin_num_update": "raymx sets it from the checkpoint; continue a run with --resume",
}
"""Arguments of MXNet optimizers that raymx sets itself, and what to use in their place."""
