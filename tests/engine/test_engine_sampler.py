"""The engine's fused sampler is the sampler of avlab.speculation, row by row, and exact in distribution."""

import numpy as np
import pytest
import torch
from scipy import stats

from avlab.engine import noise, rows
from avlab.engine.drafters.draws import Draws
from avlab.engine.drafts import Drafts, DraftVocabulary
from avlab.engine.sampler import LogitRows, SamplingError, SamplingParameters, nucleus, speculative_sample
from avlab.speculation import sampling
from avlab.speculation.features import Features, max_log_odds

NOTHING = Features((), np.zeros((0, 0, 0)))
NEAR = 2e-5  # uniforms and masses this close to a boundary may fall on either side in float32


def parameters(temperature, top_k, top_p):
    return SamplingParameters(
        torch.tensor(temperature, dtype=torch.float32),
        torch.tensor(top_k),
        torch.tensor(top_p, dtype=torch.float32),
    )


class Case:
    """A random step: B requests with 0..K admitted drafts each, over V tokens, the drafter knowing Q of them."""

    def __init__(self, seed, V, Q, choices, B=60, K=4, ties=False, certain=False):
        rng = np.random.default_rng(seed)
        self.V, self.K = V, K
        pick = [np.asarray(x)[rng.integers(0, len(x), B)] for x in choices]
        self.temperature, self.top_k, self.top_p = pick
        self.admitted = rng.integers(0, K + 1, B)
        self.logits = rng.normal(0, 2, (B, K + 1, V)).astype(np.float32)
        self.ids = np.sort(rng.permutation(V)[:Q])
        draft_logits = self.logits[:, :K][..., self.ids] + rng.normal(0, 0.7, (B, K, Q)).astype(np.float32)
        if ties:
            self.logits, draft_logits = np.round(self.logits), np.round(draft_logits)
        self.q = sampling.draft_distribution(draft_logits, self.temperature[:, None], greedy=certain)
        self.column = sampling.draw(self.q, rng.random((B, K)))
        self.accept, self.token = rng.random((B, K)), rng.random(B)
        self.p = sampling.target_distribution(
            self.logits, self.temperature[:, None], self.top_k[:, None], self.top_p[:, None]
        )
        self.certain = certain
        # the drafts' rows stand in another order than the requests
        self.draft_row = rng.permutation(B)

    def ours(self):
        place = np.argsort(self.draft_row)
        known = None if len(self.ids) == self.V else DraftVocabulary(torch.tensor(self.ids), self.V)
        drafts = Drafts(
            tokens=torch.tensor(self.ids[self.column[place]]),
            draft_probs=None if self.certain else torch.tensor(self.q[place], dtype=torch.float32),
            vocabulary=known,
            features=NOTHING,
        )
        found = speculative_sample(
            LogitRows(
                torch.tensor(
                    np.concatenate([row[: n + 1] for row, n in zip(self.logits, self.admitted, strict=True)])
                )
            ),
            drafts,
            torch.tensor(self.draft_row),
            torch.tensor(self.admitted),
            parameters(self.temperature, self.top_k, self.top_p),
            torch.tensor(self.accept),
            torch.tensor(self.token),
        )
        return [each.numpy() for each in found]

    def full_q(self):
        q = np.zeros((*self.q.shape[:2], self.V))
        q[..., self.ids] = self.q
        return q

    def reference(self):
        return sampling.speculative_sample(
            self.p, self.full_q(), self.ids[self.column], self.admitted, self.accept, self.token
        )

    def chances(self):
        """min(1, p/q) of each drafted token, [B, K]."""
        ratio = sampling.acceptance_probability(self.p[:, : self.K], self.full_q())
        return np.take_along_axis(ratio, self.ids[self.column][..., None], 2)[..., 0]

    def expected(self):
        """How many drafts of each request are accepted on average over the coins, [B]."""
        verified = np.arange(self.column.shape[1]) < self.admitted[:, None]
        return (self.chances() * verified).cumprod(1).sum(1)

    def close_calls(self):
        """Requests with an acceptance or a cut too near its boundary for float32 to say which side, [B] bool."""
        ratio = self.chances()
        calls = (np.abs(ratio - self.accept) < NEAR).any(1)
        ranked = np.sort(
            sampling.target_distribution(self.logits, self.temperature[:, None], self.top_k[:, None])
        )
        running = ranked[..., ::-1].cumsum(-1)
        return calls | (np.abs(running - self.top_p[:, None, None]) < NEAR).any((1, 2)) & (self.top_p < 1)

    def law_of_token(self, accepted):
        """The distribution each own token must come from, [B, V]."""
        b = np.arange(len(accepted))
        p = self.p[b, accepted]
        q = np.concatenate([self.full_q(), np.zeros((len(b), 1, self.V))], 1)[b, accepted]
        return np.where((accepted < self.admitted)[:, None], sampling.residual(p, q), p)


