"""The card of a run, as HTML and as text."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymx.jobs import card_text, chart
from raymx.jobs.card import HINTS, as_html, as_text, notice_html
from raymx.results.step_text import COLOURS, PARTS
from raymx.results.view import ENDED, TrialView, View

NOW = 1000.0
TRIAL = TrialView(
    "7b100_00000",
    phase="training",
    epoch=2.4,
    epochs=5,
    samples_per_sec=2041.3,
    loss=0.473,
    objective=0.855,
    curve=((1.0, 0.725), (2.0, 0.855)),
)
RUN = View(
    "tiny_2026",
    "tiny",
    "running",
    metric="validation_accuracy",
    trials=(TRIAL,),
    started=NOW - 14,
    left_s=20.0,
    path="/results/tiny_2026",
    address="http://127.0.0.1:8265",
)
STATES = ("pending", "starting", "running", *ENDED)


def sweep(number: int = 24, **changes: Any) -> View:
    """Trials with ever better objectives; every tenth failed, the last one runs."""
    made = [
        TrialView(
            f"7b100_{at:05}",
            f"wd {at}",
            "finished",
            epoch=3,
            epochs=3,
            samples_per_sec=1000.0 + at,
            objective=0.5 + at / 1000,
            curve=tuple((float(e), 0.5 + at / 1000) for e in (1, 2, 3)),
        )
        for at in range(number)
    ]
    for at in range(0, number, 10):
        made[at] = replace(made[at], state="failed", objective=math.nan, curve=(), error=f"no room\nTraceback {at}")
    made[-1] = replace(made[-1], state="running", phase="training", epoch=1.5, left_s=30.0, objective=0.1)
    return replace(
        View(
            "sweep_2026",
            "sweep",
            "running",
            True,
            "validation_accuracy",
            planned=number + 6,
            trials=tuple(made),
            started=NOW - 600,
            left_s=400.0,
        ),
        **changes,
    )


class Page(HTMLParser):
    """What a browser would see: tags that are closed, and the text."""

    EMPTY = ("path", "polyline", "circle")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.hrefs: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.hrefs += [str(value) for name, value in attrs if name == "href"]
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def seen(view: View) -> str:
    return Page(as_html(view, NOW)).text


def test_a_run_that_trains() -> None:
    text = seen(RUN)
    for part in (
        "running",
        "tiny",
        "tiny_2026",
        "14 s, about 20 s left",
        "epoch 2.4/5",
        "samples/s 2,041",
        "loss 0.4730",
        "validation_accuracy 0.8550 best, in epoch 2",
        "/results/tiny_2026",
        "run.stop()",
    ):
        assert part in text
    html = as_html(RUN, NOW)
    assert 'aria-valuenow="48"' in html
    assert "width:48.0%" in html
    assert html.count("<circle") == 3  # two points, and a ring around the best
    assert 'href="http://127.0.0.1:8265"' in html


@pytest.mark.parametrize("state", STATES)
def test_every_state_is_told_by_a_word_and_a_colour(state: str) -> None:
    view = replace(RUN, state=state, ended=NOW)
    assert f'class="pill {state}"' in as_html(view, NOW)
    assert seen(view).startswith(state)
    assert all(hint in seen(view) for hint in HINTS[state])
    assert state in as_text(view, NOW).splitlines()[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "pending", "trials": ()}, "waiting for the cluster to start it"),
        ({"state": "starting", "trials": ()}, "checking the experiment and the cluster"),
        ({"trials": ()}, "no trial has begun yet"),
        ({"trials": (TrialView("a", phase="waiting"),)}, "waiting for room in the cluster"),
        ({"trials": (TrialView("a", phase="forming"),)}, "forming the KVStore"),
        ({"trials": (replace(TRIAL, phase="leaving"),)}, "moving to other nodes"),
        ({"trials": (TrialView("a", phase="training"),)}, "waiting for the first batch"),
    ],
)
def test_what_a_run_does_while_nothing_trains(changes: dict[str, Any], words: str) -> None:
    view = replace(RUN, **changes)
    assert f"now {words}" in seen(view)
    assert words in as_text(view, NOW)
    assert f"now {words}" not in seen(replace(view, state="failed"))


def test_times() -> None:
    assert card_text.times(RUN, NOW + 186) == "3 min, about 20 s left"
    assert card_text.times(replace(RUN, left_s=math.nan), NOW) == "14 s"
    assert card_text.times(replace(RUN, state="finished", ended=NOW), NOW + 5000) == "took 14 s"
    assert card_text.times(replace(RUN, state="lost"), NOW) == ""  # nobody knows when
    assert card_text.times(replace(RUN, started=NOW + 3), NOW) == "0 s, about 20 s left"  # clocks differ
    assert card_text.times(replace(RUN, started=math.nan), NOW) == ""


def test_a_minimised_objective() -> None:
    trial = replace(TRIAL, objective=0.2, curve=((1.0, 0.5), (2.0, 0.2), (3.0, 0.4)))
    assert "validation_mse 0.2000 best, in epoch 2" in seen(
        replace(RUN, metric="validation_mse", mode="min", trials=(trial,))
    )
    best = card_text.ranked(sweep(mode="min"))
    assert best[0].objective == min(trial.objective for trial in best)


@pytest.mark.parametrize(
    "curve", [((1.0, math.nan),), ((1.0, math.inf), (2.0, -math.inf)), ((math.nan, 0.5),), ((1.0, None),)]
)
def test_an_objective_that_is_never_a_number(curve: Any) -> None:
    trial = replace(TRIAL, objective=math.nan, loss=math.nan, flag="loss is NaN", curve=curve)
    view = replace(RUN, trials=(trial,))
    assert "validation_accuracy no number in any report" in seen(view)
    assert "no number in any report" in seen(replace(RUN, trials=(replace(trial, curve=()),), rows=2))
    assert "warning: loss is NaN" in seen(view)
    assert "<svg" not in as_html(view, NOW)
    assert "nan" not in re.sub("[^a-z]", " ", as_html(view, NOW)).split()


@pytest.mark.parametrize(
    "curve",
    [
        ((1.0, 0.5),),
        ((1.0, 0.0), (2.0, 0.0)),
        ((0.2, 1e-12), (0.4, 1e9)),
        ((1.0, 0.3), (2.0, math.nan), (3.0, 0.4)),
        ((1.0, -5.0), (7.0, -4.0)),
        ((1.0, 1e99), (2.0, -1e99), (3.0, 1e300)),
    ],
)
def test_curves_stay_within_their_picture(curve: Any) -> None:
    drawn = chart.chart([curve], "x", "max", 5)
    places = [
        float(number)
        for pair in re.findall(r'(?:points|cx|cy|[xy][12]?)="([^"]*)"', drawn)
        for number in re.split("[ ,]+", pair)
    ]
    assert places
    assert all(0 <= place <= chart.WIDTH for place in places)
    assert len(re.findall("<text", drawn)) >= 5  # the two names, two values, two epochs or more
    assert drawn.count("<polyline") == 1


def test_labels_of_the_axes() -> None:
    drawn = chart.chart([((1.0, 0.725), (2.0, 0.855))], "accuracy", "max", 5)
    assert re.findall(r">([\d.]+)<", drawn) == ["0.75", "0.80", "0.85", "0", "1", "2", "3", "4"]
    assert re.findall(r">([\d.]+)<", chart.chart([((1.0, 0.5),)], "a", "max", 1))[-2:] == ["0", "1"]
    assert re.findall(r">([\d.]+)<", chart.chart([((700.0, 0.5),)], "a", "max", 1000))[-2:] == ["800", "1000"]


def test_a_long_curve_keeps_its_best_and_its_last_point() -> None:
    points = [(float(epoch), 0.5 + (epoch == 333) / 10) for epoch in range(1, 1000)]
    thinned = chart._thinned(points, "max")
    assert len(thinned) <= chart.MOST_POINTS + 2
    assert (333.0, 0.6) in thinned
    assert thinned[-1] == points[-1]


def test_an_error_is_there_as_it_is() -> None:
    frames = "  File 'x' in <module>\n" * 40
    error = f"worker 1 failed: ValueError: <b>\nTraceback:\n{frames}ValueError: \x1b[31mend"
    view = replace(RUN, state="failed", error=error)
    assert "<pre>worker 1 failed: ValueError: &lt;b&gt;\nTraceback:" in as_html(view, NOW)
    assert "ValueError: end</pre>" in as_html(view, NOW)
    text = as_text(view, NOW)
    assert "worker 1 failed: ValueError: <b>\n... 38 lines ...\n" in text
    assert "ValueError: end" in text
    assert "500 characters left out" in as_html(replace(view, error="x" * 20_500), NOW)
    assert "<pre>no &amp;</pre>" in as_html(replace(RUN, trials=(replace(TRIAL, error="no &"),)), NOW)


def test_the_newest_messages_each_on_a_line() -> None:
    view = replace(RUN, messages=(*(f"note: {at}\nand more" for at in range(9)), "warning: " + "w" * 500))
    text = seen(view)
    assert "note: 5 and more" not in text
    assert "note: 6 and more" in text
    assert "w" * 100 in text
    assert "w" * 300 not in text
    assert as_html(view, NOW).count("class=warn>") == 1
    assert "note: 7 and more" not in as_text(view, NOW)


def test_a_sweep() -> None:
    view = sweep()
    text = seen(view)
    for part in (
        "23 of 30 ended",
        "1 running, 20 finished, 3 failed",
        "about 7 min left",
        "validation_accuracy 0.5220 best so far, trial 00022",
        "with wd 22",
        "8 not shown: 5 finished, 3 failed",
        "failed: 00000, 00010, 00020: no room",
    ):
        assert part in text
    assert "Traceback" not in text
    assert [trial.trial_id[-2:] for trial in card_text.shown(view, 4)] == ["23", "22", "21", "19"]
    html = as_html(view, NOW)
    assert html.count("<tr") == 17
    assert html.count('class="best"') == 1
    assert html.count("<polyline") == 2 * 4  # in the picture, and as a key in the table
    assert [(kind, round(part, 3)) for kind, part in card_text.share(view)] == [
        ("finished", 0.667),
        ("failed", 0.1),
        ("interrupted", 0.0),
        (card_text.PART, 0.017),
    ]


def test_a_sweep_of_which_nothing_is_known() -> None:
    for view in (sweep(trials=(), state="starting"), sweep(trials=(TrialView("a"),)), sweep(trials=(), state="lost")):
        assert "<svg" not in as_html(view, NOW)
        assert "of 30 ended" in seen(view)


def test_trials_that_failed_for_many_reasons() -> None:
    trials = tuple(TrialView(f"t_{at:05}", state="failed", error=f"reason {at % 5}") for at in range(12))
    notes = card_text.notes(sweep(trials=trials), 4)
    assert notes == [
        "failed: 00000, 00005, 00010: reason 0",
        "failed: 00001, 00006, 00011: reason 1",
        "failed: 00002, 00007: reason 2",
        "failed: 4 more trials, for other reasons",
    ]


def longest(view: View) -> View:
    curve = tuple((float(epoch), epoch / 1001) for epoch in range(1, 1000))
    trials = tuple(
        replace(
            trial,
            settings="settings " * 30,
            flag="slower than its twins",
            epochs=1000,
            epoch=123.4,
            curve=curve,
            error=f"{at} " + "reason " * 50,
        )
        for at, trial in enumerate(view.trials)
    )
    return replace(
        view,
        trials=trials,
        messages=("warning: " + "message " * 60,) * 20,
        name="name " * 90,
        path="folder/" * 30,
        error="line\n" * 40,
        address="http://host",
    )


@pytest.mark.parametrize(
    ("view", "most"), [(RUN, 7_000), (longest(RUN), 10_000), (sweep(200), 15_000), (longest(sweep(200)), 40_000)]
)
def test_sizes(view: View, most: int) -> None:
    assert len(as_html(view, NOW).encode()) < most
    lines = as_text(view, NOW).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 400


ANY_TEXT = st.text(max_size=40) | st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onload='x",
        "</style><b>",
        "javascript:alert(1)",
        "]]>",
        "&lt;",
    ]
)
ANY_NUMBER = st.floats() | st.just(math.nan)
ANY_TRIAL = st.builds(
    TrialView,
    ANY_TEXT,
    ANY_TEXT,
    st.sampled_from(["running", "failed", "finished"]) | ANY_TEXT,
    ANY_TEXT,
    ANY_NUMBER,
    st.integers(0, 1000),
    ANY_NUMBER,
    ANY_NUMBER,
    ANY_NUMBER,
    ANY_TEXT,
    ANY_TEXT,
    ANY_NUMBER,
    st.lists(st.tuples(ANY_NUMBER, ANY_NUMBER), max_size=4).map(tuple),
)
ANY_VIEW = st.builds(
    View,
    run_id=ANY_TEXT,
    name=ANY_TEXT,
    state=st.sampled_from(STATES) | ANY_TEXT,
    is_sweep=st.booleans(),
    metric=ANY_TEXT,
    mode=st.sampled_from(["min", "max"]),
    planned=st.integers(0, 300),
    trials=st.lists(ANY_TRIAL, max_size=3).map(tuple),
    messages=st.lists(ANY_TEXT, max_size=3).map(tuple),
    error=ANY_TEXT,
    started=ANY_NUMBER,
    ended=ANY_NUMBER,
    left_s=ANY_NUMBER,
    path=ANY_TEXT,
    address=ANY_TEXT,
)


@settings(max_examples=60, deadline=None)
@given(ANY_VIEW, ANY_TEXT)
def test_any_view_can_be_drawn_and_no_text_becomes_markup(view: View, notice: str) -> None:
    page = Page(as_html(view, NOW, notice))
    assert page.tags <= {
        "div",
        "style",
        "span",
        "b",
        "i",
        "code",
        "pre",
        "a",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "svg",
        "text",
        "path",
        "polyline",
        "circle",
    }
    assert not {name for name in page.attributes if name.startswith("on")}
    assert all(href.startswith(("http://", "https://")) for href in page.hrefs)
    assert len(as_text(view, NOW).splitlines()) <= 20
    assert notice_html(notice).startswith('<div class="raymx-card">')


def test_states_of_a_later_version_look_as_one_that_waits() -> None:
    assert 'class="pill pending">dreaming<' in as_html(replace(RUN, state="dreaming"), NOW)


def test_where_a_steps_time_went_is_told_at_the_end() -> None:
    step = {"step_s": 0.182, "said": "a step took 182 ms: computing 61 %, waiting for gradients and weights 39 %"}
    told = as_text(replace(RUN, state="finished", summary={"step": step}), NOW)
    assert "182 ms" in told
    assert "computing 61 %, waiting for gradients and weights 39 %" in " ".join(told.split())
    assert "a step" not in as_text(RUN, NOW)


def test_a_step_is_a_bar_with_a_legend() -> None:
    parts = dict(zip(PARTS, (0.61, 0.38, 0.006, 0.004, 0.0, 0.0), strict=True))
    step = {"step_s": 0.182, "said": "a step took 182 ms: computing 61 %", "bar": "###==", "fractions": parts}
    view = replace(RUN, state="finished", summary={"step": step})
    page = as_html(view, NOW)
    assert f'<i style="width:61.0%;background:{COLOURS["compute"]}"></i>' in page
    assert "waiting for gradients and weights 38 %" in page
    assert page.count('<i class="dot" style=') == 3
    assert "[###==]" in as_text(view, NOW)
    assert "bar step" not in as_html(RUN, NOW)
