"""Figures: rows in, the right numbers in the traces; nothing to show is said in words."""

import json

import numpy as np
import pytest

from avlab import diagnosis
from avlab.figures import (
    base,
    budget,
    calibration,
    coefficients,
    compare,
    live,
    numbers,
    palette,
    sums,
    watched,
)
from avlab.speculation.calibration import bin_sums
from avlab.speculation.costs import CostTable
from avlab.speculation.intervals import auc_error, wilson
from avlab.speculation.saving import saved_ms

BLOCKS = [
    {"block": 0, "arm": "adaptive", "kind": "serve", "step": 0, "time": 0.0, "workload": "chat"},
    {"block": 1, "arm": "fixed:4", "kind": "serve", "step": 40, "time": 4.0, "workload": "chat"},
    {"block": 2, "arm": "fixed:4", "kind": "window", "step": 80, "time": 8.0, "workload": "code"},
]


def steps(count=100):
    """One row a step of 0.1 s: 8 tokens over 4 requests, 12 scheduled, 6 admitted, 4 accepted, 5 labelled."""
    number = np.arange(count)
    fixed = {
        "tokens": 8,
        "emitting": 4,
        "scheduled": 12,
        "admitted": 6,
        "accepted": 4,
        "labelled": 5,
        "steps": 1,
        "explored": 2,
        "explored_ms": 0.25,
    }
    fixed |= {"seconds": 0.1, "running": 4.0, "waiting": 1.0, "target_tokens": 10.0}
    fixed |= {
        f"{phase}_ms": value for phase, value in zip(palette.PHASES, (10, 60, 15, 5, 2, 8), strict=True)
    }
    rows = {name: np.full(count, value, dtype=type(value)) for name, value in fixed.items()}
    return rows | {"bucket": number, "step": number, "time": 0.1 * (number + 1), "block": number // 40}


def texts(figure):
    return [annotation.text for annotation in figure.layout.annotations]


@pytest.mark.parametrize("count", [1, 24, 25, 26, 200])
def test_a_running_median_is_that_of_the_last_25(count):
    values = np.random.default_rng(count).exponential(size=count).astype(np.float32)
    due = [np.median(values[max(0, i - 24) : i + 1]) for i in range(count)]
    found = live.running_median(values, 25)
    assert found.dtype == np.float32 and np.array_equal(found, np.array(due, dtype=np.float32))


def test_rates_over_time():
    figure = live.throughput(steps(), BLOCKS)
    np.testing.assert_allclose(figure.data[0].y, 80.0)
    assert texts(figure) == ["fixed:4", "code, window"]
    np.testing.assert_allclose(live.tokens_per_step(steps()).data[0].y, 2.0)
    for trace, expected in zip(live.acceptance(steps()).data, (4 / 12, 4 / 6, 4 / 5), strict=True):
        np.testing.assert_allclose(trace.y, expected)
    for trace, expected in zip(live.ledger(steps()).data, (10, 60, 15, 5, 2, 8), strict=True):
        np.testing.assert_allclose(trace.y, expected)
    assert [trace.y[0] for trace in live.queue(steps()).data] == [4.0, 1.0]


def test_a_point_of_the_past_stays_where_it_was_when_more_follows():
    index, middle = base.bins_of(steps(95))
    assert middle.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5]
    more = base.bins_of(steps(150))[1]
    assert more[: len(middle)].tolist() == middle.tolist() and index[0] == 0
    assert (
        len(base.bins_of({"time": 18.0 * np.arange(5000), "seconds": np.full(5000, 18.0)})[1])
        <= base.MOST_BINS + 1
    )


def apart(seconds=60.0):
    """Five seconds of steps, nothing for a while, as between two engines, and five seconds of steps."""
    early, late = steps(50), steps(50)
    late["time"] = late["time"] + early["time"][-1] + seconds
    return {name: np.concatenate([early[name], late[name]]) for name in early}


