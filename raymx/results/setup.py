"""What of an experiment decides how a step's time can be made shorter. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from raymx.experiment import rules
from raymx.experiment.loading import ExperimentConfig


@dataclass(frozen=True)
class Setup:
    """By default of an experiment of which nothing is known."""

    halves_bytes: bool = False  # float16 on the wire can be had
    servers: int = 0  # 0 without a dist store
    server_cpus: float = 1.0  # of each
    updates_on_servers: bool = False
    read_cpus: float | None = None  # of each worker; None where it was left to raymx
    repeats: bool = True  # a record gives the same pixels in every epoch, so that data.cache can hold it
    transform: str = ""  # the user's
    augments: tuple[str, ...] = ()  # the keys of data.augment that change pixels
    gpus: bool = False
    in_step: bool = True  # each update needs all workers

    @classmethod
    def of(cls, experiment: ExperimentConfig) -> Setup:
        data, kvstore = experiment.data, experiment.kvstore
        distributed = rules.is_dist(experiment)
        augments = tuple(data.augment.model_dump(exclude={"rand_mirror"}, exclude_defaults=True))
        return cls(
            halves_bytes=rules.sends_float32(experiment),
            servers=kvstore.servers if distributed else 0,
            server_cpus=kvstore.cpus_per_server,
            updates_on_servers=distributed and rules.update_on_kvstore(experiment),
            read_cpus=None if data.cpus == "auto" else float(data.cpus),
            repeats=not augments and data.transform is None,
            transform=data.transform or "",
            augments=augments,
            gpus=bool(experiment.resources.gpus_per_worker),
            in_step=not rules.is_async(experiment),
        )
