"""A Sphinx extension that writes the reference: keys, names, columns, commands and files, out of raymx's own tables.

A line ``<!-- raymx: keys -->`` in a page stands for what `PARTS` makes of that word, as Markdown, when the page is
read. Nothing that is listed is written down a second time, so it cannot be out of date. Neither ray nor mxnet is
imported.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import raymx.data.__main__
import raymx.doctor.__main__
import raymx.launch.options
import raymx.pack
import raymx.report
import raymx.report.__main__
import raymx.score
import raymx.why
from raymx.cli import options
from raymx.data.tools import packing
from raymx.experiment import keys, names, sizing
from raymx.experiment.axis_kinds import AXIS_KINDS
from raymx.experiment.loading import BATCH_LR, FLAGS, SHORT_FORMS
from raymx.experiment.lr_rules import LR_RULES
from raymx.experiment.search_libraries import SEARCH_LIBRARIES
from raymx.experiment.store_types import STORE_TYPES
from raymx.experiment.trial_schedulers import TRIAL_SCHEDULERS
from raymx.experiment.values import RESERVED_ENV
from raymx.jobs import cli
from raymx.report.diagnoses import KINDS
from raymx.results import columns
from raymx.results.file_table import RUN_FILES

if TYPE_CHECKING:
    from sphinx.application import Sphinx

MARK = re.compile(r"^<!-- raymx: (\w+) -->$", re.MULTILINE)
LONGEST_LIST = 120  # characters of the names that a key takes; longer lists are on the page of names
_ONE_OF = re.compile(r"one of (.+)$")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", lambda app, name, source: _fill(app, name, source))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fill(app: Sphinx, _: str, source: list[str]) -> None:
    filled = MARK.sub(lambda mark: PARTS[mark[1]](), source[0])
    if filled != source[0]:
        app.env.note_reread()  # the tables may change where the page does not
        source[0] = filled


# Markdown


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what stands in a cell is Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def target(name: str) -> str:
    """What a link to the heading behind it names: ``#key-data-augment``, ``#raymx-pack``."""
    return f"({re.sub('[^a-z0-9]+', '-', name.removeprefix('python -m '))})=\n"


def prose(text: str) -> str:
    """A docstring's sentence as Markdown: names in one backtick, and on one line."""
    return " ".join(text.replace("``", "`").split())


def rows_of(found: Mapping[str, Any], leave_out: Sequence[str] = ()) -> str:
    """A table of dataclasses by name: what each is, and every other thing that it tells in words, numbers or flags."""
    shown = [
        field.name
        for field in fields(next(iter(found.values())))
        if field.name not in ("name", "meaning", *leave_out)
        and all(isinstance(getattr(row, field.name), (bool, int, float, str, tuple)) for row in found.values())
    ]
    return table(
        ["name", "what it is", *(name.replace("_", " ") for name in shown)],
        [
            [code(name), prose(row.meaning), *(_cell(getattr(row, field)) for field in shown)]
            for name, row in found.items()
        ],
    )


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, tuple):
        return ", ".join(code(str(item)) for item in value)
    text = prose(str(value))
    return code(text) if ":" in text and " " not in text else text  # module:Class


# Keys and names


def keys_part() -> str:
    return "\n\n".join(_group(group) for group in keys.groups())


def _group(group: keys.Group) -> str:
    short = SHORT_FORMS.get(group.name)
    parts = [
        f"{target('key-' + group.name)}## {code(group.name)}\n\n{prose(group.meaning)}"
        if group.name
        else "## The file itself"
    ]
    if short:
        parts.append(f"`{group.name}: X` is short for `{group.name}: {{{short}: X}}`.")
    rows = [
        [code(key.name), key.default if key.default == keys.REQUIRED else code(key.default), _meaning(key)]
        for key in group.keys
    ]
    return "\n\n".join([*parts, table(["key", "default", "what it is"], rows)])


_SET_BY = {BATCH_LR: "training.global_batch_size"}  # what is no key of its own


def _meaning(key: keys.Key) -> str:
    dotted = f"{key.section}.{key.name}" if key.section else key.name
    flags = ", ".join(code(flag) for flag, sets in FLAGS.items() if dotted in (sets, _SET_BY.get(sets)))
    return f"{prose(key.meaning)} Takes {_takes(key.allowed)}." + (f" Flag: {flags}." if flags else "")


def _takes(allowed: str) -> str:
    """What a message says is allowed, with names as code, or a link where they are many."""
    allowed = allowed.replace("module:name", code("module:name"))
    found = _ONE_OF.search(allowed)
    if not found:
        return allowed
    if len(found[1]) > LONGEST_LIST:
        return allowed[: found.start()] + "one of [these](names.md)"
    return allowed[: found.start()] + "one of " + ", ".join(map(code, found[1].split(", ")))


def resumable_part() -> str:
    return ", ".join(map(code, sizing.RESUME_MAY_CHANGE))


def nets_part() -> str:
    return ", ".join(map(code, names.MODEL_ZOO))


def losses_part() -> str:
    return _classes(names.LOSSES, "mxnet.gluon.loss")


