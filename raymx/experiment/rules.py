"""Which combinations of an experiment's settings cannot work with MXNet 1.9.1 and a KVStore, each with its reason.

    check(experiment)                    # ExperimentError, one line a problem
    for sentence in notes(experiment):   # allowed, but worth knowing
        log.warning(sentence)

Each setting alone is right already (``config.py``); here they are looked at together. Pure: no mxnet, no ray.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from raymx.errors import ExperimentError
from raymx.experiment import data_rules, names, store_types
from raymx.experiment.label_rules import one_label_fix, take_a_class
from raymx.experiment.loading import ExperimentConfig
from raymx.experiment.lr_rules import LR_RULES
from raymx.experiment.problem import Problem
from raymx.experiment.store_types import STORE_TYPES, StoreType

ZOO_CLASSES = 1000  # of ImageNet
_FLOAT32_STATE = ("adagrad", "adadelta", "rmsprop", "ftrl", "groupadagrad")


def check(experiment: ExperimentConfig, *, gpus_available: int | None = None) -> None:
    """Raise an ExperimentError that lists every problem, one a line."""
    found = problems(experiment, gpus_available=gpus_available)
    if found:
        raise ExperimentError("\n".join(map(str, found)))


def problems(experiment: ExperimentConfig, *, gpus_available: int | None = None) -> list[Problem]:
    """What cannot work. ``gpus_available``: GPUs of the whole cluster, None when not known yet."""
    rules = (
        _store(experiment),
        _compression(experiment),
        _precision(experiment, gpus_available),
        _optimizer(experiment),
        _weights(experiment),
        _batch(experiment),
        _devices(experiment),
        _decay(experiment),
        data_rules.problems(experiment),
        _data(experiment),
        _own_data(experiment),
        _labels(experiment),
        _metric(experiment),
        _profile(experiment),
        _target(experiment),
        _learning(experiment),
    )
    return [problem for rule in rules for problem in rule]


def resolved_store_type(experiment: ExperimentConfig) -> str:
    """The KVStore type; ``auto`` is ``device`` for one worker and ``dist_sync`` for more.

    What may become more counts as more: a run does not change its kind of store on the way.
    """
    return store_type(experiment).name


def store_type(experiment: ExperimentConfig) -> StoreType:
    """The row of `raymx.experiment.store_types` that `resolved_store_type` names."""
    kind = experiment.kvstore.type
    return store_types.auto(experiment.resources.max_workers) if kind == store_types.AUTO else STORE_TYPES[kind]


def is_dist(experiment: ExperimentConfig) -> bool:
    """Whether the store has servers."""
    return store_type(experiment).is_dist


def is_async(experiment: ExperimentConfig) -> bool:
    """Whether the servers apply each worker's push on its own."""
    return store_type(experiment).is_async


def update_on_kvstore(experiment: ExperimentConfig) -> bool:
    """Whether the optimizer runs in the store (on the servers of a dist store).

    ``auto`` is yes, but for a dynamic loss scale, which a sync run's workers must divide by themselves.
    """
    wanted = experiment.kvstore.update_on_kvstore
    if wanted == "auto":
        return is_async(experiment) or experiment.precision.loss_scale != "dynamic"
    return wanted


def loss_scale(experiment: ExperimentConfig) -> float | Literal["dynamic"] | None:
    """What the loss is multiplied by; None is no scale, and no look for gradients that are inf or nan.

    ``auto`` is none where the net computes in float32, float64 or bfloat16, whose range is that of float32. With
    float16 it is dynamic where the workers have the optimizer, and else 128: Micikevicius et al. 2018, "Mixed Precision
    Training", found 8 enough for a detector, and MXNet's own examples have 128.
    """
    precision = experiment.precision
    if precision.loss_scale == "none":
        return None
    if precision.loss_scale != "auto":
        return precision.loss_scale
    if precision.dtype in ("float16", "amp_float16"):
        return 128.0 if update_on_kvstore(experiment) else "dynamic"
    return None


