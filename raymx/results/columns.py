"""Every column of a row of results: its unit, what it means and where it is. Pure.

A row is what `raymx.results.rows` makes of the workers' reports, with what the trial and Tune add. Who leaves columns
out (tables of a terminal, trackers, reports) asks here for which.
"""

from __future__ import annotations

from dataclasses import dataclass

METRIC = "METRIC"
"""Stands in a column's name for the name of ``model.metric``."""


@dataclass(frozen=True)
class Column:
    """``when`` says in which rows it is, beside those of all epochs that were done.

    ``brief``: shown in a terminal's table. ``tracked``: sent to trackers, where it is a number. ``client``: in the rows
    that ``Run.results`` gives.
    """

    name: str
    unit: str
    meaning: str
    when: str = "every epoch that was done"
    brief: bool = True
    tracked: bool = True
    client: bool = True


OWN = (
    Column(
        "epoch",
        "epochs",
        "Epochs done; a fraction in the row of an interrupted epoch, which repeats the last validation figures and has "
        "no others.",
        "every row",
    ),
    Column("train_loss", "", "Mean over the epoch's training records, while the weights changed.", "raymx's own loop"),
    Column(f"train_{METRIC}", "", "The same of ``model.metric``, as ``train_accuracy``.", "raymx's own loop"),
    Column("train_samples", "records", "Records in these means.", "raymx's own loop", brief=False),
    Column("validation_loss", "", "Mean over all validation records.", "with ``data.validation``"),
    Column(
        f"validation_{METRIC}",
        "",
        "The same of ``model.metric``, as ``validation_accuracy``.",
        "with ``data.validation``",
    ),
    Column("validation_samples", "records", "Records in these means.", "with ``data.validation``", brief=False),
    Column("num_workers", "workers", "Workers, when the row was made.", "every row"),
    Column(
        "restarts",
        "times",
        "How often the trial went on after a failure, since its process started.",
        brief=False,
    ),
    Column(
        "samples_per_sec",
        "samples/s",
        "Training samples a second, all workers together, data included, validation and the first step not.",
    ),
    Column("worker_samples_per_sec", "samples/s", "Each worker's own, a list.", brief=False),
    Column(
        "form_s",
        "seconds",
        "To form the KVStore, of all times so far; the start of new processes and the wait after a failure included.",
        brief=False,
    ),
    Column(
        "first_step_s",
        "seconds",
        "From asking for the first batch to the end of the first step, slowest worker.",
        brief=False,
    ),
    Column(
        "first_batch_s",
        "seconds",
        "Of it, until the first batch was there; the rest is memory, the choice of kernels, and model.hybridize.",
        brief=False,
    ),
    Column(
        "compute_fraction",
        "part, 0 to 1",
        "Part of the steps' time in which MXNet computed; this and the next five add to 1. Of the worker in the middle "
        "by this part; of short steps one in several is measured.",
        "two steps or more in a row",
    ),
    Column(
        "communication_fraction",
        "part, 0 to 1",
        "Part in which nothing could be computed, since gradients and weights were under way or the servers updated.",
        "two steps or more in a row",
    ),
    Column(
        "data_wait_fraction",
        "part, 0 to 1",
        "Part in which nothing was left to compute, since the batch was not there: what a perfect input would save.",
        "two steps or more in a row",
    ),
    Column(
        "straggler_fraction",
        "part, 0 to 1",
        "Part in which a sync worker waited for the one whose gradients come last.",
        "two steps or more in a row",
        brief=False,
    ),
    Column(
        "checkpoint_fraction",
        "part, 0 to 1",
        "Part in which nothing was left to compute, since the loop was held for a checkpoint within the epoch.",
        "two steps or more in a row",
        brief=False,
    ),
    Column(
        "loop_fraction",
        "part, 0 to 1",
        "Part in which nothing was left to compute, since the loop did something else.",
        "two steps or more in a row",
        brief=False,
    ),
    Column(
        "host_bound_fraction",
        "part, 0 to 1",
        "Of the part of computing: in steps whose operators were computed as fast as Python queued them.",
        "two steps or more in a row",
        brief=False,
    ),
    Column(
        "queueing_fraction",
        "part, 0 to 1",
        "Part in which Python queued forward and backward passes while nothing else held the step up: what a "
        "hybridized net would save. By one to three steps that were held until all of them was queued.",
        "where Python was still queueing for most of the computing of the epoch before",
        brief=False,
    ),
    Column(
        "straggler",
        "rank",
        "The worker whose gradients come last in most steps.",
        "sync workers of which one is",
        brief=False,
    ),
    Column(
        "straggler_cause",
        "",
        "What takes that worker longer: its ``data``, ``compute``, ``loop`` or ``communication``, whose time is then "
        "in ``communication_fraction``; empty where none explains 80 % of it.",
        "sync workers of which one is the last",
        brief=False,
    ),
    Column(
        "host_waits",
        "[line, seconds, calls]",
        "The lines of the user's code that waited longest for MXNet's engine while rank 0 trained, a list: "
        "``loop.py:41 asscalar()``.",
        brief=False,
        tracked=False,
    ),
    Column(
        "sync_fraction",
        "part, 0 to 1",
        "Part of the training time in which lines of the user's code waited for MXNet's engine, of the worker that did "
        "most; what that costs is in ``loop_fraction``.",
        brief=False,
    ),
    Column(
        "checkpoint_s",
        "seconds",
        "For which checkpoints within the epoch held the loops since the last row, of the worker held longest.",
        brief=False,
    ),
    Column(
        "kept_batches_fraction",
        "part, 0 to 1",
        "Part of the batches that came out of ``data.cache``.",
        "batches of ``ctx.train_batches``",
        brief=False,
    ),
    Column(
        "own_batches_fraction",
        "part, 0 to 1",
        "Part of the batches that workers decoded themselves, as at the start and where the data are small: no CPU of "
        "``data.cpus`` makes these faster.",
        "batches of ``ctx.train_batches``",
        brief=False,
    ),
    Column(
        "read_cpus_used",
        "CPUs",
        "Seconds a second for which the read tasks of a worker were busy, waits for storage included, of the busiest: "
        "at ``data.cpus`` they are at their limit.",
        "batches of ``ctx.train_batches``",
        brief=False,
    ),
    Column(
        "input_stages",
        "[stage, seconds]",
        "What making the batches took in all workers and read tasks, a list: ``read`` is bytes from the files, "
        "``decode`` pixels with ``data.resize`` and ``data.augment``, ``transform`` the user's, ``to devices`` the "
        "worker's own thread.",
        "batches of ``ctx.train_batches``",
        brief=False,
        tracked=False,
    ),
    Column(
        "operators",
        "[name, calls, seconds]",
        "MXNet's operators in a traced step of a worker, a list, the longest first.",
        "in the row that ends a trace (``profile.steps``)",
        brief=False,
        tracked=False,
    ),
    Column(
        "object_store_mib",
        "MiB",
        "The most that this run's reading kept in a node's object store since the last row, by Ray Data's own count; "
        "0 where no read task ran.",
        brief=False,
    ),
    Column("worker_rss_peak_mib", "MiB", "Most memory of a worker's process since it started.", brief=False),
    Column(
        "node_memory_fraction",
        "part, 0 to 1",
        "Part of a worker's node's memory that was in use when the row was made, by whatever process, of the fullest "
        "node: at 0.95 Ray ends processes.",
        brief=False,
    ),
    Column(
        "gpu_memory_peak_mib",
        "MiB",
        "The most memory in use on one of the workers' GPUs since the last row, by whatever process, looked at twice a "
        "second.",
        "GPUs, with the package ``nvidia-ml-py``",
        brief=False,
    ),
    Column(
        "gpu_memory_fraction",
        "part, 0 to 1",
        "The same as a part of that GPU's memory.",
        "GPUs, with the package ``nvidia-ml-py``",
        brief=False,
    ),
    Column(
        "gpu_utilization",
        "part, 0 to 1",
        "Part of the time in which the workers' GPUs computed anything, the mean of all, by NVIDIA's NVML.",
        "GPUs, with the package ``nvidia-ml-py``",
        brief=False,
    ),
    Column("server_rss_peak_mib", "MiB", "The same of a server's.", "stores with servers", brief=False),
    Column(
        "server_cpus_used",
        "CPUs",
        "CPU seconds a second that the busiest server used since the last row: at ``kvstore.cpus_per_server`` it is at "
        "its limit.",
        "stores with servers",
        brief=False,
    ),
    Column(
        "server_update_fraction",
        "part, 0 to 1",
        "Part of the training time that the busiest server's updates took, from the call of the optimizer to the new "
        "weight. Workers may compute meanwhile.",
        "servers with the optimizer",
        brief=False,
    ),
    Column(
        "server_update_s",
        "seconds",
        "The same of each server, by rank, a list.",
        "servers with the optimizer",
        brief=False,
        tracked=False,
    ),
    Column(
        "server_updates",
        "updates",
        "Updates that each server made since the last row, by rank, a list: one a key, or slice of one, and step.",
        "servers with the optimizer",
        brief=False,
        tracked=False,
    ),
    Column(
        "server_bytes_imbalance",
        "times",
        "Elements that lie on the most loaded server, as a multiple of the mean: 1 is even.",
        "stores with servers",
        brief=False,
    ),
    Column(
        "server_largest_array",
        "[rank, name, elements]",
        "That server, and the largest array that lies whole on it: below MXNET_KVSTORE_BIGARRAY_BOUND none is cut.",
        "several servers, where one holds a whole array",
        brief=False,
        tracked=False,
    ),
    Column("learning_rate", "", "Of the last update, read where the optimizer is."),
    Column(
        "bytes_pushed",
        "bytes a step",
        "Payload, all workers together; 0 for ``local`` and ``device``.",
        brief=False,
    ),
    Column(
        "bytes_pulled",
        "bytes a step",
        "Payload, all workers together; 0 for ``local`` and ``device``.",
        brief=False,
    ),
    Column("bad_records", "records", "Skipped since the last row, all workers together.", brief=False),
    Column("steps", "steps", "Steps that ``samples_per_sec`` counts.", brief=False),
    Column("train_s", "seconds", "Seconds that ``samples_per_sec`` counts."),
    Column("nodes", "", "Addresses of the nodes that the trial's roles are on.", brief=False),
    Column("loss_scale", "", "The loss scale now, of async workers the smallest.", "with a loss scale"),
    Column("skipped_steps", "steps", "Skipped since the last row, of all.", "with a loss scale"),
)
"""raymx's own columns. A loop of the user's has its own metrics in place of the means."""

