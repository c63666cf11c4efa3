"""One run from its first line to its last: connect, plan, let Tune run the trials, show them, sum it up."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from raymx import _ray, storage
from raymx.cli.exit import EXIT_OK
from raymx.cluster import placement
from raymx.driver import last_resort, old_runs, tune_files
from raymx.driver.connection import connect
from raymx.driver.display import Display
from raymx.driver.interrupt import Interrupt
from raymx.driver.last_resort import LastResort
from raymx.driver.planning import free_now, prepare_on, restart_advice, room_now
from raymx.driver.sweep_display import SweepDisplay
from raymx.errors import CheckpointError, ExperimentError, PlacementError, RaymxError, TrainingError
from raymx.experiment import code_copy, loading, source_files
from raymx.experiment.loading import ExperimentConfig
from raymx.results import rows, run_folder
from raymx.results import summary as summaries
from raymx.storage import location
from raymx.sweep.plan import RunPlan
from raymx.sweep.trial_records import TrialRecords
from raymx.text.words import count
from raymx.tracking import settings

JOIN_TIMEOUT_S = 180.0  # for nodes that the cluster always has: `ray up` returns before they are there
JOIN_LOOK_S = 2.0
_MOST_CHARACTERS = 500  # of an error of Tune's, which may hold a whole config


class Driver:
    """One command's run: a sweep, or one trial, in a folder of its own under the storage path."""

    def __init__(
        self,
        experiment: ExperimentConfig,
        *,
        address: str | None = None,
        storage_path: str | None = None,
        resume: str | None = None,
        retry_failed: bool = False,
        run_id: str | None = None,
        verbose: bool = False,
    ) -> None:
        """``resume`` is a run's folder, "" for the newest run of this name, None for a new run.

        ``retry_failed``: trials of a sweep that failed are run again when it is resumed. ``run_id`` is given to a run
        that was submitted: it names its folder and its files for those who watch it.
        """
        self.experiment = experiment
        self._address, self._resume, self._verbose = address, resume, verbose
        self._retry = retry_failed or not experiment.sweep.space
        self._run_id = run_id
        self._gpus = 0  # of the whole cluster
        self._grows = False  # whether its autoscaler must add nodes for this run
        self._modules = ""  # a copy of the experiment's modules, as they are now
        self._storage_path = run_folder.storage_path(storage_path)
        self._display: Display = (SweepDisplay if experiment.sweep.space else Display)(sys.stdout)

    def execute(self) -> int:
        """Train to the end, or until Ctrl-C; the exit code. Raises RaymxError with what went wrong."""
        began = time.time()
        folder = (
            self._resumed_folder()
            if self._resume is not None
            else self._run_id or run_folder.new_folder(self._storage_path, self.experiment)
        )
        with Interrupt() as interrupt, code_copy.copied(self.experiment.directory) as self._modules:
            started = connect(self.experiment, self._address, verbose=self._verbose, ship=not self._run_id)
            import ray

            gcs = str(ray.get_runtime_context().gcs_address)
            end = partial(self._end, folder)
            try:
                with LastResort(partial(last_resort.answers, gcs), end):
                    return self._run(folder, began, started, interrupt)
            except Exception:
                if interrupt.requested and not last_resort.answers(gcs):  # else it has a reason of its own
                    end(interrupt.number)
                raise
            finally:
                self._display.close()
                ray.shutdown()

    def _keep_code(self, folder: str) -> str:
        """Keep the run's code in its folder; its version. Of a resumed run it is said what has changed."""
        if not self._modules:
            if loading.references(self.experiment) and not self._run_id:
                where = self.experiment.directory
                said = f"the modules in {where} could not be copied: do not edit them while this run goes on"
                self._display.warnings([said], "note")
            return ""
        path, code = storage.child(self._storage_path, folder), code_copy.zipped(self._modules)
        with contextlib.suppress(RaymxError, OSError):  # what is trained is not held up by it
            before = storage.content(storage.child(path, code_copy.CODE)) if self._resume is not None else None
            changes = code_copy.changed(before, self._modules) if before else []
            if changes:
                said = (
                    f"the code has changed since the run was last started: {', '.join(changes)}; it goes on with that"
                )
                self._display.warnings([said], "note")
            storage.write_files(path, {code_copy.CODE: code})
        return code_copy.version(code)

    def _end(self, folder: str, number: int) -> NoReturn:
        last_resort.end_all(number, f"{self._display.resume_with} {os.path.join(self._storage_path, folder)}")

    def _run(self, folder: str, began: float, started: str, interrupt: Interrupt) -> int:
        """The same, connected to Ray."""
        if self._run_id:
            self._write_for_watchers(self._run_id, folder)
        prepared = self._prepared()
        self._display.head(prepared, started)
        if self._grows:
            self._display.warnings(
                [
                    "the cluster's nodes cannot hold it, so its autoscaler starts more: "
                    + placement.needs(prepared.plan)
                ],
                "note",
            )
        trials = TrialRecords(self._storage_path, folder, prepared, self._keep_code(folder))
        from raymx.driver.monitor import Monitor

        try:
            with Monitor(folder, self._display, interrupt, trials, placement.needs(prepared.plan)):
                grid = self._fit(folder, prepared, trials)
        finally:
            trials.interrupted()
        if not len(grid):  # Ctrl-C before Tune had a trial
            return interrupt.code
        if self.experiment.sweep.space:
            return self._close_sweep(grid, folder, began, interrupt, prepared.trials)
        return self._close(grid[0], folder, began, interrupt)

    def _write_for_watchers(self, run_id: str, folder: str) -> None:
        """From now on what is displayed is also written where clients of the cluster can read it."""
        from raymx.driver.journal import Journal

        self._display.resume_with = "python -m raymx.submit EXPERIMENT --resume"
        self._display = Journal(self._display, run_id, _ray.log_folder(), os.path.join(self._storage_path, folder))

    def _prepared(self) -> RunPlan:
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while True:
            room = room_now(self.experiment)
            waits = room.joining > 0 and time.monotonic() < deadline  # then more is known
            try:
                prepared = prepare_on(self.experiment, replace(room, unknown=()) if waits else room, free_now())
                break
            except (PlacementError, ExperimentError) as error:
                if not waits:
                    if isinstance(error, PlacementError) and (advice := restart_advice(room, self.experiment)):
                        raise PlacementError(f"{error}\n{advice}") from None
                    raise
            self._display.warnings([f"waiting for {count(room.joining, 'node')} of the cluster to join it"], "note")
            time.sleep(JOIN_LOOK_S)
        nodes = room.nodes
        self._gpus = max(int(sum(node.gpu for node in room.known)), int(placement.size(prepared.plan)[0]))
        self._grows = not placement.fits(prepared.plan, nodes)
        if self._grows and not placement.fits(prepared.plan, room.known):
            self._display.warnings([_hopes(room.unknown)], "note")
        if len(nodes) > 1 and "://" not in self._storage_path:
            self._display.warnings(
                [
                    f"the cluster has {len(nodes)} nodes: --storage-path {self._storage_path} must be "
                    "a folder that all of them share, or a URI"
                ],
                "note",
            )
        if len(nodes) > 1 and not self._run_id and (left := source_files.named_but_ignored(self.experiment)):
            self._display.warnings(
                [
                    f"a .gitignore or .rayignore keeps from other nodes what the experiment names: {', '.join(left)}; "
                    "take it out of there, or name it by a path that all nodes share"
                ]
            )
        return prepared

    def _resumed_folder(self) -> str:
        path = (
            run_folder.storage_path(self._resume)
            if self._resume
            else run_folder.newest_run(self._storage_path, self.experiment.name)
        )
        run_folder.check_same(self.experiment, path)
        self._storage_path, folder = os.path.split(path)
        return folder

    def _fit(self, folder: str, prepared: RunPlan, trials: TrialRecords) -> Any:
        """Tune's results. Raises CheckpointError when Tune itself fails, which it does when it cannot write."""
        from raymx.cluster.waiting import announce

        try:
            run_folder.record(self._storage_path, folder, self.experiment)
            if self._run_id:
                source_files.keep_source(self.experiment.directory, os.path.join(self._storage_path, folder))
            trials.write_sweep()
            announce(self.experiment.sweep.priority, folder)
            _ray.leave_callbacks_uncounted()
            with contextlib.nullcontext() if self._resume is None else old_runs.importable():
                return self._tuner(folder, prepared).fit()
        except RaymxError:
            raise
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()[-1:]), "")[:_MOST_CHARACTERS]
            raise CheckpointError(
                f"Tune failed: {type(error).__name__}: {reason}; " + run_folder.space(self._storage_path)
            ) from error

    def _tuner(self, folder: str, prepared: RunPlan) -> Any:
        """Tune's, of a new run or of one that is resumed: from its own files, as far as they are whole."""
        path = os.path.join(self._storage_path, folder)
        if self._resume is None:
            return self._new_tuner(folder, prepared)
        found = tune_files.look(location(path))
        self._display.warnings(found.warnings)
        if found.has_tuner and found.is_begun:
            return self._restored_tuner(path, folder, prepared)
        made = self._new_tuner(folder, prepared)  # which writes tuner.pkl
        return self._restored_tuner(path, folder, prepared) if found.is_begun else made

    def _restored_tuner(self, path: str, folder: str, prepared: RunPlan) -> Any:
        from ray import tune

        from raymx.sweep import tuning
        from raymx.trial.trainable import Trial

        return tune.Tuner.restore(
            path,
            Trial,
            resume_unfinished=True,
            resume_errored=self._retry,
            param_space=tuning.param_space(prepared, folder, gpus_available=self._gpus, code=self._modules),
        )

    def _new_tuner(self, folder: str, prepared: RunPlan) -> Any:
        from ray import tune

        from raymx.driver.monitor import TuneHooks
        from raymx.sweep import tuning
        from raymx.trial.trainable import Trial

        metric, mode = run_folder.best_metric(self.experiment)
        return tune.Tuner(
            Trial,
            param_space=tuning.param_space(prepared, folder, gpus_available=self._gpus, code=self._modules),
            tune_config=tuning.tune_config(prepared, metric, mode),
            run_config=tune.RunConfig(
                name=folder,
                storage_path=self._storage_path,
                verbose=0,
                callbacks=[TuneHooks(), *settings.callbacks(self.experiment, folder)],
                checkpoint_config=tuning.checkpoint_config(self.experiment, metric, mode),
            ),
        )

    def _close(self, result: Any, folder: str, began: float, interrupt: Interrupt) -> int:
        """Say how a single trial ended, and write the summary."""
        interrupted = interrupt.requested and not (result.metrics or {}).get("done")
        error = None if interrupted else run_folder.root_cause(result.error)  # else of a failure that was mended
        if not interrupted and not error and rows.ends_trial(result.metrics or {}, self.experiment.failures.nan):
            error = TrainingError(f"{rows.divergence(result.metrics)} (failures.nan: go_on would train on)")
        if error and os.strerror(errno.ENOSPC) in str(error):
            error = CheckpointError(f"{error}; {run_folder.space(self._storage_path)}")
        state = "interrupted" if interrupted else "failed" if error else "finished"
        summary = summaries.summary(self.experiment, result, state, error, began)
        error = self._summarize(summary, folder) or error
        self._display.end(summary, os.path.join(self._storage_path, folder))
        return self._code(interrupt if interrupted else None, error)

    def _close_sweep(self, grid: Any, folder: str, began: float, interrupt: Interrupt, planned: int) -> int:
        """Make the report, say what it found, and write the summary."""
        from raymx import report

        path = os.path.join(self._storage_path, folder)
        failed = [result for result in grid if result.error is not None]
        unfinished = interrupt.requested and (
            len(grid) < planned or any(not (one.metrics or {}).get("done") for one in grid if not one.error)
        )
        error: RaymxError | None = (
            None
            if unfinished or not failed
            else TrainingError(
                f"{len(failed)} of {len(grid)} trials failed, the first one with: "
                f"{run_folder.root_cause(failed[0].error)}\n"
                f"run them again with  {self._display.resume_with} {path} --retry-failed"
            )
        )
        state = "interrupted" if unfinished else "failed" if error else "finished"
        summary = summaries.sweep_summary(self.experiment, grid, state, error, began)
        error = self._summarize(summary, folder) or error
        try:
            summary |= report.summary([path])
        except Exception as unmade:  # hours of training are not to end in a traceback
            error = error or RaymxError(f"the report could not be made: {unmade}; try  python -m raymx.report {path}")
        self._display.end(summary, path)
        return self._code(interrupt if unfinished else None, error)

    def _summarize(self, summary: dict[str, Any], folder: str) -> RaymxError | None:
        """Write the summary; why it could not be written."""
        try:
            run_folder.write(self._storage_path, folder, run_folder.SUMMARY, run_folder.as_json(summary))
        except ExperimentError as error:
            return error
        return None

    @staticmethod
    def _code(interrupt: Interrupt | None, error: RaymxError | None) -> int:
        if interrupt:
            return interrupt.code
        if error:
            raise error
        return EXIT_OK


def _hopes(types: Sequence[str]) -> str:
    """What a run waits for that no node of known size can hold."""
    return (
        f"no node of known size can hold it; it waits for those of {', '.join(dict.fromkeys(types))}, whose resources "
        "the cluster's configuration does not give (available_node_types.TYPE.resources)"
    )
