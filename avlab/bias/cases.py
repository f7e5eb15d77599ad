"""One target row and one draft row under a trimming rule: what comes out, by which paths, and who would notice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from avlab.bias.exact import Pair, Step, drafts_to_enumerate, output_distribution, target_law, total_variation
from avlab.bias.goodness_of_fit import Fit, audit_sample_size, fit
from avlab.bias.grammar import CaseError, Named
from avlab.bias.sampled import sample_outputs
from avlab.speculation.sampling import acceptance_probability, residual

SUM_TOLERANCE = 1e-6  # what typed decimals may miss one by
MOST_DRAFTS = 200_000  # to enumerate: some ten seconds
MOST_OUTPUTS = 2**20  # different ones, to count: some ten seconds
MOST_CODES = 2**40  # drafts of a step, each a number of 64 bits with that of its text
AT_ONCE = 200_000  # outputs sampled together; more would need gigabytes
LARGEST = 8  # tokens that a page draws


def distribution(values: Iterable[float], name: str, normalise: bool = False) -> np.ndarray:
    """Probabilities [V] as given, or scaled to one. Raises CaseError. name: "target" or "draft"."""
    row = np.array(list(values), dtype=np.float64)
    if len(row) < 2:
        raise CaseError(f"The {name} has {len(row)} tokens: give two or more probabilities, such as 0.5,0.5.")
    if not np.isfinite(row).all():
        raise CaseError(f"The {name} holds something that is not a finite number: give probabilities.")
    if (row < 0).any():
        raise CaseError(
            f"The {name} holds {row.min():g}, and a probability cannot be negative: give 0 or more."
        )
    if not row.any():
        raise CaseError(
            f"The {name} is zero everywhere, so nothing can be drawn from it: give one token some mass."
        )
    total = math.fsum(row / row.max()) * float(row.max())  # inf where numbers are huge, without a warning
    if abs(total - 1) <= SUM_TOLERANCE:
        return row / row.sum()
    scaled = row / row.max()  # the sum of huge numbers is not finite, that of their ratios is
    scaled /= scaled.sum()
    if not normalise:
        raise CaseError(
            f"The {name} sums to {total:g}, not to 1: correct it, or have it normalised to {typed(scaled)}.",
            "normalise",
        )
    return scaled


def parse_distribution(text: str, name: str, normalise: bool = False) -> np.ndarray:
    """Probabilities [V] from "0.2, 0.8" (commas, semicolons or blanks). Raises CaseError."""
    parts = text.replace(",", " ").replace(";", " ").split()
    try:
        values = [float(part) for part in parts]
    except ValueError:
        raise CaseError(f"The {name} {text!r} is not a list of numbers: write it as 0.5,0.5.") from None
    return distribution(values, name, normalise)


def typed(row) -> str:
    """A distribution as one would type it."""
    return ",".join(f"{x:.4g}" for x in row)


def random_rows(V: int, sharpness: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A target and a draft row from a Dirichlet distribution: flat for a small sharpness, one token for a large one."""
    random = np.random.default_rng(seed)
    target, draft = random.dirichlet(np.full(V, 1 / sharpness), 2)
    return target, draft


def check_pair(target: np.ndarray, draft: np.ndarray) -> None:
    """Raise CaseError where a target and a draft row make no case together."""
    if len(target) != len(draft):
        raise CaseError(
            f"The target has {len(target)} tokens and the draft {len(draft)}: both speak of the same vocabulary, so "
            "give as many."
        )
    if not (target[draft > 0] > 0).any():
        raise CaseError(
            "The target gives zero to every token that the draft can draw: each draft would be refused and no rule "
            "could matter; give them a token in common."
        )


@dataclass(frozen=True, slots=True)
class Bias:
    """What comes out of a case. target, output: [V ** tokens]; sample_size: outputs an auditor needs (1 %, power 90 %).

    fit: of sampled outputs to the target; None where the result is exact. sound: whatever the distributions.
    """

    target: np.ndarray
    draft: np.ndarray
    output: np.ndarray
    rule: str
    sound: bool
    fit: Fit | None = None

    @property
    def total_variation(self) -> float:
        return total_variation(self.output, self.target)

    @property
    def sample_size(self) -> float:
        return audit_sample_size(self.output, self.target)

    def as_json(self) -> dict[str, Any]:
        needed = self.sample_size
        return {
            "target": self.target.tolist(),
            "draft": self.draft.tolist(),
            "output": self.output.tolist(),
            "total_variation": self.total_variation,
            "rule": self.rule,
            "sound": self.sound,
            "auditor_needs": None if math.isinf(needed) or self.fit else needed,
            "draws": self.fit.outputs if self.fit else None,
            "p_value": self.fit.p_value if self.fit else None,
        }


