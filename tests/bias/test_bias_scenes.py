"""The scenes show what they say: unsound rules bend the output, their repairs do not."""

import numpy as np
import pytest

from avlab.bias import reused_noise
from avlab.bias.cases import bias, pair_of, path_sums, paths, random_rows
from avlab.bias.exact import output_distribution, token_distribution
from avlab.bias.first_token import first_token, first_token_by_shared_race
from avlab.bias.grammar import KINDS, parse_rule
from avlab.bias.ready_made_scenes import SCENES, all_or_nothing, coin_pair, own_scene
from avlab.bias.real_rows import recorded, shortened
from avlab.bias.scenes import names_of_outputs, outcomes, sampled_outcomes, work_of


@pytest.mark.parametrize("name", SCENES)
def test_in_every_scene_the_unsound_rules_bend_and_the_sound_ones_do_not(name):
    for outcome in outcomes(SCENES[name]()):
        assert outcome.bends != outcome.arm.sound, outcome.arm.name
        assert outcome.arm.sound == np.isinf(outcome.sample_size)


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_sampled_agrees_with_its_exact_form(name):
    scene = SCENES[name]()
    for exact, drawn in zip(outcomes(scene), sampled_outcomes(scene, 20_000), strict=True):
        assert drawn.draws == 20_000 and np.abs(drawn.joint - exact.joint).max() < 0.02, exact.arm.name


def test_the_numbers_of_the_scenes():
    first = {name: {o.arm.sound: o.token for o in outcomes(make())} for name, make in SCENES.items()}
    np.testing.assert_allclose(first["drawn token"][False], [0.4, 0.6], rtol=0, atol=1e-12)
    np.testing.assert_allclose(first["same-step budget"][False], [0.75, 0.25], rtol=0, atol=1e-12)
    np.testing.assert_allclose(first["noise drawn again"][False], [0.4, 0.6], rtol=0, atol=1e-12)
    np.testing.assert_allclose(first["ties by chance"][False], [13 / 24, 11 / 24], rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [(2, 1, 1, 1), (3, 2, 1, 2), (2, 2, 2, 1)])
def test_own_tables_and_their_sampled_form(size):
    V, K, requests, length = size
    scene = own_scene(V, K, requests, length, 1.0, 3, 0.5)
    exact, drawn = outcomes(scene), sampled_outcomes(scene, 4000)
    assert work_of(scene) >= V ** (K * requests)
    assert len(names_of_outputs(V, length, requests)) == len(exact[0].due)
    for one, other in zip(exact, drawn, strict=True):
        assert not (one.arm.sound and (one.bends or other.bends)), one.arm.name
        assert np.abs(one.joint - other.joint).max() < 0.05


def test_own_tables_can_tie_and_only_chance_among_ties_bends():
    for ties in (False, True):
        found = {each.arm.name: each for each in outcomes(own_scene(2, 2, 2, 1, 1.0, 3, 0.5, ties))}
        assert not found["fixed budget, ties in order"].bends
        assert found["fixed budget, ties by chance"].bends == ties


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["0.35", "chance"])
def test_paths_and_the_closed_form_add_up_to_the_enumeration(kind, ending):
    rule = parse_rule(f"{kind}:{ending}")
    for seed in range(5):
        target, draft = random_rows(4, 1.5, seed)
        found = paths(target, draft, rule)
        exact = output_distribution(pair_of(target, draft), rule.make(target))
        assert sum(path.chance for path in found) == pytest.approx(1)
        np.testing.assert_allclose(path_sums(found, 4), exact, atol=1e-12)
        verified = np.array(
            [sum(p.chance for p in found if p.drafted == x and p.fate != "not verified") for x in range(4)]
        )
        np.testing.assert_allclose(first_token(target, draft, verified / draft), exact, atol=1e-12)


@pytest.mark.parametrize("again", [False, True])
def test_places_one_by_one_agree_with_whole_texts(again):
    law = output_distribution(coin_pair(), all_or_nothing(), (1,), 6, 6, draft_noise_again=again)
    whole = [token_distribution(law, 2, position=place)[0] for place in range(6)]
    np.testing.assert_allclose(reused_noise.shares_by_place(6, again), whole, atol=1e-12)


def test_a_redrawn_place_bends_the_long_run():
    np.testing.assert_allclose(reused_noise.shares_by_place(40, again=False), 0.5, atol=1e-12)
    places, settled = (
        reused_noise.shares_by_place(reused_noise.SETTLED + 40, again=True),
        reused_noise.settled_share(),
    )
    assert np.abs(places[reused_noise.SETTLED :] - settled).max() < 1e-4 < np.abs(places[:8] - settled).max()
    assert settled == pytest.approx(0.5105, abs=0.0009)  # simulated, with its standard error
    (fresh, error), (again, _) = (reused_noise.long_run(2000, 60, 1, mode) for mode in (False, True))
    assert abs(fresh - 0.5) < 4 * error and again == pytest.approx(settled, abs=4 * error)


def test_a_correction_that_races_with_the_drafts_noise():
    p, q, N = [0.6, 0.3, 0.1], [0.2, 0.2, 0.6], 200_000
    np.testing.assert_allclose(reused_noise.raced_outputs(p, q, N, 0, shared=False) / N, p, atol=0.005)
    np.testing.assert_allclose(first_token_by_shared_race(p, q), [0.6375, 0.2625, 0.1], atol=1e-12)
    np.testing.assert_array_equal(first_token_by_shared_race(p, p), p)


@pytest.mark.parametrize("V", [2, 3, 5])
def test_the_race_in_closed_form_agrees_with_races(V):
    for seed in range(8):
        p, q = random_rows(V, 1.5, seed)
        if seed % 2:  # a token that only the correction can be
            q[0] = 0
            q /= q.sum()
        exact, N = first_token_by_shared_race(p, q), 100_000
        drawn = reused_noise.raced_outputs(p, q, N, seed, shared=True) / N
        assert exact.sum() == pytest.approx(1) and (exact >= -1e-15).all()
        assert (np.abs(drawn - exact) <= 4.5 * np.sqrt(exact * (1 - exact) / N) + 1e-9).all(), seed


def test_rows_of_the_real_model_make_a_case():
    for prompt, rows in recorded().items():
        assert prompt and len(rows.names) == len(rows.target) == len(rows.draft) == 8
        assert rows.target.sum() == pytest.approx(1, abs=1e-5) and rows.draft.sum() == pytest.approx(
            1, abs=1e-5
        )
        assert bias(rows.target, rows.draft, parse_rule("maximum:0.2")).total_variation < 1e-12
    ids, p, q = shortened(np.full(50, 0.02), np.eye(50)[7])
    assert ids[0] == 7 and p.sum() == pytest.approx(1) and q[0] == 1
