"""What the command line prints: ids that can be pasted, and counts that say what they count."""

import pytest
from answers import ab_answer, recorded_plan
from rich.console import Console

from avlab.commands import terminal, terminal_ab
from avlab.experiments.answers import Comparison
from avlab.store.ids import new_run_id


@pytest.fixture
def printed(capsys, monkeypatch):
    """A function that shows something on a terminal of a width and gives the text."""

    def show(what, value, width):
        monkeypatch.setattr(terminal, "answers", lambda: Console(highlight=False, width=width))
        what(value)
        return capsys.readouterr().out

    return show


def listed(policy, **changes):
    return {
        "run_id": new_run_id(), "emulated": "", "started": 1_780_000_000.0, "state": "cut short", "policy": policy,
        "workload": "mixture:code=2,verse=1", "duration_s": 12345.0, "steps": 123456, "tokens": 12345678,
    } | changes  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 109, 110, 120, 200])
@pytest.mark.parametrize(
    "policy", ["none", "frontier of adaptive+depth+explore=0.02, fixed:5, none at 7 loads"]
)
def test_an_id_is_never_cut_off(printed, width, policy):
    runs = [listed(policy), listed("adaptive")]
    lines = printed(terminal.show_runs, runs, width).splitlines()
    assert "…" not in "".join(lines)
    names = [line.split()[0] for line in lines if line[:1].strip()][1:]
    ends = 36 if width >= 110 else 8
    assert names == [run["run_id"][-ends:] for run in runs]


def test_what_was_served_says_apart_what_was_not():
    block = {"kind": "serve", "steps": 6, "tokens": 25}
    summary = {"steps": 6, "tokens": 25, "requests": 1234, "refused": 26, "cancelled": 0, "blocks": [block]}
    assert terminal.served(summary) == "6 steps, 25 tokens, 1,234 requests finished, 26 refused"
    windows = [{"kind": "window", "steps": 10, "tokens": 299}] * 2
    idle = {"kind": "playground", "steps": 0, "tokens": 0}
    text = terminal.served(summary | {"refused": 0, "cancelled": 16, "blocks": [block, *windows, idle]})
    assert text == (
        "6 steps, 25 tokens, 1,234 requests finished, 16 cancelled; not counted: 20 steps, 598 tokens of kind window"
    )


DEFAULT = "adaptive:converged+depth+stop"


def test_as_much_as_stands_in_one_line_is_said():
    parts = ["8 of 60 rounds, about 4 min to go", f"{DEFAULT} 1.022 [0.966 to 1.081]", "adaptive 0.821"]
    assert terminal.fitting(parts, 119) == ", ".join(parts)
    assert terminal.fitting(parts, 90) == ", ".join(parts[:2]) + " …"
    assert terminal.fitting(parts, 40) == parts[0]
    assert terminal.fitting(parts, 12) == "8 of 60 rou…"
    assert "\n" not in terminal.fitting(["two\nlines", "\x1b[31m"], 80)


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_no_line_of_progress_is_longer_than_the_terminal(monkeypatch, width):
    results = [
        Comparison(arm=arm, rounds=8, ratio=1.02, low=0.91, high=1.14)
        for arm in (DEFAULT, "adaptive", "none")
    ]
    answer = ab_answer(plan=recorded_plan(), rounds=8, results=results, emulated="emulated: B300")
    tally = {
        "steps": 10, "state": "serving", "policy": DEFAULT, "recent_tokens_per_s": 490.0, "tokens_per_step": 2.1,
        "running": 16, "conditional_acceptance": [0.6, 0.5] * 4, "slope": 0.5, "intercepts": [-2.0] * 7, "refits": 9,
        "engines": {}, "seconds": 3.0, "tokens": 9, "requests": 1, "emulated": False,
    }  # fmt: skip
    console = Console(width=width, force_terminal=True)
    monkeypatch.setattr(terminal, "errors", lambda: console)
    for display in (
        terminal.RunDisplay({"duration": 60.0}),
        terminal_ab.ABDisplay(recorded_plan(), lambda: answer),
    ):
        display.show(tally)
        said = display._progress.tasks[0].description
        assert said and len(said) <= max(width - terminal.BAR - terminal.AROUND_BAR, 1)
