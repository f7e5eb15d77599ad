"""The scenes of the Sampling bias page, one for each way in which trimming can bend the output, beside its repair."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from avlab.bias.exact import Pair, Rule, Step
from avlab.bias.scenes import LETTERS, Arm, Scene
from avlab.bias.trimming import (
    by_cost,
    drawn_token_probability,
    fixed,
    maximum_probability,
    ranked,
    threshold,
)
from avlab.speculation.budget import first_peak, peak

STEPPED = (1.0, 1.9, 1.9)  # one draft costs as much as two: not convex
CONVEX = (1.0, 1.3, 1.7)


def certain_or_flat() -> Pair:
    """After a the next draft row is nearly certain, after b it is flat; the target is (½, ½) throughout."""
    return Pair.markov([[0.5, 0.5]] * 2, [[0.99, 0.01], [0.5, 0.5]], 2)


def one_late() -> Rule:
    """The drawn-token rule one step late: the drawn token's q is remembered by place for the next draft of it."""

    def places(step: Step) -> range:
        return range(len(step.histories[0]), len(step.histories[0]) + len(step.tokens[0]))

    def remember(step: Step) -> tuple[tuple[int, float], ...]:
        drawn = [float(row[token]) for row, token in zip(step.rows[0], step.tokens[0], strict=True)]
        return tuple(zip(places(step), drawn, strict=True))

    def admit(step: Step) -> list[tuple[float, tuple[int, ...]]]:
        known = dict(step.earlier or ())
        low = [k for k, place in enumerate(places(step)) if known.get(place, 0.0) < 0.5]
        return [(1.0, (low[0] if low else len(step.tokens[0]),))]

    return Rule(admit, remember)


def all_or_nothing() -> Rule:
    """All drafts of a request or none, by the step before's largest probability at its last slot."""
    return Rule(
        admit=lambda step: [
            (1.0, (len(step.tokens[0]) if step.earlier is None or step.earlier > 0.7 else 0,))
        ],
        remember=lambda step: float(step.rows[0][-1].max()),
    )


def coin_pair() -> Pair:
    """Target (½, ½); an autoregressive drafter with P(a) = 0.9 after a and ½ after b, three positions."""
    return Pair.markov([[0.5, 0.5]] * 2, [[0.9, 0.1], [0.5, 0.5]], 3)


