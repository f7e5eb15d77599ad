"""A published frontier: read from a CSV, and laid over one of ours."""

import pytest
from answers import point

from avlab.experiments.published import (
    PUBLISHED,
    FrontierFileError,
    PublishedPoint,
    read_frontier,
    scaled,
    shared_loads,
)
from avlab.figures import frontier as figures_frontier


def test_the_published_frontier_is_laid_on_our_own_no_speculation_point():
    published = read_frontier(PUBLISHED.read_text(encoding="utf-8"))
    assert {p.arm for p in published} >= {"adaptive", "fixed:5", "none"}
    shown = scaled(published, [point("none", 2, 70.0, 35.0), point("none", 16, 200.0, 25.0)])
    base = next(p for p in shown if (p.arm, p.load) == ("none", 16))  # the lowest load of both
    assert (base.tokens_per_s, base.interactivity) == (pytest.approx(200.0), pytest.approx(25.0))
    adaptive = next(p for p in shown if (p.arm, p.load) == ("adaptive", 1))
    assert adaptive.interactivity == pytest.approx(25.0 * 271.9 / 71.8)
    assert scaled(published, [point("none", 2, 70.0, 35.0)]) == []
    assert scaled(published, [point("adaptive", 1, 1, 1)]) == []


def test_published_arms_are_told_apart_and_carry_their_loads():
    published = read_frontier(PUBLISHED.read_text(encoding="utf-8"))
    own = [point("adaptive", 1, 30.0, 30.0), point("none", 1, 20.0, 20.0), point("none", 4, 40.0, 10.0)]
    figure = figures_frontier.frontier(own, scaled(published, own), logarithmic=True)
    mine, theirs = figure.data[:2], figure.data[2:]
    assert [trace.name for trace in mine] == ["adaptive", "none"] and len(theirs) == 7
    assert {trace.text for trace in theirs} == {("1", "16", "32", "64", "128", "256")}
    assert all("text" in trace.mode for trace in theirs)
    looks = [(trace.line.color, trace.line.dash, trace.marker.symbol) for trace in theirs]
    assert len(set(looks)) == len(looks)
    assert theirs[0].line.color == mine[0].marker.color[0]  # an arm of both has one colour
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    many = [point(f"fixed:{k}", load, 20.0, 20.0) for k in range(20) for load in (1, 4)]
    looks = [(t.line.color, t.line.dash, t.marker.symbol) for t in figures_frontier.frontier(own, many).data]
    assert len(set(looks)) == len(looks) == 22
    assert figures_frontier.frontier(own).layout.xaxis.type is None


HEAD = "# a source\narm,concurrency,tok_s_user,tok_s\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"The CSV is empty: it needs the columns .*\."),
        ("# only a comment\n\n", r"The CSV is empty: .*\."),
        ("a,b\n1,2", r"lacks arm, concurrency, tok_s_user, tok_s: .*\."),
        (HEAD, r"no points of the arm none.*\."),
        (HEAD + "none,one,2,3", r"line 3: concurrency is 'one'; it must be a whole number from 1\."),
        (HEAD + "none,1,2,3\n\nnone,0,2,3", r"line 5: concurrency is '0'; .*\."),
        (HEAD + "none,1.5,2,3", r"line 3: concurrency is '1\.5'; .*\."),
        (HEAD + "none,-4,2,3", r"line 3: concurrency is '-4'; .*\."),
        (HEAD + "none,1,0,0", r"line 3: tok_s_user is '0'; it must be a number above 0\."),
        (HEAD + "none,1,2,nan", r"line 3: tok_s is 'nan'; .*\."),
        (HEAD + "none,1,2,3\nadaptive,1,inf,3", r"line 4: tok_s_user is 'inf'; .*\."),
        (HEAD + "none,1,-2,3", r"line 3: tok_s_user is '-2'; .*\."),
        (HEAD + "none,1,2", r"line 3: tok_s is ''; .*\."),
        (HEAD + ",1,2,3", r"line 3: arm is empty; .*\."),
        (HEAD + "none,1,2,3\nnone,1,2,4", r"line 4: none with concurrency 1 stands there twice\."),
        (HEAD + '"' + 200_000 * "x", r"The CSV cannot be read .*\."),
    ],
)
def test_a_csv_without_a_frontier_is_refused_with_the_line_that_is_wrong(text, sentence):
    with pytest.raises(FrontierFileError, match=sentence) as refused:
        read_frontier(text)
    assert "\n" not in str(refused.value)


def test_a_csv_as_a_spreadsheet_writes_it_is_read():
    text = "\ufeff# a source\r\nconcurrency,arm, tok_s ,tok_s_user,note\r\n1,none,30,30.5,slow\r\n,,,,\r\n"
    assert read_frontier(text) == [PublishedPoint("none", 1, tokens_per_s=30.0, interactivity=30.5)]


def test_a_published_frontier_is_laid_on_ours_at_the_load_that_is_asked_for():
    published = [point("none", 1, 100.0, 100.0), point("none", 4, 200.0, 50.0), point("a", 4, 300.0, 75.0)]
    own = [point("none", 4, 20.0, 5.0), point("none", 1, 10.0, 10.0), point("none", 2, 15.0, 7.5)]
    assert shared_loads(published, own) == [1, 4]
    for load, expected in ((None, 30.0), (1, 30.0), (4, 30.0), (3, 30.0)):
        assert scaled(published, own, load)[-1].tokens_per_s == pytest.approx(expected)
    other = [point("none", 4, 40.0, 5.0), point("none", 1, 10.0, 10.0)]
    assert scaled(published, other, 4)[-1].tokens_per_s == pytest.approx(60.0)
    assert scaled(published, other, 1)[-1].tokens_per_s == pytest.approx(30.0)
