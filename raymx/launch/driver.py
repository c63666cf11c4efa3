"""``python -m raymx.launch`` from its first line to its last: connect, run the trials, say what came out."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO

from raymx import __version__, report, storage
from raymx.cli import machine
from raymx.cli.exit import EXIT_OK
from raymx.driver import last_resort, planning
from raymx.driver.connection import Folder, connect_for
from raymx.driver.interrupt import Interrupt
from raymx.driver.last_resort import LastResort
from raymx.errors import PlacementError
from raymx.launch import bundles, commands, points, table
from raymx.launch.points import Planned
from raymx.launch.records import RunRecords, TrialRecord
from raymx.launch.script import Script
from raymx.results import run_folder
from raymx.text.words import count

POLL_S = 0.2
WAITING_S = 10.0
"""After so long without room it is said what the trial waits for."""


class Output:
    """What the command prints: lines of roles, marked, and its own."""

    def __init__(self, stream: TextIO, widest: int) -> None:
        self._stream, self._widest, self._closed = stream, widest, False

    def line(self, role: str, text: str, trial: str = "") -> None:
        """``worker 1 | text``; lines of raymx's own have no role."""
        mark = f"{trial}{role.ljust(self._widest)} | " if role else ""
        try:
            if not self._closed:
                self._stream.write(f"{mark}{text}\n")
                self._stream.flush()
        except OSError:  # a terminal that was closed, or a pipe: the run ends all the same
            self._closed = True


