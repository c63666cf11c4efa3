"""How plots look: colours that the colour-blind can tell, one axis by colour, one by marker, legends below the data."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from raymx.report.effects import present
from raymx.report.model import ComparedAxis, Value, show
from raymx.report.study import Study

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")  # Okabe and Ito
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")
GREY, FAINT, DARK = "#8A8A8A", "#C8C8C8", "#222222"
WIDTH, HEIGHT = 7.2, 4.4  # inches
DPI = 110
LINE = 0.2  # inches of a legend's line
LONGEST = 70  # characters of a label

_STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "axes.edgecolor": "#666666",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
    "text.parse_math": False,  # a name may have a $
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Picture:
    """One plot: the name of its file without .png, its title and what there is to see, and the file's bytes."""

    name: str
    title: str
    caption: str
    png: bytes = field(repr=False)


@dataclass(frozen=True)
class Encoding:
    """Which axis is told by colour, which by marker; None where no axis has 2 to 7 labels left."""

    colour: ComparedAxis | None
    marker: ComparedAxis | None
    colours: Mapping[Value, str]
    markers: Mapping[Value, str]

    def colour_of(self, axes: Mapping[str, Value]) -> str:
        return self.colours[axes[self.colour.key]] if self.colour else COLOURS[0]

    def marker_of(self, axes: Mapping[str, Value]) -> str:
        return self.markers[axes[self.marker.key]] if self.marker else MARKERS[0]

    def line_of(self, axes: Mapping[str, Value]) -> str:
        if not self.marker:
            return LINES[0]
        return LINES[MARKERS.index(self.marker_of(axes)) % len(LINES)]

    @property
    def few_lines(self) -> bool:
        """Whether line styles tell the second axis too."""
        return len(self.markers) <= len(LINES)


def encoding(study: Study) -> Encoding:
    few = [axis for axis in study.axes if axis.labels is not None and 1 < len(present(axis, study)) <= len(COLOURS)]
    colour, marker = (*few[:2], None, None)[:2]
    return Encoding(
        colour,
        marker,
        dict(zip(present(colour, study), COLOURS, strict=False)) if colour else {},
        dict(zip(present(marker, study), MARKERS, strict=False)) if marker else {},
    )


def handles(code: Encoding, lines: bool = False) -> list[Line2D]:
    """A legend's entries for both axes of an encoding; as lines for curves."""
    found = [
        Line2D(
            [],
            [],
            color=colour,
            marker="" if lines else "o",
            linestyle="-" if lines else "none",
            label=cut(f"{code.colour.name} {show(value)}"),
        )
        for value, colour in code.colours.items()
        if code.colour
    ]
    if code.marker and (not lines or code.few_lines):
        found += [
            Line2D(
                [],
                [],
                color=GREY,
                marker="" if lines else marker,
                linestyle=style if lines else "none",
                label=cut(f"{code.marker.name} {show(value)}"),
            )
            for (value, marker), style in zip(code.markers.items(), LINES * 2, strict=False)
        ]
    return found


@contextmanager
def styled() -> Iterator[None]:
    """Plots are drawn in this style, with no screen. A letter that the font lacks becomes a box, without a warning."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph")
        yield


def figure(height: float = HEIGHT, columns: int = 1, rows: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes: one, or an array of ``rows`` x ``columns``."""
    found = Figure(figsize=(WIDTH, height), layout="constrained")
    return found, found.subplots(rows, columns, **options)


def legend_below(of: Figure, *blocks: Sequence[Line2D], columns: int | None = None) -> None:
    """Legends under the figure, one block under the other, so that none covers the data."""
    below, height = 0.02, of.get_figheight()
    for entries in blocks:
        if not entries:
            continue
        longest = max(len(str(entry.get_label())) for entry in entries)
        across = max(1, min(columns or 4, len(entries), 92 // (longest + 6)))
        of.legend(
            handles=list(entries),
            loc="upper left",
            bbox_to_anchor=(0.05, -below / height),
            ncols=across,
            borderaxespad=0,
            handlelength=1.8,
            columnspacing=1.4,
        )
        below += LINE * -(-len(entries) // across) + 0.1


def png(of: Figure) -> bytes:
    sink = io.BytesIO()
    of.savefig(sink, format="png", dpi=DPI, bbox_inches="tight", pad_inches=0.12)
    return sink.getvalue()


def log_axis(axis: Any) -> None:
    """Make an x or y axis logarithmic, its numbers written out."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")


def in_time(longest_s: float) -> tuple[float, str]:
    """(seconds in it, name) of a unit in which ``longest_s`` is readable."""
    return (3600, "hours") if longest_s > 7200 else (60, "minutes") if longest_s > 600 else (1, "seconds")


def cut(text: str, longest: int = LONGEST) -> str:
    """A label short enough for a plot."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def wrapped(text: str, width: int = 46) -> str:
    """A label on one or two lines."""
    first, *rest = textwrap.wrap(text, width) or [""]
    return f"{first}\n{cut(' '.join(rest), width)}" if rest else first
