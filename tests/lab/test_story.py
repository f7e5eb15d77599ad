"""The run of a first visit: its scenes, and that policy and load follow them until the reader takes over."""

import pytest

from avlab import story
from avlab.lab.lab import Lab
from avlab.lab.supervisor import WorkerError, WorkerStatus
from avlab.store import queries
from avlab.wire import commands


class FakeSupervisor:
    def __init__(self, lab):
        self.lab = lab

    def status(self):
        return WorkerStatus(run="r", state="serving" if self.lab.seconds < story.SECONDS else "ended")


class FakeLab:
    """A lab whose run's clock moves by a second at every look."""

    traffic = ("mixed", story.SCENES[0].arrival)

    def __init__(self, hands_off=None):
        self.seconds, self.policy, self.changes = 0.0, story.SCENES[0].policy, []
        self.supervisor, self.tally, self._hands_off = FakeSupervisor(self), self, hands_off

    def snapshot(self):
        self.seconds += 1.0
        if self._hands_off is not None and self.seconds > self._hands_off:
            self.policy = "none"
        return {"seconds": self.seconds, "policy": self.policy}

    def change(self, command):
        self.changes.append((self.seconds, command))
        match command:
            case commands.SetPolicy(arm):
                self.policy = arm
            case commands.SetWorkload(workload, arrival):
                self.traffic = (workload, arrival)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(story, "LOOK_SECONDS", 0.0)


def test_every_change_comes_at_its_scene():
    lab = FakeLab()
    story.direct(lab, "r", story.SCENES)
    assert lab.policy == story.SCENES[-1].policy and lab.traffic == ("mixed", story.SCENES[-1].arrival)
    due = {scene.begins for scene in story.SCENES[1:]}
    assert all(any(0 <= at - begin <= 3 for begin in due) for at, _ in lab.changes)
    policies = [command.arm for _, command in lab.changes if isinstance(command, commands.SetPolicy)]
    assert policies == ["fixed:7", story.DEFAULT_ARM, "fixed:2", story.DEFAULT_ARM]


def test_a_reader_who_changes_the_policy_has_taken_over():
    lab = FakeLab(hands_off=20.0)
    story.direct(lab, "r", story.SCENES)
    assert all(at <= 20.0 for at, _ in lab.changes)


def test_a_run_that_has_ended_is_left_alone():
    lab = FakeLab()

    def refuse(command):
        raise WorkerError("over")

    lab.change = refuse
    story.direct(lab, "r", story.SCENES)
    story.direct(lab, "another", story.SCENES)


def test_scenes_follow_each_other_and_end_before_the_run_does():
    begins = [scene.begins for scene in story.SCENES]
    assert begins[0] == 0.0 and begins == sorted(begins) and begins[-1] < story.SECONDS
    assert story.scene_at(-1.0) is story.SCENES[0] and story.scene_at(1e9) is story.SCENES[-1]
    assert story.scene_at(begins[2]) is story.SCENES[2]


def test_the_run_is_known_by_its_settings():
    config = story.configuration()
    description = {"kind": "replay", "config": config.model_dump()}
    assert story.is_story(description)
    assert not story.is_story(description | {"kind": "reference"})
    assert not story.is_story({"kind": "replay", "config": config.model_dump() | {"seed": 8}})


@pytest.mark.slow
def test_the_replay_follows_the_scenes(tmp_path, monkeypatch):
    scenes = [
        story.Scene(0.0, story.DEFAULT_ARM, 4, "", ""),
        story.Scene(1.0, story.DEFAULT_ARM, 32, "", ""),
        story.Scene(2.0, "fixed:7", 32, "", ""),
    ]
    monkeypatch.setattr(story, "SCENES", scenes)
    monkeypatch.setattr(story, "SECONDS", 4.0)
    monkeypatch.setattr(story, "LOOK_SECONDS", 0.05)
    with Lab(tmp_path / "lab.duckdb") as lab:
        run = story.play(lab)
        assert lab.supervisor.wait(120)
        with lab.database.cursor() as con:
            blocks = queries.blocks(con, run)
    assert [block["arm"] for block in blocks] == [story.DEFAULT_ARM, story.DEFAULT_ARM, "fixed:7"]
