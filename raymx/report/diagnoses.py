"""What somebody who knows the field would say of a trial, each with its number: the table of diagnoses. Pure.

A diagnosis says what was measured. Its cause mostly was not: then it says so, and what is often found or may help.

To add one: a row here, and the function that finds it, of `trial_symptoms` or `cell_symptoms`. The page, its tables,
findings.json and the documentation read the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from raymx.report import cell_symptoms, trial_symptoms
from raymx.report.evidence import Evidence, Found, of_each
from raymx.report.study import Study


@dataclass(frozen=True)
class DiagnosisKind:
    """A kind of diagnosis: the word in tables, what it means and what to do, and what finds the trials that have it."""

    word: str
    advice: str
    find: Callable[[Evidence], Iterator[Found]]


KINDS: Mapping[str, DiagnosisKind] = {
    "nan": DiagnosisKind(
        "NaN",
        "The loss or the objective was NaN or infinite. What often helps: a lower learning rate, a longer warmup; with "
        "float16, loss scaling.",
        of_each(trial_symptoms.nan),
    ),
    "chance": DiagnosisKind(
        "at chance",
        "The validation accuracy is what guessing gives. Why is not measured; what is often found: a learning rate "
        "that is too high (async updates stand less), or labels that do not belong to the records.",
        trial_symptoms.chance,
    ),
    "input": DiagnosisKind(
        "input bound",
        "Training waited for data for a large part of its time, which no setting of the net, the store or the "
        "precision makes shorter. What may: more data.cpus, a data.cache that holds the records, faster storage.",
        of_each(trial_symptoms.input_bound),
    ),
    "precision": DiagnosisKind(
        "no gain by precision", "A lower precision was not faster than float32.", cell_symptoms.precision
    ),
    "servers": DiagnosisKind(
        "servers slow",
        "With more servers, more CPUs for them, or the update elsewhere, and all else the same, it was faster: so the "
        "servers held it up. What may go further: more kvstore.servers or kvstore.cpus_per_server, or "
        "kvstore.update_on_kvstore: false.",
        cell_symptoms.servers,
    ),
    "uneven": DiagnosisKind(
        "uneven workers",
        "Async workers of unequal speed: the fast ones train more often, and the slow ones push gradients of old "
        "weights. Why they differ is not measured; unequal or shared nodes may be it. dist_sync keeps them in step.",
        of_each(trial_symptoms.uneven),
    ),
    "skipped": DiagnosisKind(
        "skipped steps",
        "Many steps were left out because gradients overflowed. Lower precision.loss_scale, or the learning rate.",
        of_each(trial_symptoms.skipped),
    ),
    "twin": DiagnosisKind(
        "slow twin",
        "Far slower than other repeats of the same settings, so something besides them made it so; what, is not "
        "measured. Perhaps something else used its node. Do not take its speed for that of the settings.",
        cell_symptoms.twin,
    ),
    "workers": DiagnosisKind(
        "slower with more workers",
        "Fewer workers, and all else the same, were as fast: computing does not take as long as waiting for each other "
        "and for gradients and weights. What may help: larger batches, fewer bytes (precision.wire_dtype, "
        "kvstore.compression), more servers, or fewer workers.",
        cell_symptoms.workers,
    ),
    "memory": DiagnosisKind(
        "memory nearly full",
        "Beyond it a GPU's allocation fails, and on a node Ray ends processes at 95 %, the newest first. What helps on "
        "a node: fewer workers on it, a smaller data.cache, fewer data.cpus; on a GPU: smaller batches, float16.",
        of_each(trial_symptoms.memory),
    ),
    "first_step": DiagnosisKind(
        "slow first step",
        "The first step took far longer than the others. Computing for the first time is memory, the choice of "
        "kernels, and with model.hybridize auto the net both ways; which of these took the time is not measured. Train "
        "more epochs before comparing wall times.",
        of_each(trial_symptoms.first_step),
    ),
}
"""All kinds, the gravest first."""


@dataclass(frozen=True)
class Diagnosis:
    """One diagnosis of one trial; ``number`` is what it was made by and ``text`` says it."""

    kind: str
    sweep: str
    trial_id: str
    number: float
    text: str


def diagnose(study: Study, classes: Mapping[str, int | None]) -> list[Diagnosis]:
    """All of them, the gravest kind first. ``classes`` by sweep; None where the net does not classify."""
    evidence, order = Evidence(study, classes), list(KINDS)
    found = [
        Diagnosis(kind, entry.trial.sweep, entry.trial.trial_id, number, text)
        for kind, row in KINDS.items()
        for entry, number, text in row.find(evidence)
    ]
    return sorted(found, key=lambda diagnosis: (order.index(diagnosis.kind), diagnosis.sweep, diagnosis.trial_id))
