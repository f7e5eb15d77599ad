"""Arrivals, with time given by the test: a closed loop, Poisson, bursts, replay, and what is refused."""

import math
import statistics

import pytest

from avlab.workloads import Moment, WorkloadError, open_arrivals
from avlab.workloads.arrivals import PATTERNS, poisson


def times_of(pattern, until=math.inf, seed=0):
    return open_arrivals(pattern, seed).due(Moment(seconds=until))


def test_a_closed_loop_fills_the_places_that_are_free():
    arrivals = open_arrivals("closed:8")
    assert arrivals.due(Moment(0.0)) == [0.0] * 8
    assert arrivals.due(Moment(1.0, running=8)) == []
    assert arrivals.due(Moment(2.5, running=5, waiting=1)) == [2.5, 2.5]
    assert arrivals.due(Moment(3.0, running=20)) == []
    assert arrivals.wait(Moment(3.0)) == 0.0 and not arrivals.exhausted


@pytest.mark.parametrize(
    ("pattern", "unit"), [("closed:4,64,4@60s", "seconds"), ("closed:4,64,4@60steps", "steps")]
)
def test_the_load_of_a_closed_loop_steps(pattern, unit):
    arrivals = open_arrivals(pattern)

    def missing(now, running=0):
        moment = Moment(**{"seconds": 1e6, "steps": 10**6} | {unit: now})
        return len(arrivals.due(moment._replace(running=running)))

    assert [missing(now) for now in (0, 59, 60, 119, 120, 9000)] == [4, 4, 64, 64, 4, 4]
    assert missing(60, running=4) == 60
    assert missing(120, running=64) == missing(150, running=4) == 0 and missing(151, running=3) == 1


@pytest.mark.parametrize("rate", [0.2, 3.0, 250.0])
def test_poisson_arrivals_have_exponential_gaps(rate):
    count = 6000
    times = times_of(f"poisson:{rate}", until=count / rate)
    gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    assert abs(len(times) - count) < 4 * math.sqrt(count)
    assert statistics.fmean(gaps) == pytest.approx(1 / rate, rel=4 / math.sqrt(count))
    assert statistics.pstdev(gaps) == pytest.approx(1 / rate, rel=0.06)  # an even spacing would have none
    assert sum(gap > 1 / rate for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.025)
    lagged = statistics.correlation(gaps[:-1], gaps[1:])
    assert abs(lagged) < 4 / math.sqrt(count)


def test_poisson_counts_in_equal_windows_vary_as_poisson_counts_do():
    times = times_of("poisson:10", until=1000.0)
    counts = [0] * 1000
    for time in times:
        counts[int(time)] += 1
    assert statistics.pvariance(counts) / statistics.fmean(counts) == pytest.approx(1.0, abs=0.18)


def test_poisson_depends_on_its_seed_alone_and_not_on_how_often_it_is_asked():
    at_once = times_of("poisson:5", until=40.0, seed=3)
    often = open_arrivals("poisson:5", seed=3)
    asked = [time for tick in range(4001) for time in often.due(Moment(tick / 100, running=tick % 7))]
    assert asked == at_once
    assert at_once != times_of("poisson:5", until=40.0, seed=4)
    assert at_once == sorted(at_once)


def test_an_open_loop_does_not_care_how_busy_the_engine_is():
    assert len(open_arrivals("poisson:5").due(Moment(40.0, running=500, waiting=500))) == len(
        times_of("poisson:5", 40.0)
    )


def test_an_open_loop_says_how_long_to_wait():
    arrivals = poisson(0.5, seed=1)
    wait = arrivals.wait(Moment(0.0))
    assert wait > 0 and arrivals.due(Moment(wait * 0.999)) == []
    assert arrivals.due(Moment(wait)) == [wait]
    assert arrivals.wait(Moment(1e6)) == 0.0


