"""The target's next-token distribution and the first draft row behind prompts, as the Sampling bias page shows them."""

from collections.abc import Iterable, Iterator
from typing import Any

from avlab.bias.audit.audit import Audit
from avlab.bias.audit.build import CONTEXT, load
from avlab.bias.audit.rules import parse
from avlab.bias.real_rows import OTHERS, shortened
from avlab.config import RunConfig
from avlab.engine.build import Progress


def rows_at(
    config: RunConfig, prompts: Iterable[str], progress: Progress = lambda text, done, total: None
) -> Iterator[dict[str, Any]]:
    """prompt, names, target and draft for each prompt, at the configuration's temperature."""
    target, drafter, text = load(config, 1, CONTEXT, progress)
    for prompt in prompts:
        progress("computing the rows", 0, 0)
        tokens = text.encode([{"role": "user", "content": prompt}])
        audit = Audit(target, drafter, tokens, parse("none"), config.temperature)
        ids, p, q = shortened(audit.one, audit.draft_row())
        names = [*(text.piece(token).replace("\n", "⏎").strip() or "␣" for token in ids), OTHERS]
        yield {"prompt": prompt, "names": names, "target": p.round(6).tolist(), "draft": q.round(6).tolist()}