CASES = {  # temperatures, top_k, top_p to choose from
    "plain": ([1.0], [0], [1.0]),
    "warm and cold": ([0.001, 0.5, 2.0], [0], [1.0]),
    "greedy": ([0.0], [0], [1.0]),
    "greedy, cuts ignored": ([0.0], [3], [0.5]),
    "top-k": ([1.0], [1, 2, 7, 1000], [1.0]),
    "top-p": ([1.0], [0], [0.1, 0.5, 0.9, 0.999]),
    "both": ([1.0], [2, 5, 30], [0.3, 0.6, 0.95]),
    "mixed": ([0.0, 0.001, 0.6, 1.0, 1.7], [0, 1, 3, 10, 1000], [0.1, 0.5, 0.9, 0.999, 1.0]),
}


@pytest.mark.filterwarnings("ignore:overflow encountered in divide")  # p/q of a draft that q all but excludes
@pytest.mark.parametrize("certain", [False, True], ids=["drawn", "certain"])
@pytest.mark.parametrize("Q", [40, 9], ids=["whole vocabulary", "part of it"])
@pytest.mark.parametrize("ties", [False, True], ids=["no ties", "ties"])
@pytest.mark.parametrize("name", CASES)
def test_fused_sampler_does_what_the_plain_one_does(name, ties, Q, certain):
    compared = 0
    for seed in range(4):
        case = Case(seed, V=40, Q=Q, ties=ties, certain=certain, choices=CASES[name])
        accepted, token, mean = case.ours()
        expected = case.reference()
        sure = ~case.close_calls()
        np.testing.assert_array_equal(accepted[sure], expected.accepted[sure])
        np.testing.assert_allclose(mean[sure], case.expected()[sure], rtol=1e-3, atol=1e-3)
        law = case.law_of_token(accepted)[sure]
        chance = law[np.arange(len(law)), token[sure]]
        assert (chance > 0).all()  # whatever was drawn can be drawn
        # rows that are not cut are drawn in the order of token ids, so even the token is the same
        plain = sure & ((case.temperature == 0) | ((case.top_k == 0) & (case.top_p == 1)))
        edge = np.abs(case.law_of_token(accepted).cumsum(1) - case.token[:, None]).min(1) < NEAR
        np.testing.assert_array_equal(token[plain & ~edge], expected.token[plain & ~edge])
        compared += int(sure.sum())
    assert compared > 120


def test_without_drafts_a_token_comes_from_the_target():
    case = Case(0, V=40, Q=40, choices=CASES["mixed"])
    case.admitted[:] = 0
    accepted, token, _ = speculative_sample(
        LogitRows(torch.tensor(case.logits[:, 0])),
        None,
        torch.zeros(60, dtype=torch.long),
        torch.zeros(60, dtype=torch.long),
        parameters(case.temperature, case.top_k, case.top_p),
        torch.tensor(case.accept),
        torch.tensor(case.token),
    )
    assert not accepted.any()
    assert (case.p[np.arange(60), 0, token.numpy()] > 0).all()


def rows_of_every_shape(rng, N, V):
    """Logits from nearly certain to flat, some of them rounded so that many are equal, some masked."""
    logits = rng.normal(0, 1, (N, V)) * rng.choice([0.0, 0.01, 0.3, 1, 3, 8], N)[:, None]
    coarse = rng.choice([0.0, 0.125, 1.0], N)[:, None]
    logits = np.where(coarse > 0, np.round(logits / np.maximum(coarse, 1e-9)) * coarse, logits)
    masked = (rng.random((N, V)) < 0.5) & (rng.random((N, 1)) < 0.1)
    masked[:, 0] = False
    return np.where(masked, -np.inf, logits).astype(np.float32)


@pytest.mark.parametrize(("V", "N"), [(7, 800), (300, 1500), (3000, 400)])
def test_cut_is_exact_however_many_tokens_it_needs(V, N):
    rng = np.random.default_rng(V)
    logits = rows_of_every_shape(rng, N, V)
    top_k = np.where(rng.random(N) < 0.4, 0, rng.integers(1, V + 10, N))
    top_p = np.where(rng.random(N) < 0.3, 1.0, rng.choice([1e-6, 0.2, 0.5, 0.9, 0.95, 0.99, 0.9999], N))
    scaled = torch.tensor(logits)
    ids, masses = nucleus(scaled, torch.arange(N), scaled.logsumexp(1), parameters(np.ones(N), top_k, top_p))
    got = np.zeros((N, V))
    for row in range(N):  # padding may repeat a token, with mass 0
        np.add.at(got[row], ids[row].numpy(), masses[row].double().numpy())
    expected = sampling.target_distribution(logits, 1.0, top_k, top_p.astype(np.float32))
    running = np.sort(sampling.target_distribution(logits, 1.0, top_k))[:, ::-1].cumsum(1)
    sure = (top_p == 1) | (np.abs(running - top_p[:, None]) > 1e-6).all(1)
    assert sure.mean() > 0.75
    np.testing.assert_allclose(got[sure], expected[sure], atol=2e-6)
    assert ((got > 0) == (expected > 0))[sure & (top_p < 1)].all()


