"""The scenes of the tour: each position has a view, quickly, and what it says is true of its data."""

import re
import time

import numpy as np
import pytest

from avlab.speculation.calibration import scores
from avlab.tour import all_scenes, lanes, material
from avlab.tour.scenes import calibration, learning, machine

SPEED = re.compile(r"\d (tokens a second|tokens/s|ms\b|milliseconds)")


def test_there_are_eight_scenes_in_order_with_names_of_their_own():
    found = all_scenes()
    assert [scene.order for scene in found] == list(range(1, 9))
    assert len({scene.name for scene in found}) == 8


@pytest.mark.parametrize("scene", all_scenes(), ids=lambda scene: scene.name)
def test_every_position_has_a_view_with_data_and_says_what_is_emulated(scene):
    views = [scene.draw(place) for place in range(len(scene.control.options))]
    assert 0 <= scene.control.at < len(views)
    assert len(scene.notes) >= 3
    for view in views:
        assert view.figure.data and view.says and view.reading and view.title
        assert not re.search(r"\bnan\b", view.says)
    if any(SPEED.search(view.says) for view in views):
        assert scene.emulated
    assert len({view.figure.to_json() for view in views}) > 1  # the control changes something


def test_all_views_are_ready_in_a_moment():
    for scene in all_scenes():
        scene.draw(0)
    began = time.process_time()
    for scene in all_scenes():
        for place in range(len(scene.control.options)):
            scene.draw(place)
    assert time.process_time() - began < 10.0


def test_a_bad_start_is_unlearnt():
    errors = [
        scores(material.sums_of(now.predict_log_odds(material.feature()), learning.HELD_OUT)).ece
        for now in learning.learnt()
    ]
    assert errors[0] > 0.2 and errors[-1] < 0.05
    assert len(errors) == learning.REFITS + 1


def test_three_times_as_sure_ranks_the_same_and_the_mean_does_not_rank():
    honest, sure, mean, _ = (scores(material.sums_of(calibration.estimates(place))) for place in range(4))
    assert sure.auc == pytest.approx(honest.auc, abs=0.01)  # bins at the ends hold ties
    assert sure.ece > 5 * honest.ece
    assert mean.ece < 1e-3 and mean.auc < honest.auc - 0.1


def test_sixty_tokens_cost_the_dense_gpu_about_what_one_does():
    verify = material.dense_gpu().verify
    assert verify[64] / verify[1] < 1.15
    assert "Weights are still read once" in machine.draw(machine.TOKENS.index(64)).says
    assert "every row has a price" in machine.draw(len(machine.TOKENS) - 1).says


def test_the_recorded_lanes_are_what_a_replay_gives():
    assert set(lanes.recorded()) == {*lanes.FIXED, lanes.DEFAULT_ARM}
    assert lanes.serve("fixed:2") == lanes.recorded()["fixed:2"]
    assert len({lane.tokens for lane in lanes.recorded().values()}) == 1  # the same texts in every lane


def test_labels_of_the_trace_stop_at_the_first_refusal():
    label, labelled = material.labels()
    assert not (label & ~labelled).any()
    refused = labelled & ~label
    assert refused.sum(axis=1).max() == 1
    np.testing.assert_array_equal(label.sum(axis=1), material.trace().accepted)