def initializers_part() -> str:
    return _classes(names.INITIALIZERS, "mxnet.init")


def _classes(found: Mapping[str, str], module: str) -> str:
    rows = [
        [code(name), code(f"{module}.{kind}") if kind else "what the net itself does"] for name, kind in found.items()
    ]
    return table(["name", "what it is"], rows)


def metrics_part() -> str:
    return table(["name", "of a sample"], [[code(name), prose(text)] for name, text in names.METRICS.items()])


def axes_part() -> str:
    return table(["axis", "what it is"], [[code(row.form), row.meaning] for row in AXIS_KINDS.values()])


def optimizers_part() -> str:
    rows = [[code(name), ", ".join(map(code, own))] for name, own in names.OPTIMIZERS.items()]
    common = ", ".join(map(code, names.OPTIMIZER_COMMON))
    refused = [[code(name), prose(why)] for name, why in names.OPTIMIZER_REFUSED.items()]
    return "\n\n".join(
        [
            table(["optimizer", "its own arguments"], rows),
            f"All of them take {common} too. These cannot be set, for raymx sets them:",
            table(["argument", "in its place"], refused),
        ]
    )


def environment_part() -> str:
    return table(["variable", "in its place"], [[code(name), prose(why)] for name, why in RESERVED_ENV.items()])


def diagnoses_part() -> str:
    return table(["in the table", "what it means, and what to do"], [[row.word, row.advice] for row in KINDS.values()])


# Columns


def columns_part() -> str:
    return _columns(columns.OWN)


def tune_columns_part() -> str:
    return _columns(columns.TUNE)


def _columns(found: Sequence[columns.Column]) -> str:
    return table(
        ["column", "unit", "meaning", "in"],
        [[code(one.name), one.unit, prose(one.meaning), prose(one.when)] for one in found],
    )


# Commands


def commands_part() -> str:
    submit = [cli.submit_parser(), *map(cli.command_parser, cli.COMMANDS)]
    parsers = [
        *(
            options.parser(),
            raymx.launch.options.parser(),
            raymx.report.__main__.parser(),
            raymx.why.parser(),
            *submit,
            raymx.score.parser(),
        ),
        raymx.pack.parser(),
        *_with_commands(raymx.data.__main__.parser()),
        raymx.doctor.__main__.parser(),
    ]
    return "\n\n".join(_command(parser) for parser in parsers)


def _with_commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of a command's commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, command in action.choices.items():
                command.description = command.description or helps[name]
                yield command


def _command(parser: argparse.ArgumentParser) -> str:
    described = parser.description or ""
    raw = parser.formatter_class is argparse.RawDescriptionHelpFormatter and "\n" in described
    parts = [
        f"{target(parser.prog)}## {code(parser.prog)}",
        f"```text\n{described}\n```" if raw else f"{_sentence(described)}",
    ]
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if is_listed(action)]
        rows = [[_invocation(action), _help(parser, action)] for action in actions]
        if rows:
            custom = group.title not in ("positional arguments", "options")
            parts += [f"**{_sentence(group.title or '').rstrip('.')}**"] if custom else []
            parts.append(table(["flag" if actions[0].option_strings else "argument", "what it does"], rows))
    return "\n\n".join(parts)


def is_listed(action: argparse.Action) -> bool:
    """Whether an argument is one that users are told of."""
    return action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)


def _invocation(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else action.metavar or "{" + ",".join(map(str, action.choices or [])) + "}"
    value = value if value != "{}" else action.dest.upper()
    shown = {"?": f"[{value}]", "+": f"{value} ..."}.get(str(action.nargs), str(value))
    return ", ".join(code(f"{flag} {shown}".strip()) for flag in action.option_strings) or code(shown)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    default = "N" if action.dest == "workers" else action.default  # the CPUs of the machine that makes this page
    return _sentence((action.help or "") % {**vars(action), "prog": parser.prog, "default": default})


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":")) else ".") if text else ""


# Files


def _files(found: Mapping[str, str]) -> str:
    return table(["file", "what it is"], [[code(name), prose(text)] for name, text in found.items()])


PARTS: Mapping[str, Callable[[], str]] = {
    "keys": keys_part,
    "resumable": resumable_part,
    "nets": nets_part,
    "losses": losses_part,
    "metrics": metrics_part,
    "initializers": initializers_part,
    "lr_rules": lambda: rows_of(LR_RULES),
    "store_types": lambda: rows_of(STORE_TYPES),
    "axes": axes_part,
    "trial_schedulers": lambda: rows_of(TRIAL_SCHEDULERS),
    "searches": lambda: rows_of(SEARCH_LIBRARIES, leave_out=("module", "seed_argument", "scheduler_class")),
    "optimizers": optimizers_part,
    "environment": environment_part,
    "diagnoses": diagnoses_part,
    "columns": columns_part,
    "tune_columns": tune_columns_part,
    "commands": commands_part,
    "run_files": lambda: _files(RUN_FILES),
    "report_files": lambda: _files(raymx.report.FILES),
    "pack_files": lambda: _files(packing.FILES),
}
