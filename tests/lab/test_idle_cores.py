"""How many processes a sweep gets: idle cores among those that it may use, whatever the rest of the machine does."""

import pytest

from avlab import processes


@pytest.fixture
def on(monkeypatch):
    """A machine of so many processors, of which this process may use some, under a quota or none."""

    def described(allowed, quota=None, physical=64):
        monkeypatch.setattr(processes.psutil, "cpu_count", lambda logical=True: physical)
        monkeypatch.setattr(processes.os, "sched_getaffinity", lambda pid: set(allowed), raising=False)
        monkeypatch.setattr(processes, "_quota", lambda: quota)

    return described


def looked(loads):
    """Answers with these loads, and notes how long it was asked to look."""
    asked = []

    def busy(seconds):
        asked.append(seconds)
        return loads[min(len(asked), len(loads)) - 1]

    return busy, asked


def test_an_idle_machine_is_believed_at_once(on):
    on(range(2), physical=2)
    busy, asked = looked([[3.0, 11.0]])
    assert processes.idle_cores(1.0, busy) == 2 and asked == [0.1]


def test_a_moment_of_work_is_looked_at_for_a_second(on):
    on(range(2), physical=2)
    busy, asked = looked([[100.0, 100.0], [4.0, 6.0]])
    assert processes.idle_cores(1.0, busy) == 2 and sum(asked) == pytest.approx(1.0)
    assert processes.idle_cores(1.0, looked([[100.0, 0.0]])[0]) == 1
    assert processes.idle_cores(1.0, looked([[100.0, 100.0]])[0]) == 1


def test_work_outside_the_affinity_takes_nothing(on):
    on([4, 5])
    loads = [100.0] * 64
    loads[4] = loads[5] = 0.0
    assert processes.idle_cores(1.0, looked([loads])[0]) == 2
    assert processes.idle_cores(1.0, looked([[100.0 - each for each in loads]])[0]) == 1


def test_a_quota_bounds_what_a_half_busy_machine_leaves(on):
    on(range(64), quota=2.0)
    assert processes.idle_cores(1.0, looked([[60.0] * 64])[0]) == 2


def test_two_threads_a_core_count_as_one(on):
    on(range(16), physical=8)
    assert processes.idle_cores(1.0, looked([[100.0] * 8 + [0.0] * 8])[0]) == 4