def held():
    """The same where serving was paused: the step behind the pause has its time."""
    rows = apart() | {"paused": np.zeros(100)}
    rows["seconds"][50], rows["paused"][50] = 60.1, 60.0
    return rows


OVER_TIME = (
    live.throughput, live.tokens_per_step, live.acceptance, live.queue, live.ledger, budget.budgets
)  # fmt: skip


@pytest.mark.parametrize("rows", [apart, held])
@pytest.mark.parametrize("draw", OVER_TIME)
def test_a_line_breaks_where_nothing_was_served(draw, rows):
    calm, figure = draw(steps()), draw(rows())
    for trace, other in zip(figure.data, calm.data, strict=True):
        if trace.mode != "lines":
            continue
        x, y = np.array(trace.x), np.array(trace.y)
        assert np.isfinite(other.y).all()
        assert x[np.isnan(y)].tolist() == [6.0, 65.0]
        np.testing.assert_allclose(y[np.isfinite(y)], other.y[0])
    json.loads(figure.to_json(), parse_constant=pytest.fail)  # a browser's JSON has no NaN


def test_the_area_under_a_rate_ends_where_the_line_does():
    line, area = live.throughput(apart()).data
    assert area.mode == "none" and area.x.tolist() == line.x.tolist()
    assert (area.y == np.nan_to_num(line.y)).all() and (area.y == 0).sum() == 2


@pytest.mark.parametrize(
    ("seconds", "places"),
    [(0.0, []), (1.9, []), (2.1, [6.0, 7.0]), (3.0, [6.0, 8.0]), (6000.0, [30.0, 6000.0])],
)
def test_a_gap_is_longer_than_two_seconds_and_than_a_bin(seconds, places):
    rows = apart(seconds)
    index, middle = base.bins_of(rows)
    empty = np.setdiff1d(np.arange(len(middle)), index)
    assert middle[empty].tolist() == places and (np.diff(middle) > 0).all()
    width = 30.0 if seconds == 6000.0 else 1.0
    np.testing.assert_allclose(middle[index], (np.floor(rows["time"] / width) + 0.5) * width)


def test_the_median_of_users_breaks_where_nothing_was_served():
    ended = np.array([1.0, 3.0, 4.0, 67.0, 69.0])
    requests = {"request": np.arange(5), "finish": np.full(5, "end"), "output_tokens": np.full(5, 11)}
    requests |= {"first_token": ended - 1.0, "last_token": ended}
    median = live.interactivity(requests, apart()).data[1]
    assert median.x.tolist() == [1.0, 3.0, 4.0, 5.0, 67.0, 69.0]
    assert np.flatnonzero(np.isnan(median.y)).tolist() == [3]
    assert np.isfinite(live.interactivity(requests, steps(700)).data[1].y).all()


def test_the_lines_of_a_watched_server_break_where_it_was_not_read():
    time = np.repeat([1.0, 2.0, 3.0, 63.0, 64.0], 2)  # two engines
    rows = {"step": np.repeat(np.arange(5), 2), "time": time, "seconds": np.full(10, 1.0)}
    names = (
        "first_token_seconds",
        "first_tokens",
        "later_seconds",
        "later_outputs",
        "accepted",
        "draft_tokens",
    )
    rows |= dict.fromkeys(names, np.full(10, 4.0))
    calm = {name: values[:6] for name, values in rows.items()}
    for draw in (watched.acceptance, watched.latency):
        for trace in draw(rows).data:
            assert trace.x[np.isnan(trace.y)].tolist() == [4.0, 63.0]
        assert all(np.isfinite(trace.y).all() for trace in draw(calm).data)


def test_interactivity_is_of_whole_requests():
    requests = {
        "request": np.arange(3),
        "finish": np.array(["end", "cancelled", "length"]),
        "output_tokens": np.array([21, 50, 1]),
        "first_token": np.array([1.0, 1.0, 2.0]),
        "last_token": np.array([3.0, 3.0, 2.0]),
    }
    rates = live.request_rates(requests)
    assert rates[0] == 10.0 and np.isnan(rates[1:]).all()
    assert live.interactivity(requests, steps()).data[1].y == (10.0,)
    assert numbers.median(rates) == 10.0 and numbers.median(np.zeros(0)) is None