class Launch:
    """One command's run, in a folder of its own under the storage path."""

    def __init__(
        self,
        script: Script,
        *,
        address: str | None = None,
        storage_path: str | None = None,
        folder: str | None = None,
        shared_folder: bool = False,
        run_id: str | None = None,
        verbose: bool = False,
    ) -> None:
        """``folder`` is where the command is given. ``shared_folder``: other nodes have it under the same path, so it
        need not travel. ``run_id`` names the run's folder.
        """
        here = os.path.abspath(folder or os.getcwd())
        self._folder = commands.folder_of(script.words, here)
        self._script = script
        self._trials = [_in_folder(planned, here, self._folder) for planned in points.trials(script)]
        self._address, self._shared, self._run_id, self._verbose = address, shared_folder, run_id, verbose
        self._storage = run_folder.storage_path(storage_path)
        widest = max(len(seat.name) for seat in bundles.seats(script))
        self._out = Output(sys.stdout, widest)
        self._records: list[TrialRecord] = []

    def execute(self) -> int:
        """Run all trials; the exit code. Raises RaymxError with what went wrong before a script ran."""
        run = self._run_id or _new_folder(self._storage, self._script.name)
        with Interrupt() as interrupt:
            started = connect_for(
                self._needed_here,
                self._address,
                Folder("script", self._folder),
                verbose=self._verbose,
                ship=not self._shared and not self._run_id,
                tune=False,
            )
            import ray

            gcs = str(ray.get_runtime_context().gcs_address)
            try:
                with LastResort(partial(last_resort.answers, gcs), self._end_at_once):
                    interrupt.listen(True)
                    return self._run(run, started, interrupt)
            finally:
                ray.shutdown()

    def _needed_here(self) -> int:
        at_once = min(self._script.concurrent, len(self._trials))
        needed, cores = at_once * bundles.cpus(self._script), machine.cores()
        most = max(planning.LEAST_LIMIT, planning.LIMIT_A_CORE * cores)
        if needed > most:
            raise PlacementError(
                f"{bundles.needs(self._script)}, {count(at_once, 'trial')} at once, are {needed:g} CPU; this machine "
                f"has {count(cores, 'core')}, on which raymx starts a Ray with at most {most} logical CPUs: give fewer "
                "with -n and -s, or name a cluster with --address"
            )
        return -int(-needed // 1)

    def _end_at_once(self, number: int) -> NoReturn:
        last_resort.end_all(number, "the same command")

    def _run(self, run: str, started: str, interrupt: Interrupt) -> int:
        self._head(started)
        self._check_room()
        files = RunRecords(self._storage, run, self._script, self._folder)
        files.begin(self._trials, table.objective(self._script.objective, ()))
        code = self._run_trials(run, interrupt)
        objective = table.objective(
            self._script.objective, (name for record in self._records for row in record.rows for name in row)
        )
        files.sweep(self._trials, objective)
        return self._close(files, objective, interrupt, code)

    def _head(self, started: str) -> None:
        script = self._script
        self._out.line("", f"raymx {__version__}: {script.name}, {bundles.needs(script)}")
        if started:
            self._out.line("", started)
        if self._folder != os.getcwd():
            self._out.line("", f"note: the script runs in its own folder, {self._folder}")

    def _check_room(self) -> None:
        room = planning.cluster_room()
        if not room.unknown and not room.joining:
            bundles.check_fit(self._script, room.known)

    def _run_trials(self, run: str, interrupt: Interrupt) -> int:
        """Run all trials, so many at once as wished; the exit code of the first that failed."""
        import ray

        from raymx.launch.generation import Where
        from raymx.launch.trial import Trial

        where = Where(self._folder, self._shared, ray.get_runtime_context().get_node_id())
        left = list(self._trials)
        going: list[Trial] = []
        codes: list[int] = []
        try:
            while (left or going) and not interrupt.requested:
                while left and len(going) < self._script.concurrent:
                    going.append(Trial(self._record(run, left.pop(0)), where, self._sayer()))
                for trial in list(going):
                    if trial.step():
                        going.remove(trial)
                        codes.append(self._told(trial))
                waited_for = [ref for trial in going for ref in trial.waits_for]
                if waited_for:
                    ray.wait(waited_for, timeout=POLL_S)
                elif going:
                    time.sleep(POLL_S)
        finally:
            state, why = ("interrupted", "interrupted") if interrupt.requested else ("failed", "raymx.launch ended")
            for trial in going:
                trial.stop(state, why)
        return next((code for code in codes if code), EXIT_OK)

    def _record(self, run: str, planned: Planned) -> TrialRecord:
        record = TrialRecord(self._storage, run, self._script, planned)
        self._records.append(record)
        if planned.point or self._script.repeats > 1:
            self._out.line("", f"trial {planned.number + 1} of {len(self._trials)}: {_in_words(planned)}")
        return record

    def _sayer(self) -> Any:
        mark = f"{self._records[-1].planned.trial_id} " if self._script.concurrent > 1 else ""
        return lambda role, text: self._out.line(role, text, mark)

    def _told(self, trial: Any) -> int:
        found = trial.verdict
        if found.reason:
            self._out.line("", f"{found.reason}; its output is in {trial.record.path}")
        return int(found.code)

    def _close(self, files: RunRecords, objective: tuple[str, str], interrupt: Interrupt, code: int) -> int:
        failed = [record for record in self._records if record.state == "failed"]
        state = "interrupted" if interrupt.requested else "failed" if failed else "finished"
        told = [table.Told(one.planned.cell, one.planned.point, one.state, one.rows) for one in self._records]
        summary: dict[str, Any] = {
            "trials": len(self._records),
            "failed": len(failed),
            "best": _best(self._records, objective),
            "exit_code": interrupt.code if interrupt.requested else code,
        }
        files.summary(state, failed[0].error if failed else None, summary)
        if any(record.rows for record in self._records):
            for line in table.lines(told, objective[0]):
                self._out.line("", line)
            if len(self._trials) > 1:
                self._report(files.path)
        self._out.line("", f"results {files.path}")
        return interrupt.code if interrupt.requested else code

    def _report(self, path: str) -> None:
        try:
            self._out.line("", f"report {report.summary([path])['report']}")
        except Exception as error:  # hours of training are not to end in a traceback
            self._out.line("", f"the report could not be made: {error}; try  python -m raymx.report {path}")


def _new_folder(path: str, name: str) -> str:
    folder = f"{name}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    while storage.location(os.path.join(path, folder)).is_there:
        folder += "+"
    return folder


def _in_folder(planned: Planned, here: str, folder: str) -> Planned:
    return Planned(
        planned.number, planned.cell, planned.repeat, planned.point, commands.relative(planned.command, here, folder)
    )


def _in_words(planned: Planned) -> str:
    told = [f"{key} {value}" for key, value in planned.point.items()]
    return ", ".join([*told, f"repeat {planned.repeat + 1}"])


def _best(records: Sequence[TrialRecord], objective: tuple[str, str]) -> dict[str, Any]:
    metric, mode = objective
    known = [
        (row[metric], record, row) for record in records for row in record.rows if isinstance(row.get(metric), float)
    ]
    if not known:
        return {}
    value, record, row = (max if mode == "max" else min)(known, key=lambda one: one[0])
    point = dict(record.planned.point)
    return {"metric": metric, "mode": mode, "value": value, "epoch": row["epoch"], "trial": record.path, "axes": point}


def guarded(script: Script, here: str) -> bool:
    """Whether the script asks for raymx's own servers, by a line of its own."""
    at = commands.script_at(script.words)
    if at is None:
        return False
    try:
        return commands.asks_for_guard(Path(here, script.words[at]).read_text(errors="replace"))
    except OSError:
        return False