def sends_float32(experiment: ExperimentConfig) -> bool:
    """Whether gradients and weights travel as they are, in four bytes a number, so that there are fewer to be had."""
    plain = experiment.precision.net_dtype == "float32" and experiment.kvstore.compression.type == "none"
    return is_dist(experiment) and plain and not is_half_on_wire(experiment)


def is_half_on_wire(experiment: ExperimentConfig) -> bool:
    """Whether gradients and weights travel in float16 though the net has another type."""
    precision = experiment.precision
    return is_dist(experiment) and precision.wire_dtype == "float16" and precision.net_dtype != "float16"


def warmup_epochs(experiment: ExperimentConfig) -> float:
    """Epochs of warmup as they are run: longer for a batch above the base batch, and for async."""
    training = experiment.training
    lengthen = max(1.0, batch_factor(experiment)) if training.warmup_lengthen else 1.0
    return training.warmup_epochs * lengthen * (training.async_warmup_factor if is_async(experiment) else 1.0)


def batch_factor(experiment: ExperimentConfig) -> float:
    """What the learning-rate rule makes of the samples in one update: 1 at ``base_batch_size``.

    That is the global batch B, and in async B over the number of workers, each of whose pushes is an update of its
    own: with the rate of B, two async workers took the default experiment to NaN. An elastic experiment counts with
    the workers that it starts with, until it is `raymx.experiment.sizing.sized`.
    """
    return LR_RULES[experiment.training.lr_rule].factor(batch_ratio(experiment))


def batch_ratio(experiment: ExperimentConfig) -> float:
    """The samples in one update as a multiple of ``base_batch_size``, which the learning-rate rule is given."""
    training = experiment.training
    batch = training.global_batch_size / (experiment.resources.min_workers if is_async(experiment) else 1)
    return batch / (training.base_batch_size or training.global_batch_size)


def notes(experiment: ExperimentConfig) -> list[str]:
    """Sentences about settings that work, but perhaps not as expected."""
    return [
        *_store_notes(experiment),
        *_length_notes(experiment),
        *_batch_notes(experiment),
        *_data_notes(experiment),
        *_restart_notes(experiment),
    ]


# What cannot work.


def _store(experiment: ExperimentConfig) -> Iterator[Problem]:
    kind, workers = resolved_store_type(experiment), experiment.resources.max_workers
    if not is_dist(experiment) and workers > 1:
        grown = f", and a run of {experiment.resources.workers_in_words} may grow to that"
        yield Problem(
            "kvstore.type",
            kind,
            f"this store lives inside one process, so {workers} workers would train "
            f"{workers} separate nets{grown if experiment.resources.elastic else ''}",
            "use dist_sync, dist_async or auto, or resources.workers 1",
        )
    if is_async(experiment) and not update_on_kvstore(experiment):
        yield Problem(
            "kvstore.update_on_kvstore",
            "false",
            f"{kind} needs the optimizer on the servers: a server without one aborts at the first push",
            "set it to true or auto, or use dist_sync",
        )


def _compression(experiment: ExperimentConfig) -> Iterator[Problem]:
    kind, precision = experiment.kvstore.compression.type, experiment.precision
    if kind == "none":
        return
    key = "kvstore.compression.type"
    if precision.net_dtype != "float32":
        yield Problem(
            key,
            kind,
            f"MXNet compresses float32 gradients only, and precision.dtype is {precision.dtype}",
            "use float32 (or amp_float16, whose gradients are float32), or compression none",
        )
    elif is_half_on_wire(experiment):
        yield Problem(
            key,
            kind,
            "MXNet compresses float32 gradients only, and precision.wire_dtype is float16",
            "use wire_dtype same, or compression none",
        )
    store = store_type(experiment)
    if not store.can_compress:
        yield Problem(
            key, kind, f"a store of type {store.name} cannot compress", "use device or a dist type, or compression none"
        )