def test_headline_numbers_are_of_serving_blocks():
    found = numbers.headline(steps(), BLOCKS)
    assert found["steps"] == 80 and found["tokens_per_s"] == pytest.approx(80)
    assert found["step_ms"] == pytest.approx(100) and found["target_tokens"] == 10
    values = [value for _, value, _ in numbers.four(found)]
    assert values == pytest.approx([4 / 12, 4 / 6, 4 / 5, 2.0])
    nothing = numbers.headline({}, [])
    assert nothing["tokens_per_s"] is None and [value for _, value, _ in numbers.four(nothing)] == [None] * 4


def test_positions_are_nested_bars():
    rows = {"position": np.array([0, 1, 0]), "block": np.array([0, 0, 2]), "step": np.array([9, 9, 90])}
    rows |= {"scheduled": np.array([40, 40, 7]), "admitted": np.array([30, 10, 7])}
    rows |= {"accepted": np.array([20, 5, 7]), "labelled": np.array([30, 8, 7])}
    totals = numbers.by_position(rows, BLOCKS, None, {})
    assert [row["scheduled"] for row in totals] == [40, 40]
    figure = live.positions(totals, 10)
    assert [bar.name for bar in figure.data] == ["scheduled", "admitted", "accepted"]
    assert list(figure.data[1].y) == [3.0, 1.0] and figure.layout.barmode == "overlay"


def test_saved_time_follows_the_cost_table():
    table = np.array([0.0, 10, 10, 10, 14, 18, 22])
    assert saved_ms(table, 2, 5, 2) == pytest.approx(8.0)  # 5 tokens for 2
    assert saved_ms(table, 6, 4, 2) == pytest.approx(8.0)  # beyond the table the line goes on
    assert saved_ms(table, [2.5, 2.0], [1.0, 0.0], [0.5, 0.0]) == pytest.approx([0.0, 0.0])
    assert numbers.saved(steps(10), np.arange(40.0)) == pytest.approx(6.0)
    assert numbers.saved(steps(10), None) is None


def test_coefficients_by_refit():
    refits = {
        "arm": np.array(["adaptive"] * 4 + ["adaptive+depth"] * 2),
        "refit": np.array([0, 0, 1, 1, 0, 0]),
        "step": np.array([0, 0, 100, 100, 0, 0]),
        "position": np.array([0, 1, 0, 1, 0, 1]),
        "slope": np.array([0.5, 0.5, 0.8, 0.8, 0.5, 0.5]),
        "intercept": np.array([-0.2, -0.2, 0.1, -0.4, -0.2, -0.2]),
        "count": np.array([0, 0, 50, 20, 0, 0]),
        "positives": np.array([0, 0, 40, 10, 0, 0]),
    }
    assert coefficients.arms_of(refits) == ["adaptive+depth", "adaptive"]
    learnt = coefficients.of_arm(refits, "adaptive")
    assert learnt["slope"].tolist() == [0.5, 0.8] and learnt["intercepts"].tolist() == [
        [-0.2, -0.2],
        [0.1, -0.4],
    ]
    assert list(coefficients.slope(learnt, BLOCKS).data[0].y) == [0.5, 0.8]
    assert [trace.y[1] for trace in coefficients.intercepts(learnt).data] == [0.1, -0.4]
    assert [bar.y[0] for bar in coefficients.rounds(learnt).data] == [50, 20]
    figure = coefficients.curve(0.8, [0.1, -0.4], None)
    at_zero = np.argmin(np.abs(np.asarray(figure.data[0].x)))
    assert figure.data[0].y[at_zero] == pytest.approx(1 / (1 + np.exp(-0.1)), abs=0.02)
    assert coefficients.arms_of({}) == []


