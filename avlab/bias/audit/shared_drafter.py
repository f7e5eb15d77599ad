"""The block drafter as the engine's step sees it in an audit: rows behind equal prefixes are computed once."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from avlab.bias.audit.shared_rows import SharedDrafts, SharedDraws, SharedRows
from avlab.bias.audit.shared_target import KEPT, SCRATCH, SharedTarget
from avlab.engine.drafters.base import Drafter, DraftInput
from avlab.engine.drafters.block import HEAD, BlockDrafter
from avlab.engine.drafters.draws import AT_THE_DRAW
from avlab.engine.drafts import Drafts
from avlab.engine.rows import log_sum_exp

Key = tuple[int, int, int]  # start, newest token, depth: what a parallel pass depends on behind one prompt


class SharedDrafter:
    """A `Drafter` that runs the block drafter's parallel pass once for each newest token, and its recurrence once for
    each distinct draft prefix; every draw is its own.
    """

    def __init__(self, block: BlockDrafter, shared: SharedTarget):
        """Draft behind the prompt of this target."""
        self.name, self.K, self.state_layers = block.name, block.K, block.state_layers
        self.features = tuple(name for name in block.features if name in (AT_THE_DRAW, HEAD))
        self.block, self.shared, self.vocabulary = block, shared, block.vocabulary
        self.known: dict[Key, int] = {}  # row of the tables
        sizes = shared.config.hidden, len(block.vocabulary.ids), block.markov_carry.out_features
        self.tables = [
            torch.empty(KEPT + SCRATCH, block.K, size, dtype=shared.dtype, device=shared.device)
            for size in sizes
        ]

    @torch.inference_mode()
    def propose(self, inputs: DraftInput, depth: int, first: Tensor | None = None) -> SharedDrafts:
        """As `BlockDrafter.propose`. first: [B] columns that stand for the first draws, to look at each in turn."""
        block, device = self.block, self.shared.device
        place = self._places(inputs, depth)  # [B] each request's row of the tables
        states, base, drive = self.tables
        draws = SharedDraws(inputs.temperature, inputs.uniforms)
        previous, state = inputs.newest, torch.zeros_like(drive[place, 0])
        prefix = place.cpu().numpy()  # [B] which of the distinct draft prefixes so far is each request's own
        tokens, recurred = [], []
        for k in range(depth):
            code = prefix * len(block.token_drive) + previous.cpu().numpy()
            _, some, prefix = np.unique(code, return_index=True, return_inverse=True)
            one, each = (torch.from_numpy(i).to(device) for i in (some, prefix))
            row = place[one]
            once, logits = block.position(previous[one], state[one], base[row, k], drive[row, k])
            column = draws.draw(SharedRows(logits, log_sum_exp(logits), each))
            state = once[each]
            previous = self.vocabulary.ids[first if first is not None and k == 0 else column]
            tokens.append(previous)
            recurred.append(state)
        drafts = draws.drafts(torch.stack(tokens, 1), self.vocabulary)
        block.add_head(drafts, states[place, :depth], torch.stack(recurred, 1))
        return drafts

    def firsts(self) -> Iterable[Tensor]:
        """Columns of all that can be drafted first, some at a time."""
        return torch.arange(len(self.vocabulary.ids), device=self.shared.device).split(256)

    def assume_read(self, cache_row: int, tokens: int) -> None:
        """It reads the target's cache, and keeps nothing of its own."""

    def forget(self, cache_row: int) -> None:
        """Nothing of a request outlives its cache row."""

    def _places(self, inputs: DraftInput, depth: int) -> Tensor:
        """Rows of the tables, [B]; new ones are computed."""
        keys = [
            (start, token, depth) for start, token in zip(inputs.starts, inputs.newest.tolist(), strict=True)
        ]
        where = {key: i for i, key in enumerate(keys)}
        if len(self.known) + len(where) > KEPT:
            self.known = {}
        new = [(key, i) for key, i in where.items() if key not in self.known]
        for begin in range(0, len(new), SCRATCH):
            self._compute(inputs, depth, new[begin : begin + SCRATCH])
        return torch.tensor([self.known[key] for key in keys], device=self.shared.device)

    def _compute(self, inputs: DraftInput, depth: int, new: list[tuple[Key, int]]) -> None:
        rows = torch.tensor([i for _, i in new], device=self.shared.device)
        some = DraftInput(
            cache_rows=list(range(len(new))),
            starts=[start for (start, _, _), _ in new],
            newest=inputs.newest[rows],
            states=inputs.states[rows],
            temperature=inputs.temperature[rows],
            uniforms=inputs.uniforms[rows],
            cache=self.shared.cache,
            history=[],
        )
        self.shared.restore(len(new))
        begin = len(self.known)
        for table, part in zip(self.tables, self.block.block(some, depth), strict=True):
            table[begin : begin + len(new), :depth] = part
        self.known |= {key: begin + i for i, (key, _) in enumerate(new)}


class WatchedDrafter:
    """Any `Drafter`; last: what it proposed last, for rules that look at draft rows."""

    def __init__(self, drafter: Drafter):
        self.drafter, self.name, self.K = drafter, drafter.name, drafter.K
        self.features, self.state_layers = drafter.features, drafter.state_layers
        self.last: Drafts | None = None

    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        self.last = self.drafter.propose(inputs, depth)
        return self.last

    def assume_read(self, cache_row: int, tokens: int) -> None:
        self.drafter.assume_read(cache_row, tokens)

    def forget(self, cache_row: int) -> None:
        self.drafter.forget(cache_row)