def _precision(experiment: ExperimentConfig, gpus_available: int | None) -> Iterator[Problem]:
    dtype, gpus = experiment.precision.dtype, experiment.resources.gpus_per_worker
    no_gpu = gpus == 0 or (gpus == "auto" and gpus_available == 0)
    if dtype in ("float16", "amp_float16") and no_gpu:
        yield Problem(
            "precision.dtype",
            dtype,
            "MXNet cannot compute in float16 without a GPU "
            '("FP16 gemm on cpu not implemented") and the workers have none',
            "use float32 (precision.wire_dtype float16 works on any machine), or give resources.gpus_per_worker",
        )
    if dtype == "amp_bfloat16" and gpus != 0 and (gpus != "auto" or gpus_available):
        yield Problem(
            "precision.dtype",
            dtype,
            "MXNet 1.9.1 has bfloat16 on CPUs alone (those with AVX-512), and the workers have GPUs",
            "use amp_float16, or set resources.gpus_per_worker to 0",
        )
    if experiment.precision.loss_scale == "dynamic" and update_on_kvstore(experiment):
        where = (
            f"in {resolved_store_type(experiment)} each worker's push is an update of its own"
            if is_async(experiment)
            else "kvstore.update_on_kvstore is true"
        )
        fix = "" if is_async(experiment) else ", or set kvstore.update_on_kvstore to false or auto"
        yield Problem(
            "precision.loss_scale",
            "dynamic",
            f"{where}, by an optimizer in the store, which divides by one scale for the whole run",
            f"use a number such as 128{fix}",
        )


def _optimizer(experiment: ExperimentConfig) -> Iterator[Problem]:
    optimizer, servers = experiment.training.optimizer, experiment.kvstore.servers
    yield from _broken_optimizer(experiment)
    layer_wise = optimizer.name in ("lamb", "lars") or (
        optimizer.name == "lbsgd" and optimizer.arguments.get("warmup_strategy") == "lars"
    )
    if layer_wise and servers > 1 and is_dist(experiment) and update_on_kvstore(experiment):
        yield Problem(
            "training.optimizer.name",
            optimizer.name,
            f"it needs the norm of a whole layer, and {servers} "
            "servers each hold a slice of a large one, so results would depend on the number of servers",
            "use kvstore.servers 1, or kvstore.update_on_kvstore false",
        )


def _broken_optimizer(experiment: ExperimentConfig) -> Iterator[Problem]:
    """What MXNet 1.9.1's own optimizers cannot do."""
    optimizer, arguments = experiment.training.optimizer, experiment.training.optimizer.arguments
    if optimizer.name == "dcasgd" and arguments.get("momentum"):
        yield Problem(
            "training.optimizer.momentum",
            arguments["momentum"],
            "dcasgd with momentum fails in MXNet 1.9.1: it asks whether a whole array is true",
            "leave it out, or use sgd",
        )
    if optimizer.name == "groupadagrad" and arguments.get("wd"):
        yield Problem("training.optimizer.wd", arguments["wd"], "groupadagrad has no weight decay", "leave it out")
    on_servers = is_dist(experiment) and update_on_kvstore(experiment)
    if optimizer.name in _FLOAT32_STATE and experiment.precision.dtype == "float64" and not on_servers:
        yield Problem(
            "training.optimizer.name",
            optimizer.name,
            "in MXNet 1.9.1 its state is always float32, and does not go with float64 weights",
            "use another optimizer, such as adam, or float32",
        )
    if optimizer.name == "groupadagrad" and on_servers:
        yield Problem(
            "training.optimizer.name",
            "groupadagrad",
            "it needs weights with rows and columns, and servers hold flat arrays",
            "use adagrad, or kvstore.update_on_kvstore false",
        )