def sums_of(seed=0, slots=4000, K=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(0.5, 2, (slots, K))
    return bin_sums(x, rng.random((slots, K)) < 1 / (1 + np.exp(-x)))


def rows_of(sums_by_window):
    found = {name: [] for name in ("source", "bucket", "time", "position", "bin", *calibration_fields())}
    for (source, window), values in sums_by_window.items():
        position, number = np.nonzero(values[..., 0])
        found["source"] += [source] * len(position)
        found["bucket"] += [window] * len(position)
        found["time"] += [float(window + 1)] * len(position)
        found["position"] += position.tolist()
        found["bin"] += number.tolist()
        for column, name in enumerate(calibration_fields()):
            found[name] += values[position, number, column].tolist()
    return {name: np.asarray(values) for name, values in found.items()}


def calibration_fields():
    from avlab.speculation.calibration import FIELDS

    return FIELDS


def test_calibration_rows_become_the_sums_they_were():
    first, second, raw = sums_of(1), sums_of(2), sums_of(3)
    rows = rows_of({("online", 0): first, ("online", 4): second, ("raw", 4): raw})
    time, found = sums.over_windows(rows, "online", 3)
    assert time.tolist() == [1.0, 5.0]
    np.testing.assert_allclose(found, np.stack([first, second]))
    np.testing.assert_allclose(sums.of_source(rows, "raw", 3), raw)
    assert sums.sources_of(rows) == ["online", "raw"] and sums.over_windows(rows, "head", 3)[1].shape[0] == 0
    shared = sums.comparable(rows)
    np.testing.assert_allclose(sums.of_source(shared, "online", 3), second)
    assert sums.sources_of({}) == [] and sums.comparable({}) == {}


def test_reliability_has_intervals_around_the_observed_rate():
    figure = calibration.reliability_diagram({"online": sums_of().sum(axis=0)})
    points = figure.data[1]
    assert points.customdata.sum() == 12_000
    assert (points.error_y.array > 0).all() and np.abs(points.x - points.y).max() < 0.06
    small = calibration.by_position({"online": sums_of(slots=60)})
    assert len(small.data) == 6 and "60 slots" in texts(small)[0]
    assert max(len(trace.x) for trace in small.data) <= 3
    assert len(calibration.over_time({"online": (np.array([1.0]), sums_of()[None])}, "ece", None).data) == 2


def test_wilson_interval():
    low, high = wilson([0, 5, 10, 0], [10, 10, 10, 0])
    np.testing.assert_allclose(low, [0, 0.2366, 0.7225, 0], atol=1e-4)
    np.testing.assert_allclose(high, [0.2775, 0.7634, 1, 1], atol=1e-4)


STEP = {
    "survival": [0.9, 0.5, 0.1, None],
    "target_tokens": 4,
    "admitted": [2, 0],
    "running": 2,
    "emitting": 2,
    "budget": 2,
    "drafted": 2,
}
TABLES = CostTable(np.array([[0.0, 0.5, 1.0]] * 3), np.array([0.0, 10, 10, 10, 10, 30, 50, 70]))


def test_the_objective_has_its_peak_where_the_engine_would_put_it():
    curve = budget.curve_of(STEP, TABLES)
    np.testing.assert_allclose(curve, 1e3 * np.array([2 / 11, 2.9 / 11, 3.4 / 11, 3.5 / 31]))
    there = budget.objective_curve(STEP, TABLES, machine=("B300 × 4", TABLES))
    assert "emulated: B300 × 4" in [trace.name for trace in there.data]
    figure = budget.objective_curve(STEP, TABLES, 2.0, TABLES)
    assert [trace.text for trace in figure.data if trace.text] == [("  B* = 2",)] * 3
    assert "taken: 2" in texts(figure)
    assert "of drafts 2 deep" in figure.layout.xaxis.title.text
    shallow = budget.curve_of(STEP | {"drafted": 1}, TABLES)
    np.testing.assert_allclose(shallow, 1e3 * np.array([2 / 10.5, 2.9 / 10.5, 3.4 / 10.5, 3.5 / 30.5]))
    assert budget.curve_of(STEP | {"survival": []}, TABLES) is None
    assert "No step" in texts(budget.objective_curve(None, TABLES))[0]


def test_points_of_few_labels_are_faint_and_an_auc_has_bars():
    few, many = calibration.strength(np.array([30, 4000]))
    assert few < 0.3 and many == 1.0
    auc = calibration.measures_by_position({"online": sums_of(slots=60)}, "auc").data[0]
    half = np.asarray(auc.error_y.array, dtype=float)
    assert np.nanmin(half) > 0 and max(auc.marker.opacity) < 0.5
    assert (
        len(calibration.measures_by_position({"online": sums_of()}, "ece").data) == 2
    )  # with the noise floor


def test_the_error_of_an_auc_is_that_of_hanley_and_mcneil():
    assert auc_error(0.893, 51, 58) == pytest.approx(
        0.032, abs=1e-3
    )  # their rating data: AUC 0.893, error 0.032
    assert np.isnan(auc_error(0.9, 0, 58))


def test_what_the_curve_expects_is_put_beside_what_was_served():
    step = STEP | {"block": 1, "time": 20.0}
    rows = {"step": np.arange(3), "time": np.array([5.0, 15.0, 20.0]), "block": np.array([1, 1, 1])}
    rows |= {"seconds": np.array([1.0, 1.0, 1.0]), "paused": np.zeros(3), "tokens": np.array([9, 200, 400])}
    told = budget.against_served(step, TABLES, rows)
    assert "At the budget taken, 2, the curve expects 309 tokens/s" in told and "Live counted 300." in told
    assert budget.against_served(step, TABLES, rows | {"block": np.zeros(3)}) == ""
    assert budget.against_served(None, TABLES, rows) == budget.against_served(step, None, rows) == ""


def profile_of(table, samples):
    """A profile with these (requests, depth, ms) of drafts, and a flat cost of the target's pass."""
    rows = [("table", "draft", size, depth, ms) for size, depth, ms in table]
    rows += [("sample", "draft", size, depth, ms) for size, depth, ms in samples]
    rows += [("table", "verify", size, np.nan, 20.0) for size in (0, 1, 2)]
    return numbers.arrays(
        dict(zip(("form", "phase", "size", "depth", "ms"), zip(*rows, strict=True), strict=True))
    )


def test_drafts_are_compared_with_the_cost_of_their_own_depth():
    table = [(size, depth, size * depth) for size in range(3) for depth in range(4)]
    profile = profile_of(table, [(1, 1, 1.0), (2, 3, 6.5)])
    medians = {
        "phase": ["draft", "draft", "draft"],
        "size": [2, 2, 2],
        "depth": [2.0, 3.0, 1.0],
        "ms": [4.2, 6.1, 9.9],
        "steps": [9, 9, 2],
    }
    figure = budget.draft_costs(profile, numbers.arrays(medians))
    lines = {trace.name: list(trace.y) for trace in figure.data if trace.mode == "lines"}
    assert lines == {"depth 1": [0, 1, 2], "depth 2": [0, 2, 4], "depth 3": [0, 3, 6]}
    served = {trace.name: list(trace.y) for trace in figure.data if "serving" in trace.name}
    assert served == {"depth 2, while serving": [4.2], "depth 3, while serving": [6.1]}


def test_a_profile_of_depth_K_alone_counts_for_every_depth():
    tables = budget.tables_of(profile_of([(0, 3, 0.0), (1, 3, 4.0)], [(1, 3, 4.0)]))
    np.testing.assert_array_equal(tables.draft, [[0, 0, 0, 0], [0, 4, 4, 4]])
    assert budget.tables_of({}) is None


def test_the_heat_map_has_a_row_a_request():
    lengths = {"step": np.array([3, 3, 4]), "request": np.array([1, 2, 2]), "admitted": np.array([2, 0, 5])}
    grid = budget.admitted_map(lengths).data[0].z
    np.testing.assert_array_equal(grid, [[2, np.nan], [0, 5]])


def test_comparison_is_in_percent_of_the_baseline():
    run = {
        "label": "a",
        "policy": "none",
        "workload": "chat",
        "emulated": "",
        "tokens_per_s_per_user": 5.0,
        "tokens_per_step": 1.0,
    }
    runs = [
        run | {"tokens_per_s": 100.0, "ece": None},
        run | {"label": "b", "tokens_per_s": 120.0, "ece": 0.01},
    ]
    assert [row["against baseline, %"] for row in compare.against(runs, runs[0])] == [
        0.0,
        pytest.approx(20.0),
    ]
    assert len(compare.frontier(runs).data) == 2


@pytest.mark.parametrize(
    "figure",
    [
        lambda: live.throughput({}),
        lambda: live.interactivity({}, {}),
        lambda: live.acceptance({}),
        lambda: live.positions([], 0),
        lambda: live.ledger({}),
        lambda: calibration.reliability_diagram({}),
        lambda: calibration.by_position({}),
        lambda: calibration.over_time({}, "ece", None),
        lambda: budget.verify_costs({}, {}),
        lambda: budget.draft_costs({}, {}),
        lambda: budget.admitted_map({}),
        lambda: budget.budgets({}),
        lambda: compare.frontier([]),
        coefficients.none_learnt,
    ],
)
def test_nothing_to_show_is_said(figure):
    assert texts(figure())[0].endswith((".", ").")) or texts(figure())[0].endswith("starts.")


def test_colours_are_one_for_each_thing():
    assert len({palette.position(k, 8) for k in range(8)}) == 8
    assert len(set(palette.PHASES.values())) == len(palette.PHASES)
    assert palette.faint("#3f83f8", 0.5) == "rgba(63,131,248,0.5)"


FLAT, STEEP = np.full(200, 20.0), np.arange(200.0) + 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("adaptive", 100, 1000, 1000, 20, FLAT), "flat part"),
        (("adaptive", 100, 1000, 1000, 20, STEEP), "enough of them are accepted"),
        (("adaptive", 100, 1000, 1000, 20, []), "worth its cost"),
        (("adaptive", 100, 1000, 2, 20, FLAT), "admits almost no draft tokens"),
        (("adaptive", 100, 1000, 500, 20, FLAT), ""),
        (("fixed:4", 100, 1000, 1000, 20, FLAT), ""),
        (("adaptive", 10, 100, 100, 20, FLAT), ""),
        (("adaptive", 100, 0, 0, 20, FLAT), ""),
        (("adaptive+depth", 100, 0, 0, 20, FLAT), "adaptive+depth+explore"),
        (("adaptive+depth+explore=0.02", 100, 50, 50, 20, FLAT), "now and then."),
        (("adaptive+depth", 100, 1000, 1000, 20, FLAT), ""),
    ],
)
def test_a_banner_says_when_nothing_is_trimmed_or_nothing_admitted(arguments, word):
    found = diagnosis.sentence(*arguments)
    assert word in found and bool(found) == bool(word)


def test_what_exploration_costs_is_one_sentence():
    found = diagnosis.exploration(numbers.headline(steps(), BLOCKS))
    assert found == (
        "Exploration verified 160 draft tokens beyond the ranking: 33.3% of those admitted, 2.00 a step, for 0.25 ms a "
        "step by the costs it decides by."
    )
    assert diagnosis.exploration(numbers.headline({}, [])) == ""


def test_words_of_changes_that_are_close_stand_under_each_other():
    figure = base.frame("", "").add_trace(base.line("", [0.0, 100.0], [0.0, 0.0], "black"))
    marks = [(10.0, "window"), (12.0, "fixed:4"), (14.0, "adaptive"), (80.0, "none")]
    shifts = [word.yshift for word in base.mark(figure, marks).layout.annotations]
    assert shifts == [0, -13, -26, 0]
