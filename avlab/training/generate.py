"""Training data: the target answers its own questions and the workloads' training prompts.

What the drafter reads at serving time is recorded as the target computed it (cached keys and values of a few layers,
states after others), so training never runs the target again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from avlab.engine.target import Target

# 18 holds one of the strongest induction heads of SmolLM2-135M (measured)
KEY_LAYERS = (18, 23, 29)
STATE_LAYERS = (18, 24)  # the inputs of these layers are recorded beside the final state
LENGTH = 640  # positions a conversation may fill


@dataclass(slots=True)
class Conversation:
    """A conversation being written. Rows from `first` on were sampled by the target and may serve as anchors."""

    tokens: list[int]
    temperature: float
    kind: str
    first: int
    limit: int
    question: bool = False
    answer_limit: int = 300
    cache_row: int = -1
    done: int = 0  # positions whose keys, values and states are recorded
    log_normaliser: list[float] = field(default_factory=list)


def sample(logits: Tensor, temperature: Tensor) -> Tensor:
    """One token a row by inverse transform; temperature 0 takes the maximum. [N, V], [N] -> [N]."""
    greedy = logits.argmax(-1)
    cumulative = (logits / temperature.clamp_min(1e-3)[:, None]).softmax(-1).cumsum(-1)
    draw = torch.rand(len(logits), 1) * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, draw).squeeze(1).clamp_max(logits.shape[1] - 1)
    return torch.where(temperature == 0, greedy, drawn)


class ShardWriter:
    """Collects finished conversations and writes them as numbered safetensors files of about `size` tokens."""

    def __init__(self, folder: Path, size: int = 20_000):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.size, self.held = folder, size, 0
        self.parts: list[tuple[dict[str, Tensor], str]] = []  # conversation, kind
        self.number = len(list(folder.glob("shard-*.safetensors")))
        self.total = 0

    def add(self, part: dict[str, Tensor], kind: str) -> None:
        self.parts.append((part, kind))
        self.held += len(part["tokens"])
        self.total += len(part["tokens"])
        if self.held >= self.size:
            self.flush()

    def flush(self) -> None:
        if not self.parts:
            return
        joined = {name: torch.cat([p[name] for p, _ in self.parts]) for name in self.parts[0][0]}
        kinds = ",".join(kind for _, kind in self.parts)
        path = self.folder / f"shard-{self.number:05d}.safetensors"
        save_file(joined, path.with_suffix(".part"), metadata={"kinds": kinds})
        path.with_suffix(".part").rename(path)
        self.number, self.parts, self.held = self.number + 1, [], 0


def generate(
    target: Target,
    conversations: Iterator[Conversation],
    answer_header: list[int],
    end: int,
    writer: ShardWriter,
    tokens: int,
    in_flight: int = 96,
    progress: Callable[[int, float], None] = lambda done, rate: None,
    key_layers: tuple[int, ...] = KEY_LAYERS,
    state_layers: tuple[int, ...] = STATE_LAYERS,
) -> None:
    """Serve conversations until `tokens` positions are written, or none are left.

    A self-asked question is followed by its answer. key_layers: whose keys and values are recorded; state_layers: whose
    inputs are, behind the final states.
    """
    cache = target.new_cache(in_flight)
    width = (1 + len(state_layers)) * target.config.hidden
    states = torch.zeros(in_flight, LENGTH, width, dtype=torch.bfloat16)
    live: list[Conversation] = []
    began, first = time.monotonic(), writer.total
    while writer.total - first < tokens:
        while len(live) < in_flight and (new := next(conversations, None)) is not None:
            new.cache_row = cache.acquire()
            live.append(new)
        if not live:
            break
        live.sort(key=lambda c: c.cache_row)
        counts = [len(c.tokens) - c.done for c in live]
        batch = target.batch([c.cache_row for c in live], [c.done for c in live], counts)
        rows = torch.tensor([t for c in live for t in c.tokens[c.done :]])
        final, tapped = target.forward(rows, batch, cache, state_layers)
        states[batch.cache_rows, batch.positions] = torch.cat([final, *tapped], 1).bfloat16()
        last = torch.tensor(counts).cumsum(0) - 1
        logits = target.logits(final[last])
        normaliser = logits.logsumexp(-1).tolist()
        drawn = sample(logits, torch.tensor([c.temperature for c in live])).tolist()
        for c, count, token, norm in zip(list(live), counts, drawn, normaliser, strict=True):
            c.log_normaliser += [float("nan")] * (count - 1) + [norm]
            c.done = len(c.tokens)
            if token == end and c.question and len(c.tokens) + 80 < LENGTH:
                c.tokens += [token, *answer_header]
                c.question, c.limit = False, min(LENGTH - 1, len(c.tokens) + c.answer_limit)
            elif token == end or len(c.tokens) + 1 >= c.limit:
                writer.add(_record(c, cache, states, key_layers), c.kind)
                cache.release(c.cache_row)
                live.remove(c)
            else:
                c.tokens.append(token)
        progress(writer.total - first, (writer.total - first) / (time.monotonic() - began))
    writer.flush()


def _record(c: Conversation, cache, states: Tensor, key_layers: tuple[int, ...]) -> dict[str, Tensor]:
    n = c.done

    def layers_of(store: list[Tensor]) -> Tensor:  # -> [n, layers, kv_heads * head_dim]
        return torch.stack([store[i][c.cache_row, :, :n].transpose(0, 1).flatten(1) for i in key_layers], 1)

    return {
        "tokens": torch.tensor(c.tokens[:n], dtype=torch.int32),
        "states": states[c.cache_row, :n].clone(),
        "keys": layers_of(cache.keys).bfloat16(),
        "values": layers_of(cache.values).bfloat16(),
        "log_normaliser": torch.tensor(c.log_normaliser, dtype=torch.float32),
        "conversation": torch.tensor([[n, c.first, int(c.temperature * 1000)]], dtype=torch.int32),
    }
