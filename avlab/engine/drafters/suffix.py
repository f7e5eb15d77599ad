"""Suffix decoding: the end of a text is looked for in it and in earlier answers, and the commonest way on is drafted.

The rule is that of vLLM's `suffix` method (Oliaro et al., arXiv 2411.04975, as in Arctic Inference): for every length
of the match, go on by the commonest next token while the share of the counts is large enough; the way with the most
expected tokens is the draft. Longer matches may draft more. Ours looks at the newest places of a token only
(`seen.MOST_PLACES`), and in earlier answers for matches of two tokens and more.
"""

import itertools
from collections import Counter, deque
from dataclasses import dataclass

from avlab.engine.drafters.base import DrafterContext, DrafterKind, DraftInput, register
from avlab.engine.drafters.lookup import ELSEWHERE, FEATURES, NOTE, NOTHING, OWN, Copied, proposed
from avlab.engine.drafters.options import read_options
from avlab.engine.drafters.seen import Place, SeenTexts
from avlab.engine.drafts import Drafts


@dataclass(frozen=True, slots=True)
class SuffixOptions:
    """vLLM's options and defaults.

    max_tree_depth: the most tokens of a match and its draft together. max_cached_requests: answers that are kept. A
    draft has at most max_spec_factor tokens for each token of the match, and ends where the share of the counts that
    agree with all of it falls below min_token_prob.
    """

    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 10_000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1

    def __post_init__(self) -> None:
        name = "suffix_decoding_"
        if not 2 <= self.suffix_decoding_max_tree_depth <= 1_000:
            raise ValueError(f"{name}max_tree_depth must be from 2 to 1000")
        if not 0 <= self.suffix_decoding_max_cached_requests <= 100_000:
            raise ValueError(f"{name}max_cached_requests must be from 0 to 100000")
        if not 0 <= self.suffix_decoding_max_spec_factor <= 1_000:
            raise ValueError(f"{name}max_spec_factor must be from 0 to 1000")
        if not 0 <= self.suffix_decoding_min_token_prob <= 1:
            raise ValueError(f"{name}min_token_prob must be from 0 to 1")


@dataclass(slots=True)
class Own:
    """A request's own text, with how many tokens its prompt has. real: whether it is more than a timing's."""

    seen: SeenTexts
    prompt: int
    real: bool = True


class SuffixDrafter:
    """Drafts of up to K tokens, from each request's own text and from answers to earlier ones."""

    name = "suffix"
    vocabulary = None
    state_layers: tuple[int, ...] = ()
    features: tuple[str, ...] = FEATURES

    def __init__(self, K: int, options: SuffixOptions):
        self.K, self.options = K, options
        self.alone = options.suffix_decoding_max_cached_requests == 0
        self._own: dict[int, Own] = {}
        self._timed: set[int] = set()
        self._answers, self._kept = SeenTexts(single=False), deque[int]()
        self._numbers = itertools.count()

    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        return proposed(self, inputs, depth)

    def look_up(self, row: int, tokens: list[int], depth: int) -> Copied:
        own = self._own.get(row)
        if own is None:
            own = self._own[row] = Own(SeenTexts(single=True), len(tokens) - 1, row not in self._timed)
        text = own.seen.texts.get(0, [])
        own.seen.add(0, tokens[len(text) :])
        pattern = tokens[-self.options.suffix_decoding_max_tree_depth :]
        here = self._best(own.seen, pattern, depth, OWN)
        there = self._best(self._answers, pattern, depth, ELSEWHERE)
        return (here if here[0] >= there[0] else there)[1]

    def _best(self, seen: SeenTexts, pattern: list[int], depth: int, source: int) -> tuple[float, Copied]:
        """The draft of most expected tokens, by counts alone, and how many those are."""
        best = 0.0, NOTHING
        factor, deepest = (
            self.options.suffix_decoding_max_spec_factor,
            self.options.suffix_decoding_max_tree_depth,
        )
        for n in (2, 1) if seen.single else (2,):
            ends = seen.ends(pattern, n)
            for match in sorted({length for _, length in ends}, reverse=True):
                most = min(depth, int(match * factor + 1e-6), max(deepest - match, 1))
                if best[0] >= most:  # no shorter match expects more
                    return best
                places = [place for place, length in ends if length >= match]
                expected, copied = self._way(seen, places, most, match, source)
                if expected > best[0]:
                    best = expected, copied
        return best

    def _way(
        self, seen: SeenTexts, places: list[Place], most: int, match: int, source: int
    ) -> tuple[float, Copied]:
        """On from these places by the commonest next token, and the sum of its chances by counts."""
        tokens: list[int] = []
        before: list[int] = []
        agreeing: list[int] = []
        chance, expected = 1.0, 0.0
        for k in range(1, most + 1):
            following: Counter[int] = Counter()
            for number, at in places:
                text = seen.texts[number]
                if at + k < len(text):
                    following[text[at + k]] += 1
            if not following:
                break
            token, count = max(following.items(), key=lambda each: (each[1], -each[0]))
            chance *= count / len(places)
            if chance < self.options.suffix_decoding_min_token_prob:
                break
            expected += chance
            tokens.append(token)
            before.append(len(places))
            agreeing.append(count)
            places = [
                (number, at)
                for number, at in places
                if at + k < len(seen.texts[number]) and seen.texts[number][at + k] == token
            ]
        return expected, Copied(tokens, before, agreeing, match, source)

    def assume_read(self, cache_row: int, tokens: int) -> None:
        """What is timed is no text: it is not kept when it ends."""
        self._timed.add(cache_row)

    def forget(self, cache_row: int) -> None:
        """Keep the answer for requests to come; the oldest goes where there are too many."""
        self._timed.discard(cache_row)
        own = self._own.pop(cache_row, None)
        most = self.options.suffix_decoding_max_cached_requests
        if own is None or not own.real or not most:
            return
        number = next(self._numbers)
        self._answers.add(number, own.seen.texts[0][own.prompt :])
        self._kept.append(number)
        if len(self._kept) > most:
            self._answers.remove(self._kept.popleft())


def make(context: DrafterContext) -> SuffixDrafter:
    """The drafter of these options. Raises CheckpointError."""
    return SuffixDrafter(context.K, read_options("suffix", context.options, SuffixOptions))


register(DrafterKind("suffix", "suffix decoding", "", make, note=NOTE))
