"""A run as one HTML file that needs nothing else: settings, verdict, charts that zoom, ledger, definitions, machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from avlab.escaping import figure_without_links, in_html, in_script
from avlab.experiments.analysis import analyse
from avlab.experiments.answers import ABAnswer, FrontierAnswer, Objective
from avlab.experiments.frontier_analysis import analyse_frontier
from avlab.experiments.plan import DESIGNS
from avlab.experiments.words import (
    RATIO,
    adjustment,
    blocks_of,
    errors_together,
    requests,
    rounds,
    until,
)
from avlab.figures import ab, calibration, coefficients, frontier, live, numbers, sums
from avlab.files import write_new
from avlab.formats import counted, moment, number, share
from avlab.store import queries
from avlab.store.feeds import Feed

PRIVATE = ("database",)  # a setting that says more of the machine's owner than of the run

# of columns behind the point
DIGITS = dict.fromkeys(("tokens/s", "one user", "p50, ms", "p95, ms", "first, ms"), 1) | {"tokens a step": 2}

DEFINITIONS = {
    "throughput, tokens/s": "output tokens a second, of all requests together. Of an arm in an A/B: the tokens of its "
    "counted blocks over their seconds, adjusted for prompts where it says so. At a point of a "
    "frontier: the geometric mean of its repeats, around which its bars lie; the ledger adds the repeats up",
    "one user, interactivity": "output tokens a second for one user: the median over requests; at a point of a "
    "frontier the geometric mean of its repeats' medians",
    "p50, p95, first": "milliseconds for an output token, and to the first one",
    "scheduled, admitted, accepted": "draft tokens that were made, that the target verified, that were kept",
    "drafted in vain, verified in vain": "draft tokens made and not verified; verified and not kept",
    "conditional acceptance": "of the draft tokens whose forerunners were all kept, those kept",
    "tokens per step": "tokens that a request gains in a step in which it gains any; 1 without drafts",
    "round, block": "a round serves every arm once, in random order; a block is a run of steps under one arm",
    "ratio": RATIO,
    "watched 95 %": "valid at all rounds at once, so an experiment may be watched and stopped at any time: a betting "
    "test on the sign of each round's log ratio, which the random order makes a fair coin if the arms are equal; the "
    "interval is what the test does not refute",
    "planned 95 %": "Student's interval, for one look at the end of a number of rounds planned beforehand",
    "dominated": "another point is at least as good in throughput and interactivity, and better in one",
    "if all were verified": "what the target's pass with every draft token would have cost more, by the cost table",
}

STATIC = Path(__file__).with_name("report_static")
STYLE = (STATIC / "report.css").read_text(encoding="utf-8")
SCRIPT = (STATIC / "report.js").read_text(encoding="utf-8")

Chart = tuple[str, str, go.Figure]  # title, what to read from it, figure


def write_report(con: duckdb.DuckDBPyConnection, run: str, path: Path, slo: Objective | None = None) -> None:
    """Write the report of a run to a new file. Raises UnknownRun, and FileError where it cannot be written."""
    write_new(path, lambda: report(con, run, slo))


def report(con: duckdb.DuckDBPyConnection, run: str, slo: Objective | None = None) -> str:
    """The HTML of a run; slo: within which its A/B or frontier names the best arm. Raises UnknownRun."""
    about = queries.describe(con, run)
    feed = Feed(run)
    feed.refresh(con)
    parts, charts = _experiment(con, run, slo) or ([], [])
    parts = [*parts, *_headline(con, feed, about["emulated"])]
    charts += _serving(con, feed, about["K"])
    if emulation := about["emulated"]:
        said = f"All speeds, times and costs of this run are {emulation}. Its text is exact; the costs are a table's."
        parts = [f"<p class='why'>{in_html(said)}</p>", *parts]
        charts = [(f"{title}, emulated", reading, figure) for title, reading, figure in charts]
    config = {
        name: value for name, value in about["config"].items() if name not in PRIVATE and value is not None
    }
    machine = {**about["machine"], **about["machine"].get("versions", {})}
    machine.pop("versions", None)
    models = {
        name: about[name]
        for name in ("target", "target_hash", "drafter", "drafter_hash", "cost_hash", "code")
    }
    body = [
        f"<h1>avlab: run {in_html(about['run_id'][-8:])}</h1>",
        f"<p class='quiet'>{in_html(about['run_id'])} · {moment(about['started'])} · {in_html(about['state'])}</p>",
        *parts,
        *(_chart(place, chart) for place, chart in enumerate(charts)),
        "<h2>Settings</h2>", _pairs(config),
        "<h2>Models and code</h2>", _pairs(models),
        "<h2>Machine</h2>", _pairs(machine),
        "<h2>Definitions</h2>", _pairs(DEFINITIONS),
    ]  # fmt: skip
    return _page(f"avlab run {about['run_id'][-8:]}", "\n".join(body), charts)


def _experiment(
    con: duckdb.DuckDBPyConnection, run: str, slo: Objective | None
) -> tuple[list[str], list[Chart]] | None:
    """What an A/B or a frontier says, and its charts; None for a run that has neither."""
    if run in queries.experiment_runs(con):
        return _ab(analyse(con, run, slo))
    if run in queries.experiment_runs(con, frontier=True):
        return _frontier(analyse_frontier(con, run, slo))
    return None


def _ab(answer: ABAnswer) -> tuple[list[str], list[Chart]]:
    plan = answer.plan
    first, *others = map(in_html, answer.verdicts)
    plan_text = (
        f"{plan.design}: {DESIGNS[plan.design]} {answer.rounds} of {rounds(plan.rounds)}, "
        f"{blocks_of(plan)}, {requests(plan.concurrency)} under way, order of arms drawn with seed {plan.seed}."
    )
    intervals = " ".join(filter(None, (adjustment(answer), errors_together(answer), until(answer))))
    parts = [
        f"<p class='verdict'>{first}</p>",
        *(f"<p>{sentence}</p>" for sentence in others),
        *(f"<p class='why'>{in_html(reason.text)}</p>" for reason in answer.why),
        *_emulated(answer),
        _table(ab.table(answer)),
        f"<p class='quiet'>{in_html(intervals)}</p>",
        f"<p class='quiet'>{in_html(plan_text)}</p>",
        f"<h2>Ledger{', emulated' if answer.emulated else ''}</h2>",
        _table(ab.ledger_table(answer), digits=0),
    ]
    title = f"Ratio to {plan.baseline}, round by round"
    reading = "Line: estimate so far. Band: 95 % interval, valid at all rounds at once. Dots: single rounds."
    return parts, [
        (title, reading, ab.ratios(answer)),
        ("Where the time goes", "Diamonds: the time if every draft token were verified.", ab.ledger(answer)),
        ("What became of draft tokens", "Drafting is paid for all of them.", ab.drafts(answer)),
    ]


def _emulated(answer: ABAnswer | FrontierAnswer) -> list[str]:
    """What stands over a table of speeds, where they are emulated."""
    return [f"<p>Rates and times: {in_html(answer.emulated)}.</p>"] if answer.emulated else []


def _frontier(answer: FrontierAnswer) -> tuple[list[str], list[Chart]]:
    parts = [f"<p>{in_html(sentence)}</p>" for sentence in answer.sentences]
    plan = answer.plan
    plan_text = (
        f"{plan.design}: {DESIGNS[plan.design]} {counted(answer.repeats, 'whole repeat')} of "
        f"{len(plan.arms)} cells (an arm under a load), in an order drawn with seed {plan.seed}; "
        f"{blocks_of(plan)}; adaptive arms learn for {counted(plan.learn, 'step')} first; "
        f"{counted(len(answer.runs), 'run')}."
    )
    parts += [
        *_emulated(answer),
        _table(frontier.table(answer.points)),
        f"<p class='quiet'>{in_html(plan_text)}</p>",
        f"<h2>Ledger, per 1,000 output tokens{', emulated' if answer.emulated else ''}</h2>",
        _table(frontier.ledger_table(answer.points), digits=0),
    ]
    reading = (
        "Up and to the right is better; faint points are dominated. Bars: 95 % over repeats, from three on."
    )
    return parts, [("Throughput against interactivity", reading, frontier.frontier(answer.points))]


def _serving(con: duckdb.DuckDBPyConnection, feed: Feed, K: int) -> list[Chart]:
    """The charts of every run."""
    steps, rows = feed.steps, feed.calibration(con)
    totals = numbers.by_position(feed.positions(con), feed.blocks, None, steps)
    headline = numbers.headline(steps, feed.blocks)
    estimates = {name: sums.of_source(rows, name, K).sum(axis=0) for name in sums.sources_of(rows)}
    return [
        ("Throughput", "Output tokens of all requests together.", live.throughput(steps, feed.blocks)),
        ("Draft tokens by position", "Made, verified, kept.", live.positions(totals, headline["steps"])),
        ("Where a step's time goes", "Mean of each part of a step.", live.ledger(steps)),
        *_learnt(con, feed),
        (
            "Calibration",
            "On the diagonal, estimates mean what they say. Bars are 95 % intervals; points of few labels are faint.",
            calibration.reliability_diagram(estimates),
        ),
    ]


def _headline(con: duckdb.DuckDBPyConnection, feed: Feed, emulated: str) -> list[str]:
    """The run's numbers over all that it served."""
    found = numbers.headline(feed.steps, feed.blocks)
    if not found["steps"]:
        return []
    one_user = numbers.median(live.request_rates(feed.requests(con)))
    rows = {
        "throughput, tokens/s": number(found["tokens_per_s"], 1),
        "one user, tokens/s (median)": number(one_user, 1),
        "step, ms": number(found["step_ms"], 1),
        "output tokens": f"{found['tokens']:,.0f}",
        "steps": f"{found['steps']:,.0f}",
    }
    rows |= {
        name: number(value, 2) if name == "tokens per step" else share(value)
        for name, value, _ in numbers.four(found)
    }
    return [f"<h2>Headline{', emulated' if emulated else ''}</h2>", _pairs(rows)]