TUNE = (
    Column("config", "", "The trial's settings.", "every row", client=False),
    Column("trial_id", "", "The trial's id.", "every row"),
    Column("training_iteration", "rows", "Rows so far.", "every row", tracked=False, client=False),
    Column("time_total_s", "seconds", "Spent in the trial's steps, restarts included.", "every row", client=False),
    Column("time_this_iter_s", "seconds", "Spent in the step that made this row.", "every row", client=False),
    Column(
        "time_since_restore",
        "seconds",
        "Since the trial's process started.",
        "every row",
        tracked=False,
        client=False,
    ),
    Column(
        "iterations_since_restore",
        "rows",
        "Rows since the trial's process started.",
        "every row",
        tracked=False,
        client=False,
    ),
    Column("timestamp", "unix seconds", "When the row was made.", "every row", tracked=False, client=False),
    Column("date", "", "The same as text.", "every row", client=False),
    Column("done", "", "Whether it is the trial's last row.", "every row", client=False),
    Column("should_checkpoint", "", "Whether Tune was asked for a checkpoint.", "an interrupted epoch", client=False),
    Column("pid", "", "Process of the trial.", "every row", tracked=False, client=False),
    Column("hostname", "", "Host of that process.", "every row", client=False),
    Column("node_ip", "", "Address of that host.", "every row", client=False),
    Column("experiment_tag", "", "Tune's name of the trial's place in the sweep.", "Tune's choice", client=False),
    Column("checkpoint_dir_name", "", "Folder of the row's checkpoint.", "Tune's choice", brief=False),
)
"""Columns that Tune adds to every row."""

EARLIER = ("experiment", "trial_name", "experiment_id", "hist_stats", "auto_garbage_collect")
"""Columns of Tune's own in rows of other versions."""

WHOLE_EXPERIMENT = ("config", "experiment")
"""Columns with the trial's settings, which are in other files too."""

NOT_TRACKED = tuple(column.name for column in (*OWN, *TUNE) if not column.tracked)
NOT_BRIEF = tuple(column.name for column in (*OWN, *TUNE) if not column.brief)
NOT_FOR_CLIENTS = (*(column.name for column in TUNE if not column.client), *EARLIER)


def find(name: str, metric: str = "accuracy") -> Column | None:
    """The column of that name in a run with this ``model.metric``; None for one of a loop of the user's."""
    return next((column for column in (*OWN, *TUNE) if column.name.replace(METRIC, metric) == name), None)