def _rows(*named: tuple[str, tuple[float, ...]]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    return named


def _drawn() -> Scene:
    pair = Pair.parallel([[0.5, 0.5]] * 2, [[[0.2, 0.8]] * 2] * 2)
    return Scene(
        name="The drawn token's own probability",
        cause="the drawn token",
        sentence="Two draft positions; a slot is verified only if the token drawn there was likely enough.",
        try_this="Compare the two thresholds: both use the same draft rows, one of them after the draw.",
        shows="Rare drafts are never verified; the target samples in their place. Less mass is accepted where q is "
        "small, and recovered tokens do not make up for it.",
        pair=pair,
        length=2,
        arms=(
            Arm("verify all", fixed(2), True),
            Arm("drawn token's q ≥ ½", threshold(drawn_token_probability, 0.5), False),
            Arm("maximum of q ≥ ½", threshold(maximum_probability, 0.5), True),
        ),
        rows=_rows(("target, always", (0.5, 0.5)), ("draft, always", (0.2, 0.8))),
    )


def _same_step() -> Scene:
    def rule(cost: tuple[float, ...], earlier: bool, best: Callable[[np.ndarray], int] = peak) -> Rule:
        return ranked(maximum_probability, by_cost(cost, best), earlier_budget=earlier)

    return Scene(
        name="The budget from this step's estimates",
        cause="the budget",
        sentence="Every estimate is a maximum probability, but a certain second row raises the budget and an uncertain "
        "one drops it to zero; the second row depends on the first draw. Costs of 0, 1, 2 drafts: 1, 1.9, 1.9.",
        try_this="Compare the two fixes: estimates of the step before, and stopping early.",
        shows="Whether slot 0 is verified depends on the token drawn at slot 0, through slot 1. Estimates of the step "
        "before, early stopping, or a convex cost remove that dependence.",
        pair=certain_or_flat(),
        starts=(1,),
        arms=(
            Arm("this step's estimates, stepped cost", rule(STEPPED, False), False),
            Arm("earlier estimates, stepped cost", rule(STEPPED, True), True),
            Arm("this step's, stopping early", rule(STEPPED, False, first_peak), True),
            Arm("this step's, convex cost 1, 1.3, 1.7", rule(CONVEX, False), True),
        ),
        rows=_rows(
            ("target, always", (0.5, 0.5)),
            ("draft, first and after b", (0.5, 0.5)),
            ("draft, after a", (0.99, 0.01)),
        ),
    )


def _correction() -> Scene:
    pair = Pair.parallel([[0.6, 0.3, 0.1]] * 3, [[[0.2, 0.2, 0.6]]] * 3)
    return Scene(
        name="The draft's noise in the recovered token",
        cause="noise used twice",
        sentence="The uniform that drew the draft token also draws the recovered token after a rejection.",
        try_this="Work out which uniforms are possible once a draft token has been drawn and rejected.",
        shows="A rejected draft narrows down its uniform, so the recovered token is not drawn from the whole interval.",
        pair=pair,
        arms=(
            Arm("fresh noise for every draw", fixed(1), True),
            Arm("the draft's noise again", fixed(1), False, {"target_shares_noise": True}),
        ),
        rows=_rows(("target, always", (0.6, 0.3, 0.1)), ("draft, always", (0.2, 0.2, 0.6))),
    )


def _redrawn() -> Scene:
    pair = Pair.markov([[0.5, 0.5]] * 2, [[0.2, 0.8]] * 2, 2)
    return Scene(
        name="A trimmed position drawn again with the same noise",
        cause="noise used twice",
        sentence="Draft noise is keyed by position in the text. A trimmed position is drafted again next step, and the "
        "rule remembers the probability of the token drawn there before.",
        try_this="The rule uses only the past. Find out how it depends on the coming draw.",
        shows="With the same noise the same token is drawn again, so the earlier estimate is this step's own draw, one "
        "step late: the second token comes out at (0.4, 0.6).",
        pair=pair,
        length=2,
        position=1,
        arms=(
            Arm("fresh noise, drawn token's q one step late", one_late(), True),
            Arm("noise keyed by position, the same rule", one_late(), False, {"draft_noise_again": True}),
        ),
        rows=_rows(("target, always", (0.5, 0.5)), ("draft, always", (0.2, 0.8))),
    )


def _ties() -> Scene:
    def rule(by_chance: bool) -> Rule:
        return ranked(maximum_probability, lambda survivals: 1, chance_ties=by_chance)

    return Scene(
        name="Ties broken by chance, two requests and one place",
        cause="ties by chance",
        sentence="Two requests share a budget of one draft token. After a the second draft row is certain, so both "
        "slots of that request have the same survival, and it is drawn with twice the weight.",
        try_this="Count the tied slots of each request for each pair of first draws.",
        shows="The draw decides how many tied slots a request has, so whether slot 0 is verified depends on its own "
        "token. A fixed order (depth, then request) is exact.",
        pair=Pair.markov([[0.5, 0.5]] * 2, [[1.0, 0.0], [0.5, 0.5]], 2),
        starts=(1, 1),
        arms=(
            Arm("ties in a fixed order", rule(False), True),
            Arm("ties by chance", rule(True), False),
        ),
        rows=_rows(
            ("target, always", (0.5, 0.5)),
            ("draft, first and after b", (0.5, 0.5)),
            ("draft, after a", (1.0, 0.0)),
        ),
    )


SCENES: dict[str, Callable[[], Scene]] = {
    "drawn token": _drawn,
    "same-step budget": _same_step,
    "noise in the correction": _correction,
    "noise drawn again": _redrawn,
    "ties by chance": _ties,
}

LARGEST_SCENE = 30_000  # drafts enumerated for each arm: about a second


def own_scene(
    V: int, K: int, requests: int, length: int, sharpness: float, seed: int, cut: float, ties: bool = False
) -> Scene:
    """A scene of random Markov tables, under every rule of the lab.

    sharpness: how unequal the rows are, from 0.2 (flat) to 5. cut: the thresholds' t. ties: the drafter is certain
    after a and every request starts behind the last token, so that slots tie where a is drawn.
    """
    random = np.random.default_rng(seed)
    target = random.dirichlet(np.full(V, 1 / sharpness), V).round(3)
    drafter = random.dirichlet(np.full(V, 1 / sharpness), V).round(3)
    target, drafter = (_repaired(table) for table in (target, drafter))
    if ties:
        drafter[0] = np.eye(V)[0]
    slots = K * requests
    stepped = tuple(1.0 + 0.9 * -(-n // 2) for n in range(slots + 1))
    convex = tuple(1.0 + 0.25 * n + 0.05 * n * n for n in range(slots + 1))
    score = maximum_probability

    def half(survivals: np.ndarray) -> int:
        return max(1, slots // 2)

    arms = (
        Arm("verify all", fixed(K), True),
        Arm(f"drawn token's q ≥ {cut:g}", threshold(drawn_token_probability, cut), False),
        Arm(f"maximum of q ≥ {cut:g}", threshold(score, cut), True),
        Arm(
            "budget from this step, stepped cost",
            ranked(score, by_cost(stepped), earlier_budget=False),
            False,
        ),
        Arm(
            "budget from this step, stopping early", ranked(score, by_cost(stepped, first_peak), False), True
        ),
        Arm("budget from this step, convex cost", ranked(score, by_cost(convex), earlier_budget=False), True),
        Arm("budget from the step before, stepped cost", ranked(score, by_cost(stepped)), True),
        Arm("fixed budget, ties in order", ranked(score, half), True),
        Arm("fixed budget, ties by chance", ranked(score, half, chance_ties=True), False),
    )
    rows = [(f"target after {LETTERS[x]}", tuple(target[x])) for x in range(V)]
    rows += [(f"draft after {LETTERS[x]}", tuple(drafter[x])) for x in range(V)]
    return Scene(
        name="Random tables",
        cause="your own",
        sentence="Target and drafter depend on the token before; every rule is computed over two consecutive steps.",
        try_this="Look for tables that bias a sound rule: there are none. Then find the worst for an unsound one.",
        shows="Sound rules stay at zero for all tables; the bias of unsound ones varies, and is sometimes zero.",
        pair=Pair.markov(target, drafter, K),
        arms=arms,
        starts=tuple(V - 1 if ties else x % V for x in range(requests)),
        length=length,
        rows=tuple((name, tuple(map(float, row))) for name, row in rows),
    )


def _repaired(table: np.ndarray) -> np.ndarray:
    """Rows that sum to one again after rounding."""
    table[np.arange(len(table)), table.argmax(axis=1)] += 1 - table.sum(axis=1)
    return table
