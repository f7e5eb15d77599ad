"""Recording drafts that are copied from the text: only the target's chance of each token is asked for.

A copied token is accepted where the text goes on with it. That is the law of verification: it accepts with the target's
probability of the token, and draws another token otherwise.
"""

import numpy as np
import torch

from avlab.engine.drafters.lookup import FEATURES, Lookup, described
from avlab.engine.recording.chances import Sampling
from avlab.engine.recording.recorder import Recorded, TextReader
from avlab.engine.recording.texts import Text
from avlab.engine.target import Target


class LookupRecorder:
    """Records texts with one target and one drafter without logits, each text by itself."""

    def __init__(self, target: Target, drafter: Lookup, sampling: Sampling):
        self.reader, self.drafter, self.K = TextReader(target, drafter, sampling), drafter, drafter.K

    @torch.inference_mode()
    def record(self, text: Text, draw: int = 0) -> Recorded:
        """Drafts at every position of a text; draw: of several recordings, all the same."""
        read, K, tokens = self.reader.read(text), self.K, text.prompt + text.output
        n, first = len(read.written), len(text.prompt)
        features = np.full((n, K, len(FEATURES)), np.nan)
        accepted, acceptance = np.zeros(n, dtype=np.int64), torch.full((n, K), torch.nan)
        asked: list[tuple[int, int, int]] = []  # anchor, slot, token
        for anchor in range(n):
            known = first + anchor + 1
            copied = self.drafter.look_up(0, tokens[:known], K)
            if copied.tokens:
                features[anchor, : len(copied.tokens)] = described(copied)
            for slot, token in enumerate(copied.tokens):
                if anchor + slot >= n:
                    break
                asked.append((anchor, slot, token))
                if token != tokens[known + slot]:
                    break
                accepted[anchor] += 1
        self.drafter.forget(0)
        if asked:
            anchors, slots, drafted = torch.tensor(asked).T
            columns = self.reader.column_of[drafted]
            acceptance[anchors, slots] = read.p.take(anchors + slots).of_column(columns).float()
        behind = np.full((n, K, K, len(FEATURES)), np.nan)
        return Recorded(accepted, features, acceptance.numpy(), behind)