def pair_of(target: np.ndarray, draft: np.ndarray, K: int = 1) -> Pair:
    """A target and a drafter that say the same at every position."""
    return Pair(len(target), K, lambda history: target, lambda history, prefix: draft)


def bias(target: np.ndarray, draft: np.ndarray, rule: Named, K: int = 1, tokens: int = 1) -> Bias:
    """The exact output of `tokens` tokens with K draft positions. Raises CaseError, also for more than fits."""
    check_pair(target, draft)
    V = len(target)
    work = drafts_to_enumerate(V, K, 1, tokens)
    if work > MOST_DRAFTS or V**tokens > MOST_DRAFTS:
        raise CaseError(
            f"{V} tokens, {K} positions and {tokens} output tokens make {max(work, V**tokens):,} states, more than "
            f"the {MOST_DRAFTS:,} that are enumerated here: take fewer"
            + (", or sample." if _can_be_sampled(V, K, tokens) else "."),
            "sample" if _can_be_sampled(V, K, tokens) else "",
        )
    pair = pair_of(target, draft, K)
    output = output_distribution(pair, rule.make(target), length=tokens)
    return Bias(target_law(pair, length=tokens), draft, output, rule.text, rule.sound)


def sampled_bias(
    target: np.ndarray, draft: np.ndarray, rule: Named, draws: int, seed: int, K: int = 1, tokens: int = 1
) -> Bias:
    """As `bias`, from so many sampled outputs."""
    check_pair(target, draft)
    if not _can_be_sampled(len(target), K, tokens):
        raise CaseError(
            f"{len(target)} tokens, {K} positions and {tokens} output tokens are too many to sample, too: up to "
            f"{MOST_OUTPUTS:,} different outputs are counted, {MOST_CODES:,} different drafts told apart. Take fewer."
        )
    pair = pair_of(target, draft, K)
    made, random = rule.make(target), np.random.default_rng(seed)
    law = target_law(pair, length=tokens)
    counts = np.zeros(len(law), dtype=np.int64)
    for begin in range(0, draws, AT_ONCE):
        some = min(AT_ONCE, draws - begin)
        counts += sample_outputs(pair, made, some, random, length=tokens, memory=1)
    return Bias(law, draft, counts / draws, rule.text, rule.sound, fit(counts, law))


def _can_be_sampled(V: int, K: int, tokens: int) -> bool:
    return V**K <= MOST_CODES and V**tokens <= MOST_OUTPUTS


class Path(NamedTuple):
    """One way from a drafted token to an output token. fate: "accepted", "rejected" or "not verified"."""

    drafted: int
    fate: str
    output: int
    chance: float


def paths(target: np.ndarray, draft: np.ndarray, rule: Named) -> list[Path]:
    """Every way that one draft position can go, with its probability; they sum to 1."""
    found = []
    accept, correction = acceptance_probability(target, draft), residual(target, draft)
    for token in np.flatnonzero(draft).tolist():
        step = Step(((0,),), ((token,),), ((draft,),), None)
        for weight, (length,) in rule.make(target).admit(step):
            chance = float(draft[token]) * weight
            if length == 0:
                ways = [("not verified", x, float(target[x])) for x in range(len(target))]
            else:
                kept = float(accept[token])
                ways = [("accepted", token, kept)]
                ways += [("rejected", x, (1 - kept) * float(correction[x])) for x in range(len(target))]
            found += [Path(token, fate, x, chance * way) for fate, x, way in ways if chance * way > 0]
    return found


def path_sums(found: list[Path], V: int) -> np.ndarray:
    """The output distribution [V] that the paths add up to."""
    return np.bincount([p.output for p in found], weights=[p.chance for p in found], minlength=V)
