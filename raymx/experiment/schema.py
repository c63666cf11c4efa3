"""The sections and keys of the experiment file, each with its type, default and what a message says is allowed.

Nothing is converted but MXNet's other spellings, and whole numbers where a fraction is allowed: text is not a number
and true is not 1. ``config.py`` reads files into these and turns what pydantic finds into messages.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from raymx.experiment import names, optimizer_values, store_types
from raymx.experiment.lr_rules import LR_RULES
from raymx.experiment.sample_schema import LENGTHS, Input, Label, Pad
from raymx.experiment.sweep_schema import Sweep
from raymx.experiment.values import (
    AUTO_CACHE_BYTES,
    AutoFlag,
    Count,
    EnvVars,
    Flag,
    Fraction,
    NameIn,
    NotNegative,
    Paths,
    PerChannel,
    Positive,
    Reference,
    Section,
    Text,
    as_tuple,
    one_of,
    own_or,
    show,
)
from raymx.text.nearest import did_you_mean


class Head(Section):
    """The output layer that fine-tuning makes anew; all before it begins with the weights of ``model.parameters``."""

    name: Annotated[Text | None, Field(description="the name of a layer of the net, or null")] = None
    """The layer by its structural name, ``output`` in nets of the model zoo; ``null``: no layer is made anew."""
    classes: Annotated[Count | None, Field(description="a whole number, at least 1, or null")] = None
    """Its outputs from now on; ``model.classes`` are then those of the file."""

    @model_validator(mode="after")
    def _both_or_none(self) -> Head:
        if (self.name is None) != (self.classes is None):
            given, other = ("name", "classes") if self.classes is None else ("classes", "name")
            raise ValueError(f"model.head.{given} is given without model.head.{other}: give both, or none")
        return self


class Model(Section):
    """The net and what it is trained and judged by."""

    net: Annotated[str, one_of((names.SYMBOL, *names.MODEL_ZOO), "Gluon's model zoo"), own_or(names.MODEL_ZOO)]
    """A net of Gluon's model zoo such as ``resnet18_v1``, or ``module:function`` of your own, called with ``classes``
    and ``options``; ``symbol``, which need not be given, with ``model.symbol``.
    """
    symbol: Annotated[Text | None, Field(description="a path or URI, or null")] = None
    """The net as a graph in a file, ``NAME-symbol.json`` of ``export`` or of a Module, whose input is ``data``; a loss
    at its end is cut off.
    """
    features: Annotated[Text | None, Field(description="the name of a layer of model.symbol, or null")] = None
    """Take ``symbol`` as far as this layer, such as ``flatten0``, and put a new dense layer on it, of ``classes``."""
    classes: Count
    """Outputs of the net, as its function makes it."""
    options: Annotated[dict[str, Any], Field(description="a mapping of keyword arguments of the net function")] = {}
    """More keyword arguments of the net function."""
    loss: Annotated[str, one_of(names.LOSSES, "raymx"), own_or(names.LOSSES)] = "softmax_cross_entropy"
    """The loss; ``module:name`` for one of your own."""
    metric: Annotated[str, one_of(names.METRICS, "raymx"), own_or(names.METRICS)] = "accuracy"
    """The score beside the loss, also of validation; ``module:name`` for one of your own."""
    target: Literal["labels", "input"] = "labels"
    """What loss and metric compare outputs with: the records' labels, or ``input``, what the net got, as an autoencoder
    does.
    """
    initializer: Annotated[str, NameIn(names.INITIALIZERS)] = "xavier"
    """How weights begin; ``none`` when the net function initializes them."""
    hybridize: AutoFlag = "auto"
    """``auto`` checks on one batch that the hybrid net gives the same, and else runs without, with a warning."""
    parameters: Annotated[Text | None, Field(description="a path or URI, or null")] = None
    """Weights to begin with: a Gluon ``.params`` file, or the folder of a checkpoint or of a run, whose best one it is.
    """
    allow_missing: Flag = False
    """Whether what ``parameters`` lacks begins as ``initializer`` says."""
    ignore_extra: Flag = False
    """Whether ``parameters`` may have more than the net."""
    head: Head = Head()
    """The output layer that is made anew."""
    freeze: Annotated[
        tuple[Text, ...], BeforeValidator(as_tuple), Field(description="a list of patterns such as features.*")
    ] = ()
    """Patterns of structural names, such as ``features.*``: what they match is not trained and does not travel, and
    batch norm uses its statistics as they are. ``head`` is never frozen.
    """
    lr_mult: Annotated[
        dict[str, Positive], Field(description="a mapping of patterns such as features.* to numbers above 0")
    ] = {}
    """Factors of the learning rate by patterns of structural names; of several that match, the last one counts."""

    @property
    def outputs(self) -> int:
        """Outputs of the net that is trained: those of ``head`` where it is made anew."""
        return self.head.classes or self.classes

    @property
    def outputs_key(self) -> str:
        """The key that `outputs` is at."""
        return "model.head.classes" if self.head.classes else "model.classes"

    @property
    def zoo_pretrained(self) -> bool:
        """Whether the net begins with the model zoo's own weights."""
        return self.net in names.MODEL_ZOO and bool(self.options.get("pretrained"))

    @model_validator(mode="before")
    @classmethod
    def _net_of_a_symbol(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("symbol") and "net" not in given:
            return {"net": names.SYMBOL, **given}
        return given

    @model_validator(mode="after")
    def _symbol_or_another(self) -> Model:
        if (self.net == names.SYMBOL) != (self.symbol is not None):
            raise ValueError(
                f"model.net is {self.net} and model.symbol {show(self.symbol)}: give one of them; with model.symbol "
                "model.net is symbol, or left out"
            )
        if self.features and not self.symbol:
            raise ValueError(f"model.features is {self.features}: it is a layer of model.symbol, which is null")
        return self

    @field_validator("options")
    @classmethod
    def _classes_has_a_key(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "classes" in value:
            raise ValueError("the net gets classes from model.classes: give it there")
        return value


class Augment(Section):
    """Random changes of training images, after ``data.resize``. The names are ImageRecordIter's where it has them."""

    rand_crop: Flag = False
    """Crop at a random place, else at the centre; without ``data.resize`` only the longer side has room."""
    random_resized_crop: Flag = False
    """A random part of the picture, scaled to ``data.image_shape``."""
    min_random_area: Fraction = 0.08
    """The least area of that part, as a part of the picture's."""
    max_random_area: Fraction = 1.0
    """The most area of that part, as a part of the picture's."""
    min_aspect_ratio: Positive = 0.75
    """The least width / height of that part."""
    max_aspect_ratio: Positive = 4 / 3
    """The most width / height of that part."""
    rand_mirror: Flag = False
    """Mirror half of the pictures."""
    brightness: Fraction = 0.0
    """The strongest change, as in ``mx.image.CreateAugmenter``."""
    contrast: Fraction = 0.0
    """The strongest change, as in ``mx.image.CreateAugmenter``."""
    saturation: Fraction = 0.0
    """The strongest change, as in ``mx.image.CreateAugmenter``."""
    hue: Annotated[float, Field(ge=0, le=0.5, description="a number from 0 to 0.5")] = 0.0
    """The strongest change, as in ``mx.image.CreateAugmenter``."""
    pca_noise: NotNegative = 0.0
    """Standard deviation of PCA lighting noise."""
    max_rotate_angle: Annotated[float, Field(ge=0, le=180, description="degrees, a number from 0 to 180")] = 0.0
    """The most degrees to either side."""
    pad: Annotated[int, Field(ge=0, description="pixels, a whole number, at least 0")] = 0
    """Pixels added on each side before the crop."""
    fill_value: Annotated[int, Field(ge=0, le=255, description="a whole number from 0 to 255")] = 255
    """The value of the pixels that padding and rotation add."""

    mixup: NotNegative = 0.0
    """Mix each picture with another one of its batch, and its label: the number of a Beta distribution, such as 0.2."""
    cutmix: NotNegative = 0.0
    """Put a box of another picture into each one, and mix labels by its area: a number as of ``mixup``. Where both are
    given each batch has one of them.
    """

    @model_validator(mode="after")
    def _ordered(self) -> Augment:
        problems = [
            f"data.augment.min_{name} is {low:g}, above max_{name}, which is {high:g}"
            for name, low, high in (
                ("random_area", self.min_random_area, self.max_random_area),
                ("aspect_ratio", self.min_aspect_ratio, self.max_aspect_ratio),
            )
            if low > high
        ]
        if self.random_resized_crop and self.rand_crop:
            problems.append("data.augment.rand_crop is true beside random_resized_crop: choose one of them")
        if problems:
            raise ValueError("\n".join(problems))
        return self


class Data(Section):
    """Samples, and how they become numbers: of pictures ``(x - mean) / std`` on pixels of 0 to 255."""

    kind: Literal["image", "array", "custom"] = "image"
    """``image``: encoded pictures; ``array``: NumPy arrays, as ``inputs`` says; ``custom``: what ``decode`` makes of a
    record.
    """
    train: Annotated[Paths | None, Field(description="a path, or a list of paths")] = None
    """The training records: ``.rec`` files, patterns, folders or URIs; or ``module:function`` of your own that gives
    arrays or a Gluon Dataset, of ``kind: array``. A loop of your own with data of its own needs none.
    """
    validation: Annotated[Paths | None, Field(description="a path, a list of paths, or null for none")] = None
    """The validation records, in the same forms."""
    image_shape: Annotated[
        tuple[Literal[1, 3], Count, Count] | None,
        BeforeValidator(as_tuple),
        Field(description="[channels, height, width] with 1 or 3 channels"),
    ] = None
    """What the net gets of each image; of ``kind: image``, which needs it."""
    inputs: Annotated[
        dict[str, Input],
        Field(description="a mapping of names to arrays, such as {tokens: {dtype: int32, shape: [32]}}"),
    ] = {}
    """The arrays of a sample that the net takes, in its order, by name; of ``kind: array`` and ``custom``."""
    labels: Annotated[
        dict[str, Label], Field(description="a mapping of names to labels, such as {boxes: {shape: [8, 5]}}")
    ] = {}
    """The labels of a sample, by name, in place of ``label_width``: loss and metric get one array (rows, ...), or of
    several a tuple.
    """
    decode: Reference = None
    """``module:function`` of your own, of ``kind: custom``: (header, payload, rng) -> the sample's arrays."""
    pad: Pad = Pad()
    """Of samples whose length differs."""
    mean: PerChannel = 0.0
    """The net gets ``(pixel - mean) / std``, pixels of 0 to 255; one number, or one a channel."""
    std: PerChannel = 255.0
    """See ``mean``."""
    order: Literal["global", "chunk", "none"] = "global"
    """``global`` shuffles all records, by seed and epoch; ``chunk`` runs of neighbours, then within windows; ``none``
    keeps the files' order.
    """
    chunk_records: Count = 64
    """Records in a run of neighbours, of ``order: chunk``."""
    window_records: Count = 4096
    """Records in a window that is shuffled, of ``order: chunk``."""
    label_width: Annotated[Count | Literal["auto"], Field(description="a whole number, at least 1, or auto")] = 1
    """Labels a record; ``auto`` is the most that any with an image has, which is said, and fills others up with -1."""
    on_bad_record: Literal["fail", "skip"] = "fail"
    """A bad record is damaged, has no image, or a label that ``model.loss`` cannot use. ``skip`` leaves bad records
    out, counts them and says so, up to ``max_bad``.
    """
    max_bad: Fraction = 0.01
    """The most records that ``skip`` leaves out in an epoch, as a part of the training or the validation records: more
    of them end the run with an error.
    """
    resize: Annotated[Count | None, Field(description="pixels of the short side, or null")] = None
    """Pixels of the short side before the crop; ``null``, or too few: so that ``image_shape`` is just covered."""
    exif: Literal["ignore", "apply"] = "ignore"
    """``ignore`` takes pixels as they are stored; ``apply`` turns them as an EXIF tag says. Training and validation
    alike.
    """
    augment: Augment = Augment()
    """Random changes of training images."""
    transform: Reference = None
    """``module:function`` of your own for training images, in place of ``resize`` and ``augment``."""
    validation_transform: Reference = None
    """``module:function`` of your own for validation images, in place of ``resize``."""
    cpus: Annotated[NotNegative | Literal["auto"], Field(description="a number, at least 0, or auto")] = "auto"
    """A worker's CPUs for reading and decoding; ``auto``: what the cluster has left, 1 to 8."""
    cache: Annotated[
        str,
        Field(
            pattern=r"^(auto|none|[0-9]+(\.[0-9]+)? ?[MG]iB)$",
            description="auto, none, or a size such as 512MiB or 2GiB",
        ),
    ] = "auto"
    """Decoded images that a worker keeps in memory: ``auto`` is 512MiB."""

    @property
    def picture_shape(self) -> tuple[int, int, int]:
        """``image_shape`` of ``kind: image``, whose rules ask for it."""
        assert self.image_shape is not None
        return self.image_shape

    @property
    def input_shapes(self) -> dict[str, tuple[int | None, ...]]:
        """What the net gets of one sample, by name; {} where that is not known, as it need not be to a loop of one's
        own."""
        if self.kind == "image":
            return {} if self.image_shape is None else {"image": self.image_shape}
        lengths: dict[str, tuple[int | None, ...]] = {LENGTHS: ()} if self.lengths_differ and self.pad.lengths else {}
        return {name: each.shape for name, each in self.inputs.items()} | lengths

    @property
    def lengths_differ(self) -> bool:
        """Whether samples are of several lengths, which are filled up."""
        return any(each.shape[:1] == (None,) for each in self.inputs.values())

    @property
    def read_cpus(self) -> float:
        """``cpus`` as a number; ``auto`` counts as 1 until it is known where the run is placed."""
        return 1.0 if self.cpus == "auto" else float(self.cpus)

    @property
    def cache_bytes(self) -> int:
        """Decoded images that a worker may keep in memory, in bytes."""
        if self.cache in ("auto", "none"):
            return AUTO_CACHE_BYTES if self.cache == "auto" else 0
        return int(float(self.cache[:-3]) * (1 << 20 if self.cache[-3] == "M" else 1 << 30))

    @field_validator("inputs", "labels")
    @classmethod
    def _named(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not name.isidentifier() or name == LENGTHS:
                taken = "the input that raymx makes of samples' lengths" if name == LENGTHS else "no name"
                raise ValueError(f"{name} is {taken}: name arrays with letters, digits and _")
        return value

    @field_validator("mean", "std")
    @classmethod
    def _fits_channels(cls, value: float | tuple[float, ...], info: ValidationInfo) -> float | tuple[float, ...]:
        numbers = value if isinstance(value, tuple) else (value,)
        channels = info.data["image_shape"][0] if info.data.get("image_shape") else len(numbers)
        if len(numbers) not in (1, channels):
            raise ValueError(f"give one number, or one for each of the channels in data.image_shape ({channels})")
        if info.field_name == "std" and min(numbers) <= 0:
            raise ValueError("pixels are divided by it: it must be above 0")
        return value


class Optimizer(Section):
    """An MXNet optimizer by name; every other key is a keyword argument of it."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, one_of(tuple(names.OPTIMIZERS), "MXNet 1.9.1"), own_or(tuple(names.OPTIMIZERS))] = "sgd"
    """An MXNet optimizer or ``module:name`` of your own. Its arguments stand beside it: ``{name: sgd, momentum:
    0.9}``.
    """

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments, without ``name``."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _known_arguments(self) -> Optimizer:
        problems = [problem for key, value in self.arguments.items() if (problem := self._problem(key, value))]
        if problems:
            raise ValueError("\n".join(f"training.optimizer.{problem}" for problem in problems))
        return self

    def _problem(self, key: str, value: object) -> str | None:
        if key in names.OPTIMIZER_REFUSED:
            return f"{key} cannot be set: {names.OPTIMIZER_REFUSED[key]}"
        if self.name not in names.OPTIMIZERS:
            return None
        known = (*names.OPTIMIZERS[self.name], *names.OPTIMIZER_COMMON)
        if key not in known:
            return f"{key} is not an argument of {self.name}; it takes {', '.join(known)}{did_you_mean(key, known)}"
        wrong = optimizer_values.problem(key, value)
        return f"{key} is {show(value)}: {wrong}" if wrong else None


class Decay(Section):
    """How the learning rate falls after warmup."""

    type: Literal["none", "cosine", "step", "poly"] = "none"
    """``poly`` falls to ``final_lr`` with ``power``; ``step`` multiplies by ``factor`` after each of ``epochs``."""
    epochs: Annotated[
        tuple[Positive, ...], BeforeValidator(as_tuple), Field(description="a list of epochs (numbers above 0)")
    ] = ()
    """Of ``step``: after which epochs the rate falls."""
    factor: Positive = 0.1
    """Of ``step``: what the rate is multiplied by."""
    power: Positive = 2.0
    """Of ``poly``: its exponent."""
    final_lr: NotNegative = 0.0
    """Of ``poly`` and ``cosine``: the rate at the end."""


class Training(Section):
    """How long, with which batch, optimizer and learning rate."""

    epochs: Count = 1
    """Passes over the training records."""
    global_batch_size: Count = 128
    """Samples in one update, over all workers and their devices."""
    optimizer: Optimizer = Optimizer()
    """What makes an update of gradients."""
    base_lr: Positive = 0.05
    """The learning rate at ``base_batch_size``."""
    base_batch_size: Annotated[
        Count | None, Field(description="a whole number, at least 1, or null for global_batch_size")
    ] = None
    """The batch that ``base_lr`` is for; ``null`` is ``global_batch_size``."""
    lr_rule: Annotated[str, NameIn(LR_RULES)] = "linear"
    """How the rate grows with ``global_batch_size / base_batch_size``."""
    warmup_epochs: NotNegative = 0.0
    """The rate rises linearly from 0; lengthened by the rule's factor when that is above 1."""
    warmup_lengthen: Flag = True
    """Whether the rule's factor lengthens the warmup."""
    decay: Decay = Decay()
    """How the rate falls after warmup."""
    async_lr_factor: Positive = 0.75
    """Multiplies the rate of async types, whose rule takes one worker's part of the batch."""
    async_warmup_factor: Annotated[float, Field(ge=1, description="a number, at least 1")] = 2.0
    """Multiplies the warmup of async types."""
    seed: Annotated[int, Field(ge=0, lt=2**31, description="a whole number from 0 to 2147483647")] = 1
    """Of the weights and of the order of records."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1, description="a number, at least 0, below 1")] = 0.0
    """Of ``softmax_cross_entropy`` in training: so much of each label is shared out evenly over all classes."""
    accumulate: Count = 1
    """Each worker computes its rows of a batch in so many turns, which takes less memory; the update is the same."""
    loop: Annotated[str, one_of(("default",), "raymx"), own_or(("default",))] = "default"
    """The training loop; ``module:function`` for one of your own."""


class Precision(Section):
    """The type that the net computes in, that of gradients and weights on their way, and the scale of the loss."""

    dtype: Literal["float32", "float64", "float16", "amp_float16", "amp_bfloat16"] = "float32"
    """What the net computes in."""
    wire_dtype: Literal["same", "float16"] = "same"
    """What travels between workers and servers; ``same`` as the weights."""
    loss_scale: Annotated[
        Positive | Literal["auto", "none", "dynamic"], Field(description="auto, none, dynamic, or a number above 0")
    ] = "auto"
    """What the loss is multiplied by; ``auto``: by ``dtype``, and by where the optimizer runs."""

    @property
    def amp(self) -> str:
        """What AMP casts to: float16, bfloat16, or nothing where it is not used."""
        return self.dtype.removeprefix("amp_") if self.dtype.startswith("amp_") else ""

    @property
    def net_dtype(self) -> str:
        """The type of the net's parameters and inputs: float32 under AMP, which casts inside."""
        return "float32" if self.amp else self.dtype


class Compression(Section):
    """Gradient compression on the way to the servers (or between devices)."""

    type: Literal["none", "2bit"] = "none"
    """``2bit``: a push has two bits an element."""
    threshold: Positive = 0.5
    """What an element of the summed gradient is compared with."""

    @field_validator("type", mode="before")
    @classmethod
    def _not_in_this_mxnet(cls, value: object) -> object:
        if value == "1bit":
            raise ValueError("MXNet 1.9.1 has no 1bit compression; use 2bit or none")
        return value


class Env(Section):
    """Environment variables for all roles or for one; a role's own win over ``all``."""

    all: EnvVars = {}
    """For all roles."""
    scheduler: EnvVars = {}
    """For the KVStore scheduler."""
    server: EnvVars = {}
    """For the servers."""
    worker: EnvVars = {}
    """For the workers."""


class KVStore(Section):
    """Which store, how many servers and where, and what travels."""

    type: Annotated[str, NameIn(store_types.STORE_TYPES, store_types.AUTO)] = store_types.AUTO
    """Where gradients are added up; ``auto`` is ``device`` for one worker, ``dist_sync`` for more."""
    servers: Count = 1
    """Servers of the ``dist_*`` types."""
    cpus_per_server: Positive = 1.0
    """CPUs that each server reserves."""
    server_placement: Literal["with_workers", "dedicated"] = "with_workers"
    """``with_workers``: in the workers' bundles; ``dedicated`` gives each its own."""
    compression: Compression = Compression()
    """Gradient compression on the way to the servers."""
    update_on_kvstore: AutoFlag = "auto"
    """``auto`` is ``true``: the optimizer runs in the store; ``false``: in every worker."""
    unix_sockets: AutoFlag = "auto"
    """Unix sockets in place of TCP ports; ``auto``: when all roles are on one node."""
    interface: Annotated[Text | None, Field(description="the name of a network interface, or null")] = None
    """The network interface of the roles; ``null`` takes each node's address in Ray."""
    env: Env = Env()
    """``DMLC_*``, ``PS_*``, ``MXNET_*`` and ``OMP_*`` variables of the roles' processes."""

    @field_validator("type", mode="before")
    @classmethod
    def _spelling(cls, value: object) -> object:
        return store_types.spelled(value) if isinstance(value, str) else value


class WorkerRange(Section):
    """How many workers an elastic run may have: it starts with ``min`` and grows to ``max``."""

    min: Count
    """The fewest workers, with which the run starts."""
    max: Count
    """The most workers, to which it grows."""

    @model_validator(mode="after")
    def _ordered(self) -> WorkerRange:
        if self.min > self.max:
            raise ValueError("max must be at least min")
        return self


def _number_or_range(value: object) -> str:
    return "range" if isinstance(value, dict | WorkerRange) else "number"


def _range_of_one(value: int | WorkerRange) -> int | WorkerRange:
    return value.min if isinstance(value, WorkerRange) and value.min == value.max else value


class Resources(Section):
    """Workers, and the CPUs and GPUs of each."""

    workers: Annotated[
        Annotated[Count, Tag("number")] | Annotated[WorkerRange, Tag("range")],
        Discriminator(_number_or_range),
        AfterValidator(_range_of_one),
        Field(description="a whole number, at least 1, or {min: 2, max: 8} for an elastic run"),
    ] = 1
    """Processes that compute gradients; a range makes an elastic run."""
    standby: AutoFlag = "auto"
    """A process in waiting for every role, which starts when nothing else wants the cores. ``auto``: in single runs,
    while three minutes or more are left to train, where they take at most a quarter of a node's memory.
    """
    on_resize: Literal["keep_global", "keep_per_worker"] = "keep_global"
    """What another number of workers leaves alone: ``global_batch_size``, or with ``keep_per_worker`` each worker's
    part of it.
    """
    resize_cooldown_s: NotNegative = 30.0
    """Seconds from a start or a change of size until the run may grow."""
    cpus_per_worker: Count = 1
    """CPUs of each worker; also its number of OpenMP threads."""
    gpus_per_worker: Annotated[
        Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)] | Literal["auto"],
        Field(description="a whole number, at least 0, a part of one such as 0.5, or auto"),
    ] = 0
    """GPUs of each worker, which splits its rows over them; below 1, such as 0.5, workers share one; ``auto`` takes
    what there is.
    """
    cpu_devices_per_worker: Count = 1
    """Splits a worker's rows over ``cpu(0)``, ``cpu(1)``, ..."""

    @property
    def min_workers(self) -> int:
        """The workers that a run starts with, and never has fewer."""
        return self.workers.min if isinstance(self.workers, WorkerRange) else self.workers

    @property
    def max_workers(self) -> int:
        """The most workers that a run ever has."""
        return self.workers.max if isinstance(self.workers, WorkerRange) else self.workers

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change within a run."""
        return self.max_workers > self.min_workers

    @property
    def workers_in_words(self) -> str:
        """``2 workers``, ``2 to 8 workers``."""
        if self.elastic:
            return f"{self.min_workers} to {self.max_workers} workers"
        return f"{self.max_workers} worker{'' if self.max_workers == 1 else 's'}"


class Failures(Section):
    """When a run is given up: lost processes and nodes do not count, and a run goes on without them."""

    max: Annotated[int, Field(ge=0, description="a whole number, at least 0")] = 3
    """So often a run goes on after an error of its own code, or a stall; lost processes and nodes do not count."""
    nan: Literal["stop", "go_on"] = "stop"
    """What follows from an epoch whose loss is NaN or infinite: ``stop`` ends the trial, and a single run has failed
    then (exit code 1); with ``go_on`` it trains on. Such an epoch is never the best.
    """
    stall_timeout_s: Positive = 600.0
    """Seconds without a batch or a report after which a loop counts as stalled."""


class Report(Section):
    """What is shown while training."""

    disp_batches: Count = 20
    """Batches from one loss in the live line to the next."""


MOST_TRACED = 200  # steps: the operators of a large net are thousands a step


class Profile(Section):
    """A trace of some steps, with all roles on one clock: see `python -m raymx.run --profile`."""

    steps: Annotated[
        tuple[Count, Count] | None,
        BeforeValidator(as_tuple),
        Field(description="the first and the last step, such as [20, 30], counted from 1, or null"),
    ] = None
    """The steps of a trial that are traced, counted from 1 where its workers begin; ``null``: none. They are a little
    slower, since MXNet notes each operator.
    """
    workers: Annotated[
        Literal["all"] | Count | tuple[Annotated[int, Field(ge=0)], ...],
        BeforeValidator(as_tuple),
        Field(description="all, a number of workers, or a list of ranks such as [0, 1]"),
    ] = "all"
    """Whose operators, records and waits are traced: ``all``, so many workers from rank 0 on, or a list of ranks."""

    @field_validator("steps")
    @classmethod
    def _a_window(cls, steps: tuple[int, int] | None) -> tuple[int, int] | None:
        if steps and not 0 <= steps[1] - steps[0] < MOST_TRACED:
            raise ValueError(f"the last step must not come before the first, and at most {MOST_TRACED} can be traced")
        return steps

    def is_of(self, rank: int) -> bool:
        """Whether this worker is traced."""
        ranks = range(self.workers) if isinstance(self.workers, int) else self.workers
        return self.steps is not None and (ranks == "all" or rank in ranks)


class Tracking(Section):
    """Experiment trackers that get every row: MLflow's URI and Weights & Biases' project. TensorBoard is always on."""

    mlflow: Annotated[
        Text | None, Field(description="a tracking URI such as https://HOST or sqlite:///FILE.db, or null")
    ] = None
    """MLflow's tracking URI."""
    wandb: Annotated[Text | None, Field(description="the name of a project, or null")] = None
    """A project of Weights & Biases."""


class Checkpoint(Section):
    """Which checkpoints stay: the last, and the ``keep_best`` with the best ``metric``.

    ``every_steps`` and ``every_s`` are for those within an epoch, which stay until the next one is there.
    """

    every_steps: Annotated[Count | None, Field(description="a whole number, at least 1, or null")] = 200
    """Steps within an epoch from one checkpoint to the next; ``null``: not by steps."""
    every_s: Annotated[Positive | None, Field(description="a number above 0, or null")] = 300.0
    """Seconds within an epoch from one checkpoint to the next, whichever comes first; ``null``: not by seconds."""
    keep_best: Count = 2
    """So many of the best checkpoints stay, and the last."""
    metric: Annotated[Text | None, Field(description="the name of a reported metric, or null")] = None
    """What is best; ``null`` is the validation metric, or ``train_loss`` with no validation data."""
    mode: Literal["max", "min"] | None = None
    """``null`` is ``min`` for losses and ``mse``, else ``max``."""


class ExperimentConfig(Section):
    """A whole experiment file. ``directory`` is the file's absolute folder, and no key of the file."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
            description=("letters, digits, _, - and ., beginning with a letter or digit"),
        ),
    ]
    """Begins the name of the run's folder."""
    model: Model
    data: Data = Data()
    training: Training = Training()
    precision: Precision = Precision()
    kvstore: KVStore = KVStore()
    resources: Resources = Resources()
    failures: Failures = Failures()
    report: Report = Report()
    profile: Profile = Profile()
    tracking: Tracking = Tracking()
    checkpoint: Checkpoint = Checkpoint()
    sweep: Sweep = Sweep()
    directory: str = Field(default="", exclude=True)

    def to_dict(self) -> dict[str, Any]:
        """Plain data (YAML, JSON), without ``directory``; ``parse_experiment`` of it gives an equal experiment."""
        return self.model_dump(mode="json")

    def resolve(self, path: str) -> str:
        """``path`` relative to the experiment file's folder; an absolute path or a URI (s3://...) as it is."""
        return path if "://" in path else os.path.normpath(os.path.join(self.directory, os.path.expanduser(path)))
