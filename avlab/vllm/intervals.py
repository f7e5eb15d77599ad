"""An interval between two readings of a server's counters, as frames."""

from collections.abc import Sequence
from typing import Any

from avlab.vllm import histograms
from avlab.vllm.metrics import Counters, total
from avlab.wire import frames


def step_of(
    parts: Sequence[Counters], step: int, time: float, block: int, adaptive: bool | None
) -> frames.Step:
    """An interval of one or more engines as a step. By position only acceptance is told; where every engine's drafts
    were of its full length that is what was scheduled too, and where verification is known to be fixed, what was
    admitted, and labelled: a slot is if all before it were accepted.
    """
    counters = total(list(parts))
    K = len(counters.accepted_by_position)
    accepted = tuple(map(round, counters.accepted_by_position))
    full = K > 0 and all(
        round(each.draft_tokens) == len(each.accepted_by_position) * round(each.drafts) for each in parts
    )
    scheduled = tuple(_sums([(round(each.drafts),) * len(each.accepted_by_position) for each in parts], K))
    reached = tuple(
        _sums([(round(each.drafts), *map(round, each.accepted_by_position))[:-1] for each in parts], K)
    )
    fixed = full and adaptive is False
    return frames.Step(
        step=step,
        time=time,
        block=block,
        running=round(counters.running),
        waiting=round(counters.waiting),
        emitting=round(counters.outputs),
        prompt_tokens=round(counters.prompt_tokens),
        drafted=K,
        budget=round(counters.draft_tokens) if fixed else None,
        tokens=round(counters.tokens),
        scheduled=scheduled if full else None,
        admitted=scheduled if fixed else None,
        accepted=accepted,
        labelled=reached if fixed else None,
    )


def _sums(rows: Sequence[Sequence[int]], K: int) -> list[int]:
    """By position, of rows that may be shorter than K."""
    return [sum(row[k] for row in rows if k < len(row)) for k in range(K)]


def engine_sample(
    counters: Counters, step: int, time: float, block: int, model: str, engine: str, seconds: float
) -> frames.EngineSample:
    """An interval of one engine as a frame; None for what this server does not tell."""

    def told(name: str, value: Any) -> Any:
        return None if name in counters.missing else value

    return frames.EngineSample(
        step=step,
        time=time,
        block=block,
        model=model,
        engine=engine,
        seconds=seconds,
        running=counters.running,
        waiting=counters.waiting,
        cache_usage=told("cache_usage", counters.cache_usage),
        engine_steps=told("engine_steps", counters.engine_steps),
        prompt_tokens=round(counters.prompt_tokens),
        tokens=round(counters.tokens),
        finished=round(counters.finished),
        preemptions=round(counters.preemptions),
        outputs=round(counters.outputs),
        first_tokens=round(counters.first_tokens),
        first_token_seconds=counters.first_token_seconds,
        later_outputs=round(counters.later_outputs),
        later_seconds=counters.later_seconds,
        drafts=told("drafts", round(counters.drafts)),
        draft_tokens=told("draft_tokens", round(counters.draft_tokens)),
        accepted=told("accepted", round(counters.accepted)),
        accepted_by_position=[round(each) for each in counters.accepted_by_position],
        latencies=histograms.told(counters.latencies),
    )