def _weights(experiment: ExperimentConfig) -> Iterator[Problem]:
    """What a net begins with."""
    model = experiment.model
    if not model.zoo_pretrained:
        return
    if model.parameters:
        yield Problem(
            "model.parameters",
            model.parameters,
            "model.options has pretrained: true, which are other weights to begin with",
            "leave one of them out",
        )
    if model.classes != ZOO_CLASSES:
        yield Problem(
            "model.classes",
            model.classes,
            f"model.options has pretrained: true, and the model zoo's weights are of nets with {ZOO_CLASSES} classes",
            f"use model.classes {ZOO_CLASSES} with model.head {{name: output, classes: {model.outputs}}}",
        )


def _batch(experiment: ExperimentConfig) -> Iterator[Problem]:
    batch, workers = experiment.training.global_batch_size, _most_to_share(experiment)
    if batch < workers:
        yield Problem(
            "training.global_batch_size",
            batch,
            f"it is shared by {workers} workers, and some would never have a sample",
            f"use at least {workers}, or fewer resources.workers",
        )


def _most_to_share(experiment: ExperimentConfig) -> int:
    """The most workers that share ``global_batch_size``: with keep_per_worker the batch grows with more than min."""
    resources = experiment.resources
    return resources.min_workers if resources.on_resize == "keep_per_worker" else resources.max_workers


def _devices(experiment: ExperimentConfig) -> Iterator[Problem]:
    gpus, cpu_devices = experiment.resources.gpus_per_worker, experiment.resources.cpu_devices_per_worker
    if cpu_devices > 1 and gpus != 0:
        yield Problem(
            "resources.cpu_devices_per_worker",
            cpu_devices,
            f"it splits a worker's batch over CPU devices, and resources.gpus_per_worker is {gpus}",
            "set that to 0, or cpu_devices_per_worker to 1",
        )


def _decay(experiment: ExperimentConfig) -> Iterator[Problem]:
    decay, training = experiment.training.decay, experiment.training
    if decay.type == "step" and not decay.epochs:
        yield Problem(
            "training.decay.epochs",
            [],
            "step decay needs the epochs after which the rate falls",
            f"give a list such as [{max(1, training.epochs // 2)}]",
        )
    if decay.type in ("cosine", "poly") and decay.final_lr > training.base_lr:
        yield Problem(
            "training.decay.final_lr",
            decay.final_lr,
            f"decay ends at it, and it is above training.base_lr {training.base_lr:g}",
            "give a lower one",
        )


def _data(experiment: ExperimentConfig) -> Iterator[Problem]:
    data = experiment.data
    changed = data.augment.model_dump(exclude_defaults=True, exclude={"mixup", "cutmix"})  # which come after it
    if data.transform and changed:
        yield Problem(
            "data.augment",
            changed,
            f"data.transform {data.transform} takes the place of all augmentation",
            "leave one of them out",
        )
    mean, std = (value if isinstance(value, tuple) else (value,) for value in (data.mean, data.std))
    if max(std) < 1 and max(map(abs, mean)) <= 1 and not data.transform:
        yield Problem(
            "data.std",
            data.std,
            "pixels are 0 to 255, and this is of pixels of 0 to 1: the net would get numbers in the hundreds",
            "multiply data.mean and data.std by 255",
        )
    if data.transform and data.resize and (data.validation_transform or not data.validation):
        yield Problem(
            "data.resize",
            data.resize,
            "a transform of your own gets images of their stored size",
            "leave data.resize out",
        )


def _own_data(experiment: ExperimentConfig) -> Iterator[Problem]:
    """What a loop with data of its own cannot have, since the steps of an epoch are not known."""
    training = experiment.training
    if experiment.data.train is not None or training.loop == "default":
        return
    for key, value in (("warmup_epochs", training.warmup_epochs), ("decay.type", training.decay.type)):
        if value not in (0, "none"):
            reason = "without data.train the steps of an epoch are not known, by which the rate changes"
            yield Problem(f"training.{key}", value, reason, "leave it out, or give data.train")