def test_arrivals_in_steps_take_no_notice_of_seconds():
    def run(seconds_a_step):
        arrivals = open_arrivals("poisson:0.3/step", seed=2)
        return [len(arrivals.due(Moment(step * seconds_a_step, step))) for step in range(500)]

    slow, fast = run(1.7), run(0.001)
    assert slow == fast and 100 < sum(slow) < 200
    assert open_arrivals("poisson:0.3/step").wait(Moment(0.0)) == 0.0
    late = open_arrivals("poisson:0.3/step").due(Moment(seconds=12.0, steps=50))
    assert set(late) == {12.0}


def test_a_burst_comes_at_once_and_ends():
    arrivals = open_arrivals("burst:64")
    assert arrivals.due(Moment(0.0)) == [0.0] * 64
    assert arrivals.exhausted and arrivals.due(Moment(99.0)) == [] and arrivals.wait(Moment(99.0)) is None


def test_a_burst_can_come_again():
    assert times_of("burst:3@10s", until=25.0) == [0.0] * 3 + [10.0] * 3 + [20.0] * 3
    arrivals = open_arrivals("burst:2@100steps")
    assert [len(arrivals.due(Moment(0.5 * step, step))) for step in (0, 99, 100, 350)] == [2, 0, 2, 4]


def test_replay_counts_from_the_first_time_and_can_run_faster():
    times = [100.0, 100.0, 103.0, 108.5]
    assert open_arrivals("replay", times=times).due(Moment(1e9)) == [0.0, 0.0, 3.0, 8.5]
    faster = open_arrivals("replay:2x", times=times)
    assert faster.due(Moment(1.5)) == [0.0, 0.0, 1.5]
    assert faster.wait(Moment(2.25)) == 2.0 and not faster.exhausted
    assert faster.due(Moment(4.25)) == [4.25] and faster.exhausted


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("poisson:0", "poisson:0 is no usable rate"),
        ("poisson:-2", "poisson:-2 is no usable rate"),
        ("poisson:inf", "poisson:inf is no usable rate"),
        ("poisson:nan", "no usable rate"),
        ("poisson:1e9", r"above 0 and up to 10000"),
        ("poisson:-1/step", "requests a step"),
        ("poisson:fast", "needs a number where it says 'fast'"),
        ("poisson:3/hour", "no arrival pattern 'poisson:3/hour'"),
        ("closed:0", "closed:0 is no usable number of requests"),
        ("closed:-4", "a whole one from 1 to 100000"),
        ("closed:2.5", "a whole one"),
        ("closed:1e12", "a whole one"),
        ("closed:nan", "a whole one"),
        ("closed:4,64@0s", "cannot step every 0 seconds"),
        ("closed:4,0@9s", "closed:0 is no usable number"),
        ("closed:4,@9s", "needs a number where it says ''"),
        ("closed:4,64@9h", "needs a number where it says '4,64@9h'"),
        ("closed:4,64", "needs a number where it says '4,64'"),
        ("burst:0", "burst:0 is no usable number"),
        ("burst:5@0s", "cannot come every 0 seconds"),
        ("burst:5@-1steps", "cannot come every -1 steps"),
        ("burst:5@1h", "no arrival pattern"),
        ("replay", "needs a file"),
        (
            "steady:4",
            r"no arrival pattern 'steady:4'; the known ones are closed:N, poisson:RATE, burst:N, replay",
        ),
        ("closed", "no arrival pattern 'closed'"),
        ("closed:", "no arrival pattern"),
        ("", "no arrival pattern ''"),
    ],
)
def test_absurd_patterns_are_refused_in_one_sentence(pattern, complaint):
    with pytest.raises(WorkloadError, match=complaint) as caught:
        open_arrivals(pattern)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


@pytest.mark.parametrize("speed", ["0", "-1", "inf", "nan"])
def test_an_absurd_replay_speed_is_refused(speed):
    with pytest.raises(WorkloadError, match="no usable speed"):
        open_arrivals(f"replay:{speed}x", times=[0.0, 1.0])


def test_the_listed_patterns_are_the_ones_that_open():
    for pattern in PATTERNS:
        example = pattern.replace("N", "4").replace("RATE", "2.5")
        assert open_arrivals(example, times=[0.0]).due(Moment(10.0))
