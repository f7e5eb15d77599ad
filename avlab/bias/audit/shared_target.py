"""The target as the engine's step sees it in an audit: rows behind equal prefixes are computed once.

All continuations follow the same prompt of P tokens, whose keys and values are in every scratch row of the cache. The
prompt's last token is each continuation's newest token, at position P - 1, as it is in serving.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from avlab.bias.audit.shared_rows import SharedRows
from avlab.engine.cache import Batch, KVCache
from avlab.engine.rows import log_sum_exp
from avlab.engine.target import Target
from avlab.speculation.sampling import softmax

SCRATCH = 64  # rows of the cache in which new rows are computed, as many at a time
KEPT = 1200  # rows of logits that stay in memory, 0.2 MB each for a vocabulary of 49,152; the others keep their state
RARE = 256  # rows beside them, for what one step asks of the others


class SharedTarget:
    """A `ServedTarget` whose rows after (prompt) and after (prompt, token) are computed once for each token.

    Rows that follow more tokens decide only what comes after the two tokens of a continuation: they are not
    computed, and the row after the prompt stands in their place.
    """

    def __init__(self, target: Target, prompt: list[int], cache: KVCache, taps: tuple[int, ...]):
        self.target, self.cache, self.taps = target, cache, taps
        self.config, self.dtype = target.config, target.dtype
        self.device, self.length = target.device, target.length
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
        """The prompt through the target; its keys and values then stand in all scratch rows. [P, width]"""
        tokens = torch.tensor(prompt, device=self.device)
        batch = self.target.batch([0], [0], [self.P])
        final, tapped = self.target.forward(tokens, batch, self.cache, self.taps)
        held = (*self.cache.keys, *self.cache.values)
        for each in held:
            each[1:SCRATCH, :, : self.P] = each[0, :, : self.P]
        self.last = [(each, each[0, :, self.P - 1].clone()) for each in held]
        return torch.cat([final, *tapped], 1)

    def new_cache(self, rows: int) -> KVCache:
        return self.target.new_cache(rows)

    def restore(self, rows: int) -> None:
        """Put the prompt's last keys and values back into the first rows, where drafts were written over them."""
        for held, last in self.last:
            held[:rows, :, self.P - 1] = last

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

    def batch(self, cache_rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Batch:
        """As `Target.batch`, without what attention would need: rows are looked up."""
        owner = np.repeat(np.arange(len(cache_rows)), counts)
        first = np.cumsum(counts) - np.array(counts)
        positions = np.array(starts)[owner] + np.arange(len(owner)) - first[owner]
        none = torch.zeros(0, dtype=torch.long)
        return Batch(
            torch.from_numpy(np.array(cache_rows)[owner]), torch.from_numpy(positions), [], none, none
        )

    def forward(
        self, tokens: Tensor, batch: Batch, cache: KVCache, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """As `Target.forward`; the rows' logits follow from the next call of `logit_rows`."""
        depth = batch.positions.cpu().numpy() - (self.P - 1)
        nodes = np.zeros(len(depth), dtype=np.int64)
        after = depth == 1
        nodes[after] = self.rows_after(tokens.cpu().numpy()[after])
        self.asked = nodes
        states = self.states[torch.from_numpy(nodes)]
        H = self.config.hidden
        return states[:, :H], [states[:, H:]]

    def logit_rows(self, states: Tensor) -> SharedRows:
        """Logits of the rows of the last forward pass; an audit samples from every row that it verifies."""
        assert len(states) == len(self.asked)
        return self.rows(self.asked)

    @torch.inference_mode()
    def rows(self, nodes: np.ndarray) -> SharedRows:
        """Logits of rows by number, [N]. Good until the next call: rows that are not kept are written over."""
        rare = np.unique(nodes[nodes >= KEPT])
        if len(rare) > RARE:
            return self._at_length(nodes)
        self._write(KEPT, self.states[torch.from_numpy(rare)])
        index = np.where(nodes >= KEPT, KEPT + np.searchsorted(rare, nodes), nodes)
        return SharedRows(self.table, self.normalisers, torch.from_numpy(index).to(self.device))

    def _at_length(self, nodes: np.ndarray) -> SharedRows:
        logits = self.target.logits(self.states[torch.from_numpy(nodes)][:, : self.config.hidden])
        return SharedRows(logits, log_sum_exp(logits), torch.arange(len(nodes), device=self.device))

    def law(self, nodes: np.ndarray, temperature: float) -> np.ndarray:
        """The target's distributions after these rows, [N, V] float64."""
        return softmax(self.rows(nodes).logits.double().cpu().numpy() / temperature)