def test_a_flat_row_keeps_the_first_tokens():
    flat = torch.zeros(1, 1000)
    ids, masses = nucleus(flat, torch.arange(1), flat.logsumexp(1), parameters([1.0], [0], [0.2505]))
    assert sorted(ids[0][masses[0] > 0].tolist()) == list(range(251))
    ids, masses = nucleus(flat, torch.arange(1), flat.logsumexp(1), parameters([1.0], [7], [1.0]))
    assert sorted(ids[0][masses[0] > 0].tolist()) == list(range(7))


def test_top_p_is_a_share_of_what_top_k_left():
    """200 of 400 equal tokens by top-k, then half of those: a cut at half of all would keep too many."""
    flat = torch.zeros(1, 400)
    ids, masses = nucleus(flat, torch.arange(1), flat.logsumexp(1), parameters([1.0], [200], [0.4999]))
    assert sorted(ids[0][masses[0] > 0].tolist()) == list(range(100))
    np.testing.assert_allclose(masses[0][masses[0] > 0], 0.01, rtol=1e-5)


def test_greedy_takes_the_first_of_equals():
    logits = torch.zeros(3, 50000)
    logits[0, [17, 40000]], logits[1, [3, 4, 5]] = 2.0, 1.0
    _, token, _ = speculative_sample(
        LogitRows(logits),
        None,
        torch.zeros(3, dtype=torch.long),
        torch.zeros(3, dtype=torch.long),
        parameters([0.0] * 3, [0] * 3, [1.0] * 3),
        torch.zeros(3, 1),
        torch.full((3,), 0.9),
    )
    assert token.tolist() == [17, 3, 0]


@pytest.mark.parametrize("cut", [(0, 1.0), (0, 0.9), (5, 1.0)], ids=["plain", "top-p", "top-k"])
def test_a_rejection_by_rounding_alone_draws_from_the_target(cut):
    """p = q = certain: whatever an impossible uniform refuses, the recovered token is one the target can say."""
    logits = torch.full((2, 9), -200.0)
    logits[:, 4] = 0.0
    q = torch.zeros(1, 1, 9)
    q[0, 0, 4] = 1.0
    drafts = Drafts(torch.tensor([[4]]), q, None, NOTHING)
    accepted, token, _ = speculative_sample(
        LogitRows(logits),
        drafts,
        torch.tensor([0]),
        torch.tensor([1]),
        parameters([1.0], [cut[0]], [cut[1]]),
        torch.tensor([[1.0]], dtype=torch.float64),
        torch.tensor([0.5], dtype=torch.float64),
    )
    assert (accepted.tolist(), token.tolist()) == ([0], [4])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("cut", [(0, 1.0), (0, 0.9)])
def test_logits_that_are_not_numbers_stop_the_run_with_a_sentence(value, cut):
    logits = torch.zeros(1, 9)
    logits[0, 3] = value
    zero = torch.zeros(1, dtype=torch.long)
    given = parameters([1.0], [cut[0]], [cut[1]])
    with pytest.raises(SamplingError, match=r"not finite: .*--dtype float32\.$"):
        speculative_sample(LogitRows(logits), None, zero, zero, given, torch.zeros(1, 1), torch.zeros(1))


def g_test(counts, law):
    """p-value of the G-test that counts come from this law; cells with little mass are joined."""
    counts, expected = np.asarray(counts, dtype=float), np.asarray(law) * np.sum(counts)
    order = np.argsort(-expected)
    counts, expected = counts[order], expected[order]
    keep = max(int((expected >= 5).sum()), 1)
    counts = np.append(counts[:keep], counts[keep:].sum())
    expected = np.append(expected[:keep], expected[keep:].sum())
    used = expected > 0
    assert counts[~used].sum() == 0
    if used.sum() < 2:
        return 1.0
    return stats.power_divergence(counts[used], expected[used], lambda_="log-likelihood").pvalue


SAMPLINGS = {
    "plain": (1.0, 0, 1.0),
    "cold": (0.4, 0, 1.0),
    "top-k": (1.0, 4, 1.0),
    "top-p": (1.0, 0, 0.8),
    "both": (1.3, 5, 0.7),
}


