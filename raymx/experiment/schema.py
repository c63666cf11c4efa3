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

from raymx.experiment import names, store_types
from raymx.experiment.lr_rules import LR_RULES
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


class Model(Section):
    """The net and what it is trained and judged by."""

    net: Annotated[str, one_of(names.MODEL_ZOO, "Gluon's model zoo"), own_or(names.MODEL_ZOO)]
    classes: Count
    options: Annotated[dict[str, Any], Field(description="a mapping of keyword arguments of the net function")] = {}
    loss: Annotated[str, one_of(names.LOSSES, "raymx"), own_or(names.LOSSES)] = "softmax_cross_entropy"
    metric: Annotated[str, one_of(names.METRICS, "raymx"), own_or(names.METRICS)] = "accuracy"
    initializer: Annotated[str, NameIn(names.INITIALIZERS)] = "xavier"
    hybridize: AutoFlag = "auto"

    @field_validator("options")
    @classmethod
    def _classes_has_a_key(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "classes" in value:
            raise ValueError("the net gets classes from model.classes: give it there")
        return value


class Augment(Section):
    """Random changes of training images, after ``data.resize``. The names are ImageRecordIter's where it has them."""

    rand_crop: Flag = False
    random_resized_crop: Flag = False
    min_random_area: Fraction = 0.08
    max_random_area: Fraction = 1.0
    min_aspect_ratio: Positive = 0.75
    max_aspect_ratio: Positive = 4 / 3
    rand_mirror: Flag = False
    brightness: Fraction = 0.0
    contrast: Fraction = 0.0
    saturation: Fraction = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5, description="a number from 0 to 0.5")] = 0.0
    pca_noise: NotNegative = 0.0
    max_rotate_angle: Annotated[float, Field(ge=0, le=180, description="degrees, a number from 0 to 180")] = 0.0
    pad: Annotated[int, Field(ge=0, description="pixels, a whole number, at least 0")] = 0
    fill_value: Annotated[int, Field(ge=0, le=255, description="a whole number from 0 to 255")] = 255

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
    """RecordIO files and how their images become numbers: ``(x - mean) / std`` on pixels of 0 to 255."""

    train: Paths
    validation: Annotated[Paths | None, Field(description="a path, a list of paths, or null for none")] = None
    image_shape: Annotated[
        tuple[Literal[1, 3], Count, Count],
        BeforeValidator(as_tuple),
        Field(description="[channels, height, width] with 1 or 3 channels"),
    ]
    mean: PerChannel = 0.0
    std: PerChannel = 255.0
    order: Literal["global", "chunk", "none"] = "global"
    chunk_records: Count = 64
    window_records: Count = 4096
    label_width: Annotated[Count | Literal["auto"], Field(description="a whole number, at least 1, or auto")] = 1
    on_bad_record: Literal["fail", "skip"] = "fail"
    resize: Annotated[Count | None, Field(description="pixels of the short side, or null")] = None
    exif: Literal["ignore", "apply"] = "ignore"
    augment: Augment = Augment()
    transform: Reference = None
    validation_transform: Reference = None
    cpus: Annotated[NotNegative | Literal["auto"], Field(description="a number, at least 0, or auto")] = "auto"
    cache: Annotated[
        str,
        Field(
            pattern=r"^(auto|none|[0-9]+(\.[0-9]+)? ?[MG]iB)$",
            description="auto, none, or a size such as 512MiB or 2GiB",
        ),
    ] = "auto"

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

    @field_validator("mean", "std")
    @classmethod
    def _fits_channels(cls, value: float | tuple[float, ...], info: ValidationInfo) -> float | tuple[float, ...]:
        numbers = value if isinstance(value, tuple) else (value,)
        channels = info.data["image_shape"][0] if "image_shape" in info.data else len(numbers)
        if len(numbers) not in (1, channels):
            raise ValueError(f"give one number, or one for each of the channels in data.image_shape ({channels})")
        if info.field_name == "std" and min(numbers) <= 0:
            raise ValueError("pixels are divided by it: it must be above 0")
        return value


