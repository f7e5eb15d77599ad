"""Target and drafter as the engine's step sees them in an audit: rows of equal prefixes are computed once.

All continuations follow the same prompt of P tokens, whose keys and values are in every scratch slot of the cache. The
prompt's last token is each continuation's newest token, at position P - 1, as it is in serving.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from avlab.engine.cache import Batch, KVCache
from avlab.engine.drafters.base import DraftInput, Drafts
from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.drafters.draws import Draws
from avlab.engine.rows import TableRows, TableSlots, draw_rows, log_sum_exp
from avlab.engine.target import Target
from avlab.speculation.sampling import softmax

SCRATCH = 64  # slots of the cache in which new rows are computed, as many at a time
KEPT = 1200  # rows of logits that stay in memory, 0.2 MB each for a vocabulary of 49,152; the others keep their state
RARE = 256  # rows beside them, for what one step asks of the others


class SharedTarget:
    """A target whose rows after (prompt) and after (prompt, token) are computed once for each token.

    Rows that follow more tokens decide only what comes after the two tokens of a continuation: they are not
    computed, and the row after the prompt stands in their place.
    """

    def __init__(self, target: Target, prompt: list[int], cache: KVCache, taps: tuple[int, ...]):
        self.target, self.cache, self.taps = target, cache, taps
        self.config, self.dtype, self.device, self.length = (
            target.config,
            target.dtype,
            target.device,
            target.length,
        )
        self.P = len(prompt)
        V, width = target.config.vocabulary, (1 + len(taps)) * target.config.hidden
        # only what is written to takes memory
        self.table = torch.empty(KEPT + RARE, V, device=self.device)
        self.normalisers = torch.empty(KEPT + RARE, device=self.device)
        self.states = torch.empty(V + 1, width, dtype=self.dtype, device=self.device)
        self.node = np.full(
            V, -1, dtype=np.int64
        )  # number of the row after (prompt, token); 0 follows the prompt
        self.nodes = 0
        states = self._prefill(prompt)
        self.before = states[-2]  # [width] states at the last verified position, as the drafter is given them
        self._keep(states[-1:])
        self.asked = np.zeros(0, dtype=np.int64)  # nodes of the last forward pass, in order

    @torch.inference_mode()
    def _prefill(self, prompt: list[int]) -> Tensor:
        """The prompt through the target; its keys and values then stand in all scratch slots. [P, width]"""
        tokens = torch.tensor(prompt, device=self.device)
        batch = self.target.batch([0], [0], [self.P])
        final, tapped = self.target.forward(tokens, batch, self.cache, self.taps)
        held = (*self.cache.keys, *self.cache.values)
        for each in held:
            each[1:SCRATCH, :, : self.P] = each[0, :, : self.P]
        self.last = [(each, each[0, :, self.P - 1].clone()) for each in held]
        return torch.cat([final, *tapped], 1)

    def restore(self, slots: int) -> None:
        """Put the prompt's last keys and values back into the first slots, where drafts were written over them."""
        for held, last in self.last:
            held[:slots, :, self.P - 1] = last

    def rows_after(self, tokens: np.ndarray) -> np.ndarray:
        """Numbers of the rows after (prompt, token), computed where they are new. [N] -> [N]"""
        new = np.unique(tokens[self.node[tokens] < 0])
        for begin in range(0, len(new), SCRATCH):
            self._compute(new[begin : begin + SCRATCH])
        return self.node[tokens]

    @torch.inference_mode()
    def _compute(self, tokens: np.ndarray) -> None:
        m = len(tokens)
        batch = self.target.batch(range(m), [self.P] * m, [1] * m)
        self.restore(m)
        rows = torch.from_numpy(tokens).to(self.device)
        final, tapped = self.target.forward(rows, batch, self.cache, self.taps)
        self.node[tokens] = self.nodes + np.arange(m)
        self._keep(torch.cat([final, *tapped], 1))

    def _keep(self, states: Tensor) -> None:
        begin, end = self.nodes, self.nodes + len(states)
        self.states[begin:end] = states
        self._write(begin, states[: max(0, KEPT - begin)])
        self.nodes = end

    def _write(self, place: int, states: Tensor) -> None:
        """Logits of these states into the table, from this row on."""
        if len(states):
            logits = self.target.logits(states[:, : self.config.hidden])
            self.table[place : place + len(states)] = logits
            self.normalisers[place : place + len(states)] = log_sum_exp(logits)

    def batch(self, slots: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Batch:
        """As `Target.batch`, without what attention would need: rows are looked up."""
        owner = np.repeat(np.arange(len(slots)), counts)
        first = np.cumsum(counts) - np.array(counts)
        positions = np.array(starts)[owner] + np.arange(len(owner)) - first[owner]
        none = torch.zeros(0, dtype=torch.long)
        return Batch(torch.from_numpy(np.array(slots)[owner]), torch.from_numpy(positions), [], none, none)

    def forward(self, tokens: Tensor, batch: Batch, cache: KVCache, taps: tuple[int, ...] = ()):
        """As `Target.forward`; the rows' logits follow from the next call of `logits`."""
        depth = batch.positions.cpu().numpy() - (self.P - 1)
        nodes = np.zeros(len(depth), dtype=np.int64)
        after = depth == 1
        nodes[after] = self.rows_after(tokens.cpu().numpy()[after])
        self.asked = nodes
        states = self.states[torch.from_numpy(nodes)]
        H = self.config.hidden
        return states[:, :H], [states[:, H:]]

    def logits(self, states: Tensor) -> TableRows:
        """Logits of the rows of the last forward pass; an audit samples from every row that it verifies."""
        assert len(states) == len(self.asked)
        return self.rows(self.asked)

    @torch.inference_mode()
    def rows(self, nodes: np.ndarray) -> TableRows:
        """Logits of rows by number, [N]. Good until the next call: rows that are not kept are written over."""
        rare = np.unique(nodes[nodes >= KEPT])
        if len(rare) > RARE:
            return self._at_length(nodes)
        self._write(KEPT, self.states[torch.from_numpy(rare)])
        index = np.where(nodes >= KEPT, KEPT + np.searchsorted(rare, nodes), nodes)
        return TableRows(self.table, self.normalisers, torch.from_numpy(index).to(self.device))

    def _at_length(self, nodes: np.ndarray) -> TableRows:
        logits = self.target.logits(self.states[torch.from_numpy(nodes)][:, : self.config.hidden])
        return TableRows(logits, log_sum_exp(logits), torch.arange(len(nodes), device=self.device))

    def law(self, nodes: np.ndarray, temperature: float) -> np.ndarray:
        """The target's distributions after these rows, [N, V] float64."""
        rows = self.rows(nodes)
        return softmax(rows[torch.arange(len(nodes))].double().cpu().numpy() / temperature)


class SharedDraws(Draws):
    """Draws from rows that many requests share; a row's distribution and feature are computed once."""

    def __init__(self, temperature: Tensor, uniforms: Tensor):
        super().__init__(temperature, uniforms)
        self._tables: list[Tensor] = []
        self._places: list[Tensor] = []

    @property
    def rows(self) -> Any:
        return TableSlots(torch.cat(self._tables), torch.stack(self._places, 1))

    def draw(self, logits: Any) -> Tensor:
        """As `Draws.draw`, from `TableRows`; an audit has one temperature."""
        U, k = len(logits.table), len(self._places)
        once = Draws(self.temperature[:1].expand(U).contiguous(), self.uniforms.new_zeros(U, 1))
        once.draw(logits.table)
        self._places.append(sum(map(len, self._tables)) + logits.index)
        self._tables.append(once.rows[:, 0])
        self._features.append(torch.from_numpy(once.feature[:, 0]).to(logits.index.device)[logits.index])
        rows = logits if self._unscaled else logits / self.temperature[:, None]
        each = torch.arange(len(rows), device=rows.device)
        return draw_rows(rows, each, rows.normalisers, self.uniforms[:, k].contiguous())


class ForcedDraws(SharedDraws):
    """Draws whose first columns are given, [B], and not drawn: for looking at every draft token in turn."""

    def __init__(self, columns: Tensor, temperature: Tensor, uniforms: Tensor):
        super().__init__(temperature, uniforms)
        self.columns = columns

    def draw(self, logits: Any) -> Tensor:
        first, drawn = not self._places, super().draw(logits)
        return self.columns if first else drawn


class WatchedDrafter(BlockDrafter):
    """The block drafter; last: what it proposed last, for rules that look at rows."""

    last: Drafts

    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        self.last = super().propose(inputs, depth)
        return self.last


class SharedDrafter(WatchedDrafter):
    """The block drafter, its parallel pass run once for each newest token; every draw is its own.

    place: [B] each request's row of the tables; prefix: [B] which of the distinct draft prefixes so far is its own.
    """

    draws: Callable[..., Draws] = SharedDraws
    shared: SharedTarget
    place: Tensor
    prefix: np.ndarray

    @contextlib.contextmanager
    def forced(self, columns: Tensor) -> Iterator[None]:
        """Meanwhile the first draft tokens are the columns given, [B]."""
        self.draws = partial(ForcedDraws, columns)
        try:
            yield
        finally:
            del self.draws

    def share(self, shared: SharedTarget) -> None:
        """From now on draft behind this target's prompt; rows that are known there are kept."""
        if getattr(self, "shared", None) is shared:
            return
        self.shared = shared
        self.known: dict[tuple[int, int, int], int] = {}  # (start, newest token, depth) -> row of the tables
        H, M, Q = shared.config.hidden, self.markov_carry.out_features, len(self.vocabulary.ids)
        self.tables = [
            torch.empty(KEPT + SCRATCH, self.K, size, dtype=shared.dtype, device=shared.device)
            for size in (H, Q, M)
        ]

    def block(self, inputs: DraftInput, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        """As `BlockDrafter.block`, but the logits are the whole table, in which `position` finds its rows."""
        keys = [
            (start, token, depth) for start, token in zip(inputs.starts, inputs.newest.tolist(), strict=True)
        ]
        where = {key: i for i, key in enumerate(keys)}
        if len(self.known) + len(where) > KEPT:
            self.known = {}
        new = [(key, i) for key, i in where.items() if key not in self.known]
        for begin in range(0, len(new), SCRATCH):
            self._compute(inputs, depth, new[begin : begin + SCRATCH])
        self.place = torch.tensor([self.known[key] for key in keys], device=self.shared.device)
        self.prefix = self.place.cpu().numpy()
        states, logits, drive = self.tables
        return states[self.place, :depth], logits, drive[self.place, :depth]

    def position(self, k: int, previous: Tensor, state: Tensor, base: Tensor, drive: Tensor):
        """As `BlockDrafter.position`, computed once for each distinct draft prefix."""
        prefix = self.prefix * len(self.token_drive) + previous.cpu().numpy()
        _, first, back = np.unique(prefix, return_index=True, return_inverse=True)
        self.prefix = back
        some, each = (torch.from_numpy(i).to(self.shared.device) for i in (first, back))
        state, logits = super().position(k, previous[some], state[some], base[self.place[some]], drive[some])
        return state[each], TableRows(logits, log_sum_exp(logits), each)

    def _compute(self, inputs: DraftInput, depth: int, new: list[tuple[tuple[int, int, int], int]]) -> None:
        rows = torch.tensor([i for _, i in new], device=self.shared.device)
        some = DraftInput(
            slots=list(range(len(new))),
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
        for table, part in zip(self.tables, super().block(some, depth), strict=True):
            table[begin : begin + len(new), :depth] = part
        self.known |= {key: begin + i for i, (key, _) in enumerate(new)}