@pytest.mark.parametrize("Q", [8, 5])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_first_token_of_a_draft_is_distributed_as_the_target_says(name, Q):
    """30,000 drafts of two tokens: the first emitted token, and the second given the first, follow p."""
    temperature, top_k, top_p = SAMPLINGS[name]
    N, V = 30_000, 8
    rng = np.random.default_rng(11)
    target = rng.normal(0, 1.2, (3, V)).astype(
        np.float32
    )  # first, second, third: independent of what was said
    draft = rng.normal(0, 1.2, (2, Q)).astype(np.float32)
    ids = np.arange(V)[V - Q :]
    seeds, counters = np.arange(N, dtype=np.uint64), np.zeros(N, dtype=np.int64)
    drafting = Draws(
        torch.full((N,), temperature), torch.tensor(noise.uniforms(seeds, noise.DRAFT, counters, 2))
    )
    columns = [drafting.draw(torch.tensor(draft[k]).expand(N, Q)) for k in range(2)]
    drafts = Drafts(
        torch.tensor(ids)[torch.stack(columns, 1)],
        drafting.draft_probs,
        DraftVocabulary(torch.tensor(ids), V) if Q < V else None,
        NOTHING,
    )
    accepted, token, _ = speculative_sample(
        LogitRows(torch.tensor(target).repeat(N, 1)),
        drafts,
        torch.arange(N),
        torch.full((N,), 2),
        parameters([temperature] * N, [top_k] * N, [top_p] * N),
        torch.tensor(noise.uniforms(seeds, noise.ACCEPT, counters, 2)),
        torch.tensor(noise.uniforms(seeds, noise.TOKEN, counters, 1)[:, 0]),
    )
    p = sampling.target_distribution(target, temperature, top_k, top_p)
    drawn, accepted, token = drafts.tokens.numpy(), accepted.numpy(), token.numpy()
    first = np.where(accepted >= 1, drawn[:, 0], token)
    assert g_test(np.bincount(first, minlength=V), p[0]) > 1e-3
    second = np.where(accepted >= 2, drawn[:, 1], token)[accepted >= 1]
    assert g_test(np.bincount(second, minlength=V), p[1]) > 1e-3
    assert g_test(np.bincount(token[accepted == 2], minlength=V), p[2]) > 1e-3
    overlap = np.minimum(p[0][ids], sampling.softmax(draft[0] / temperature)).sum()
    assert abs((accepted >= 1).mean() - overlap) < 4 * np.sqrt(overlap * (1 - overlap) / N) + 1e-9


def test_drafts_keep_their_distribution_and_feature():
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(0, 3, (4, 600)), dtype=torch.float32)
    temperature = torch.tensor([1.0, 0.0, 0.5, 1e-3])
    uniforms = torch.tensor(rng.random((4, 2)))
    draws = Draws(temperature, uniforms)
    column = draws.draw(logits)
    q = sampling.draft_distribution(logits.numpy(), temperature.numpy())
    np.testing.assert_allclose(draws.draft_probs[:, 0], q, atol=1e-6)
    np.testing.assert_array_equal(column, sampling.draw(q, uniforms[:, 0].numpy()))
    feature = max_log_odds(logits.double().numpy(), temperature.numpy())
    np.testing.assert_allclose(np.exp(-draws.features["max_log_odds"][:, 0]), np.exp(-feature), atol=2e-6)
    assert int(column[1]) == int(logits[1].argmax())


def test_inverse_transform_gives_every_token_its_share():
    rng = np.random.default_rng(3)
    weights = rng.random((40, 1000)).astype(np.float32) * (rng.random((40, 1000)) < 0.2)
    uniforms = np.append(rng.random(38), [0.0, 1 - 2.0**-53])
    drawn = rows.draw(torch.tensor(weights), torch.tensor(uniforms)).numpy()
    running = weights.astype(np.float64).cumsum(1)
    share = running[np.arange(40), drawn] / running[:, -1]
    before = (running[np.arange(40), drawn] - weights[np.arange(40), drawn]) / running[:, -1]
    assert (weights[np.arange(40), drawn] > 0).all()
    assert (before - 1e-6 <= uniforms).all() and (uniforms <= share + 1e-6).all()


def test_a_light_token_is_drawn_as_often_as_it_should_be():
    """A tail of 1e-8 each behind one heavy token: float32 running sums would lose it."""
    weights = torch.full((1, 50_000), 1e-8)
    weights[0, 0] = 1.0
    uniforms = torch.tensor((np.arange(99_940, 100_000) + 0.5) / 100_000)
    drawn = torch.cat([rows.draw(weights, u[None]) for u in uniforms])
    expected = 1 + (uniforms * weights.double().sum() - 1) / 1e-8  # in the order of ids
    assert (drawn[:10] == 0).all()
    assert (drawn[10:] - expected[10:]).abs().max() < 8