def _labels(experiment: ExperimentConfig) -> Iterator[Problem]:
    """What raymx's own loop cannot do with so many labels; ``auto`` is known once the records are opened."""
    model, width = experiment.model, experiment.data.label_width
    compared = model.target == "input" or experiment.data.labels
    if experiment.training.loop != "default" or width == "auto" or compared:
        return
    one_each = take_a_class(experiment)
    for key, name in (("model.loss", model.loss), ("model.metric", model.metric)):
        if key in one_each and width > 1:
            reason = f"it takes one label, the number of the class, and data.label_width is {width}"
            yield Problem(key, name, reason, one_label_fix(key))
        of_raymx = name in names.LOSSES or name in names.METRICS
        if of_raymx and key not in one_each and model.net in names.MODEL_ZOO and model.outputs != width:
            yield Problem(
                key,
                name,
                f"it takes a label an output, and {model.outputs_key} is {model.outputs} where data.label_width is "
                f"{width}",
                "make them equal, or choose another one",
            )


def _profile(experiment: ExperimentConfig) -> Iterator[Problem]:
    ranks, workers = experiment.profile.workers, experiment.resources.max_workers
    if isinstance(ranks, tuple) and experiment.profile.steps and not any(rank < workers for rank in ranks):
        yield Problem(
            "profile.workers",
            list(ranks),
            f"the run has the workers 0 to {workers - 1}, so that nothing would be traced",
            "name some of them, or all",
        )


def _metric(experiment: ExperimentConfig) -> Iterator[Problem]:
    """Metrics that ask which output is the largest, where none of several is to be."""
    model = experiment.model
    if experiment.training.loop != "default" or model.target == "input":  # a loop has metrics of its own
        return
    if model.metric not in ("accuracy", "top5") or (model.metric == "accuracy" and model.loss == "sigmoid_bce"):
        return
    fix = "use model.loss sigmoid_bce with accuracy for labels of 0 and 1, mse for numbers, or a metric of your own"
    if model.loss == "l2":
        reason = "it asks which output is the largest, and model.loss l2 has outputs become numbers"
    elif model.loss == "sigmoid_bce":
        reason = "it asks for the largest outputs, and model.loss sigmoid_bce takes each output for itself"
    elif model.outputs == 1:
        reason = f"it asks which output is the largest, and {model.outputs_key} is 1"
    else:
        return
    yield Problem("model.metric", model.metric, reason, fix)


def _target(experiment: ExperimentConfig) -> Iterator[Problem]:
    """What cannot compare outputs with the net's input."""
    model = experiment.model
    if model.target != "input":
        return
    if experiment.training.loop != "default":
        why = f"training.loop {experiment.training.loop} compares by itself"
        yield Problem("model.target", "input", why, "leave model.target out")
        return
    if experiment.data.kind != "image":
        why = f"data.kind is {experiment.data.kind}, and it compares with pictures"
        yield Problem(
            "model.target", "input", why, "have data.decode, or the function of data.train, give the input as label too"
        )
        return
    for key, name in take_a_class(experiment).items():
        reason = "it takes the number of a class, and model.target is input"
        fix = "l2 or sigmoid_bce" if key == "model.loss" else "mse"
        yield Problem(key, name, reason, f"use {fix}, or module:name of your own")


def _learning(experiment: ExperimentConfig) -> Iterator[Problem]:
    """What raymx's own loop alone does, and what that cannot do."""
    training, augment = experiment.training, experiment.data.augment
    if training.loop != "default":
        for key, value, idle in (
            ("training.accumulate", training.accumulate, 1),
            ("training.label_smoothing", training.label_smoothing, 0),
            ("data.augment.mixup", augment.mixup, 0),
            ("data.augment.cutmix", augment.cutmix, 0),
        ):
            if value != idle:
                yield Problem(
                    key, value, "raymx's own loop does that, and training.loop is another one", "leave it out"
                )
        return
    if training.label_smoothing and experiment.model.loss != "softmax_cross_entropy":
        yield Problem(
            "training.label_smoothing",
            training.label_smoothing,
            f"it is of softmax_cross_entropy, and model.loss is {experiment.model.loss}",
            "leave it out, or do it in a loss of your own",
        )
    rows = math.ceil(training.global_batch_size / _most_to_share(experiment))
    if training.accumulate > rows:
        yield Problem(
            "training.accumulate",
            training.accumulate,
            f"a worker has {rows} rows of the global batch of {training.global_batch_size}",
            f"use at most {rows}",
        )