class Optimizer(Section):
    """An MXNet optimizer by name; every other key is a keyword argument of it."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, one_of(tuple(names.OPTIMIZERS), "MXNet 1.9.1"), own_or(tuple(names.OPTIMIZERS))] = "sgd"

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
        number = value is None or (isinstance(value, int | float) and abs(value) < float("inf"))
        return None if number or key == "warmup_strategy" else f"{key} is {show(value)}: it must be a number"


class Decay(Section):
    """How the learning rate falls after warmup."""

    type: Literal["none", "cosine", "step", "poly"] = "none"
    epochs: Annotated[
        tuple[Positive, ...], BeforeValidator(as_tuple), Field(description="a list of epochs (numbers above 0)")
    ] = ()
    factor: Positive = 0.1
    power: Positive = 2.0
    final_lr: NotNegative = 0.0


class Training(Section):
    """How long, with which batch, optimizer and learning rate."""

    epochs: Count = 1
    global_batch_size: Count = 128
    optimizer: Optimizer = Optimizer()
    base_lr: Positive = 0.05
    base_batch_size: Annotated[
        Count | None, Field(description="a whole number, at least 1, or null for global_batch_size")
    ] = None
    lr_rule: Annotated[str, NameIn(LR_RULES)] = "linear"
    warmup_epochs: NotNegative = 0.0
    warmup_lengthen: Flag = True
    decay: Decay = Decay()
    async_lr_factor: Positive = 0.75
    async_warmup_factor: Annotated[float, Field(ge=1, description="a number, at least 1")] = 2.0
    seed: Annotated[int, Field(ge=0, lt=2**31, description="a whole number from 0 to 2147483647")] = 1
    loop: Annotated[str, one_of(("default",), "raymx"), own_or(("default",))] = "default"


class Precision(Section):
    """The type that the net computes in, that of gradients and weights on their way, and the scale of the loss."""

    dtype: Literal["float32", "float64", "float16", "amp_float16", "amp_bfloat16"] = "float32"
    wire_dtype: Literal["same", "float16"] = "same"
    loss_scale: Annotated[
        Positive | Literal["auto", "none", "dynamic"], Field(description="auto, none, dynamic, or a number above 0")
    ] = "auto"

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
    threshold: Positive = 0.5

    @field_validator("type", mode="before")
    @classmethod
    def _not_in_this_mxnet(cls, value: object) -> object:
        if value == "1bit":
            raise ValueError("MXNet 1.9.1 has no 1bit compression; use 2bit or none")
        return value


class Env(Section):
    """Environment variables for all roles or for one; a role's own win over ``all``."""

    all: EnvVars = {}
    scheduler: EnvVars = {}
    server: EnvVars = {}
    worker: EnvVars = {}


class KVStore(Section):
    """Which store, how many servers and where, and what travels."""

    type: Annotated[str, NameIn(store_types.STORE_TYPES, store_types.AUTO)] = store_types.AUTO
    servers: Count = 1
    cpus_per_server: Positive = 1.0
    server_placement: Literal["with_workers", "dedicated"] = "with_workers"
    compression: Compression = Compression()
    update_on_kvstore: AutoFlag = "auto"
    unix_sockets: AutoFlag = "auto"
    interface: Annotated[Text | None, Field(description="the name of a network interface, or null")] = None
    env: Env = Env()

    @field_validator("type", mode="before")
    @classmethod
    def _spelling(cls, value: object) -> object:
        return store_types.spelled(value) if isinstance(value, str) else value


class WorkerRange(Section):
    """How many workers an elastic run may have: it starts with ``min`` and grows to ``max``."""

    min: Count
    max: Count

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
    standby: AutoFlag = "auto"
    on_resize: Literal["keep_global", "keep_per_worker"] = "keep_global"
    resize_cooldown_s: NotNegative = 30.0
    cpus_per_worker: Count = 1
    gpus_per_worker: Annotated[
        Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)] | Literal["auto"],
        Field(description="a whole number, at least 0, a part of one such as 0.5, or auto"),
    ] = 0
    cpu_devices_per_worker: Count = 1

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
    stall_timeout_s: Positive = 600.0


class Report(Section):
    """What is shown while training."""

    disp_batches: Count = 20


class Tracking(Section):
    """Experiment trackers that get every row: MLflow's URI and Weights & Biases' project. TensorBoard is always on."""

    mlflow: Annotated[
        Text | None, Field(description="a tracking URI such as https://HOST or sqlite:///FILE.db, or null")
    ] = None
    wandb: Annotated[Text | None, Field(description="the name of a project, or null")] = None


class Checkpoint(Section):
    """Which checkpoints stay: the last, and the ``keep_best`` with the best ``metric``.

    ``every_steps`` and ``every_s`` are for those within an epoch, which stay until the next one is there.
    """

    every_steps: Annotated[Count | None, Field(description="a whole number, at least 1, or null")] = 200
    every_s: Annotated[Positive | None, Field(description="a number above 0, or null")] = 300.0
    keep_best: Count = 2
    metric: Annotated[Text | None, Field(description="the name of a reported metric, or null")] = None
    mode: Literal["max", "min"] | None = None


class ExperimentConfig(Section):
    """A whole experiment file. ``directory`` is the file's absolute folder, and no key of the file."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
            description=("letters, digits, _, - and ., beginning with a letter or digit"),
        ),
    ]
    model: Model
    data: Data
    training: Training = Training()
    precision: Precision = Precision()
    kvstore: KVStore = KVStore()
    resources: Resources = Resources()
    failures: Failures = Failures()
    report: Report = Report()
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