def _learnt(con: duckdb.DuckDBPyConnection, feed: Feed) -> list[Chart]:
    """What the estimator of the latest arm has learnt, if any has."""
    refits = feed.refits(con)
    arms = coefficients.arms_of(refits)
    if not arms:
        return []
    learnt = coefficients.of_arm(refits, arms[0])
    told = (
        coefficients.stuck(learnt) or coefficients.runaway(learnt) or "At 1 the confidence needs no scaling."
    )
    return [
        (f"Slope of {arms[0]}", told, coefficients.slope(learnt, feed.blocks)),
        (
            f"Intercepts of {arms[0]}",
            "How much likelier or less likely a position is accepted than w·f alone says.",
            coefficients.intercepts(learnt, feed.blocks),
        ),
    ]


def _chart(place: int, chart: Chart) -> str:
    title, reading, figure = chart
    height = figure.layout.height or 300
    name = in_html(title)
    return (
        f"<h2>{name}</h2><div id='chart-{place}' role='img' aria-label='{name}' style='height:{height}px'></div>"
        f"<p class='quiet'>{in_html(reading)}</p>"
    )


def _table(rows: list[dict[str, Any]], digits: int = 3) -> str:
    if not rows:
        return ""
    side = {
        name: " class='number'" if isinstance(value, int | float) else "" for name, value in rows[0].items()
    }
    head = "".join(f"<th{side[name]}>{in_html(name)}</th>" for name in rows[0])
    lines = (
        "".join(
            f"<td{side[name]}>{in_html(_shown(value, DIGITS.get(name, digits)))}</td>"
            for name, value in row.items()
        )
        for row in rows
    )
    return f"<div class='wide'><table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table></div>"


def _shown(value: Any, digits: int) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    return "–" if value is None else str(value)


def _pairs(values: Mapping[str, Any]) -> str:
    def shown(value: Any) -> str:
        return in_html(_shown(value, 3) if isinstance(value, bool) else str(value))

    lines = (f"<tr><th>{in_html(name)}</th><td>{shown(value)}</td></tr>" for name, value in values.items())
    return f"<div class='wide'><table>{''.join(lines)}</table></div>"


def _page(title: str, body: str, charts: list[Chart]) -> str:
    figures = {
        f"chart-{place}": json.loads(figure_without_links(figure.to_json()))
        for place, (_, _, figure) in enumerate(charts)
    }
    data = in_script(figures)
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{in_html(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n"
        f"<script type='application/json' id='figures'>{data}</script>\n"
        f"<script>{get_plotlyjs()}</script>\n<script>{SCRIPT}</script>\n</body></html>\n"
    )