# What works, but is worth a sentence.


def _store_notes(experiment: ExperimentConfig) -> Iterator[str]:
    kind, kvstore = resolved_store_type(experiment), experiment.kvstore
    if not is_dist(experiment) and kvstore.servers > 1:
        yield f"kvstore.servers is {kvstore.servers}, but a store of type {kind} has no servers: none are started."
    if is_dist(experiment) and experiment.precision.dtype == "float64":
        yield f"precision.dtype is float64, but the servers of {kind} hold and update weights in float32."
    if experiment.precision.wire_dtype == "float16" and not is_half_on_wire(experiment):
        why = f"a store of type {kind} sends nothing" if not is_dist(experiment) else "precision.dtype is that already"
        yield f"precision.wire_dtype is float16, but {why}: it changes nothing."


def _length_notes(experiment: ExperimentConfig) -> Iterator[str]:
    epochs, warmup, decay = experiment.training.epochs, warmup_epochs(experiment), experiment.training.decay
    if warmup >= epochs:
        yield (
            f"Warmup lasts {warmup:g} epochs and training {epochs}: the learning rate rises to the end and "
            "is never at its peak for long."
        )
    elif warmup > epochs / 2:
        yield f"Warmup lasts {warmup:g} of {epochs} epochs, which is most of the training."
    late = [f"{epoch:g}" for epoch in decay.epochs if epoch >= epochs]
    if decay.type == "step" and late:
        yield f"training.decay.epochs has {', '.join(late)}, but training ends after epoch {epochs}."


def _batch_notes(experiment: ExperimentConfig) -> Iterator[str]:
    resources, batch, workers = experiment.resources, experiment.training.global_batch_size, _most_to_share(experiment)
    rows = math.ceil(batch / workers)
    devices = resources.gpus_per_worker or resources.cpu_devices_per_worker
    if batch >= workers and isinstance(devices, int) and rows < devices:
        yield (
            f"A worker has {rows} rows of the global batch of {batch} and {devices} devices: some devices have no "
            "sample of their own."
        )
    if resources.on_resize == "keep_per_worker" and not resources.elastic:
        yield (
            f"resources.on_resize is keep_per_worker, but resources.workers is always {resources.max_workers}: it "
            "changes nothing."
        )


def _data_notes(experiment: ExperimentConfig) -> Iterator[str]:
    augment = experiment.data.augment
    if augment.pad and (augment.random_resized_crop or not augment.rand_crop):
        yield f"data.augment.pad is {augment.pad}, but only rand_crop can reach into it: it changes nothing."


def _restart_notes(experiment: ExperimentConfig) -> Iterator[str]:
    """What a run that goes on from a checkpoint, after a failure or with another number of workers, does not have."""
    checkpoint, optimizer = experiment.checkpoint, experiment.training.optimizer
    within_epochs = checkpoint.every_steps is not None or checkpoint.every_s is not None
    if experiment.kvstore.compression.type == "2bit" and (experiment.resources.elastic or within_epochs):
        yield (
            "What 2bit compression has not sent yet lives inside MXNet and is in no checkpoint: each restart or "
            "resize drops it once, less than kvstore.compression.threshold an element where gradients are below "
            "that."
        )
    scale = optimizer.arguments.get("batch_scale")
    if optimizer.name == "lbsgd" and isinstance(scale, int | float) and scale > 1:
        yield (
            f"lbsgd gathers the gradients of {scale:g} updates (batch_scale), and those are in no checkpoint: each "
            "restart or resize drops what is gathered."
        )
