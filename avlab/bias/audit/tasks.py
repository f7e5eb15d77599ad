"""What an audit's process can be asked: an audit, whole texts, or the rows at a prompt. Each says rows as they grow."""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypedDict

import torch

from avlab.bias.audit.answers import Answers
from avlab.bias.audit.audit import TOGETHER, Audit, Counts
from avlab.bias.audit.copied_drafts import Copying, CopyingDrafter
from avlab.bias.audit.ranking import rank
from avlab.bias.audit.rules import AuditError, parse
from avlab.bias.audit.shared_drafter import SharedDrafter
from avlab.bias.goodness_of_fit import Fit
from avlab.bias.real_rows import OTHERS, shortened
from avlab.bias.text_measures import Texts, differences, intervals
from avlab.config import RunConfig
from avlab.engine.build import Progress, choose_device, choose_drafter, choose_dtype
from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.drafters.ngram import NgramDrafter
from avlab.engine.drafters.suffix import SuffixDrafter
from avlab.engine.fetch import target_folder
from avlab.engine.target import Target
from avlab.engine.text import Text
from avlab.workloads import Moment, open_workload

AUDITED = ("block", "ngram", "suffix")
NEEDS = (
    "An audit needs {} that fits the target: leave --drafter at default with the default target, or give one."
)
CONTEXT = 512  # positions of an audit's target
SAY_SECONDS = 0.5  # between two reports
LEVEL = 0.01
SHOWN_TEXTS = 3
RANKED_PROMPTS, SHORT = 15, 128  # beside the one that is audited; tokens


class AuditOrder(TypedDict):
    """Audits, [rule, seed] each, of one prompt. tests: for how many G-tests p-values are corrected."""

    config: dict[str, object]
    K: int
    prompt: str
    continuations: int
    audits: list[tuple[str, int]]
    tests: int


class TextsOrder(TypedDict):
    """Answers to the same requests under each of `rules`."""

    config: dict[str, object]
    K: int
    rules: list[str]
    requests: int
    max_new_tokens: int


class RowsOrder(TypedDict):
    """Target and draft row behind each of `prompts`."""

    config: dict[str, object]
    prompts: list[str]


class Answer(Protocol):
    """Takes what is found, and how far the work is."""

    def progress(self, text: str, done: int, total: int) -> None:
        """So much of a total is done; a total of 0 is unknown."""
        ...

    def found(self, row: Mapping[str, object]) -> None:
        """A row, which replaces one with the same key."""
        ...


def load(
    config: RunConfig, K: int, context: int | None, progress: Progress = lambda text, done, total: None
) -> tuple[Target, BlockDrafter, Text]:
    """Weights as the configuration names them, with a block drafter. Raises AuditError, CheckpointError or FetchError.

    context: positions of the target of an audit, which is in float32; None to serve as a run would.
    """
    target, drafter, text = load_any(config, K, context, progress)
    if not isinstance(drafter, BlockDrafter):
        raise AuditError(NEEDS.format("a block drafter"))
    return target, drafter, text


def load_any(
    config: RunConfig, K: int, context: int | None, progress: Progress = lambda text, done, total: None
) -> tuple[Target, BlockDrafter | Copying, Text]:
    """The same, with any drafter that an audit can look into."""
    folder, device = target_folder(config.target), choose_device(config.device)
    chosen, _ = choose_drafter(config.drafter, folder)
    if chosen is None or chosen.kind.name not in AUDITED:
        raise AuditError(NEEDS.format("a block drafter, ngram or suffix"))
    progress("loading the target", 0, 0)
    dtype = torch.float32 if context else choose_dtype(config.dtype, device)
    target = Target(folder, dtype, device, context or config.max_model_len)
    progress("loading the drafter", 0, 0)
    drafter = chosen.make(target, TOGETHER, K)
    assert isinstance(drafter, BlockDrafter | NgramDrafter | SuffixDrafter)
    return target, drafter, Text(folder)


def audit(order: AuditOrder, answer: Answer) -> None:
    """A row for each of the order's audits, anew as its continuations grow."""
    audits = [(parse(rule), seed) for rule, seed in order["audits"]]
    config, count = RunConfig.make(order["config"]), order["continuations"]

    if not audits:
        return

    progress = answer.progress
    target, drafter, text = load_any(config, order["K"], CONTEXT, progress)
    prompt = text.encode([{"role": "user", "content": order["prompt"]}])
    auc: dict[str, float] = {}
    slots = 0
    if isinstance(drafter, BlockDrafter):  # others have no rows to rank
        progress("how well each score ranks acceptance", 0, 0)
        auc, slots = rank(target, drafter, [prompt, *short_prompts(text)], config.temperature)
    shared: SharedDrafter | CopyingDrafter | None = None
    exact: dict[str, float | None] = {}
    for rule, seed in audits:
        progress(f"rows behind the prompt, {rule.label}", 0, 0)
        made = Audit(target, drafter, prompt, rule, config.temperature, seed, shared)
        if shared is None:
            shared = made.drafter
            made.prepare(count)
        if rule.text not in exact:
            exact[rule.text] = made.exact_total_variation()
        row = {
            "rule": rule.text, "label": rule.label, "sound": rule.sound, "seed": seed,
            "exact_total_variation": exact[rule.text], "predictor": rule.predictor,
            "auc": auc.get(rule.predictor or ""), "ranking": auc, "labelled": slots, "tests": order["tests"],
        }  # fmt: skip
        history: list[list[float]] = []
        began, said = time.perf_counter(), 0.0
        for counts in made.continuations(count):
            now, done = time.perf_counter(), int(counts.one.sum())
            progress(rule.label, done, count)
            if now - said < SAY_SECONDS and done < count:
                continue
            said = now
            grown = found(made, counts, order["tests"], history)
            answer.found(row | grown | {"per_second": round(done / (now - began), 1), "done": done == count})


def short_prompts(text: Text) -> list[list[int]]:
    """Prompts of the mixed workload, to rank scores behind more than one."""
    stream = open_workload("mixed", seed=0, repeat=True).stream
    prompts = (text.encode(stream.take(Moment(0.0)).messages) for _ in itertools.count())
    return list(itertools.islice((each for each in prompts if len(each) <= SHORT), RANKED_PROMPTS))


def found(made: Audit, counts: Counts, tests: int, history: list[list[float]]) -> dict[str, object]:
    """What an audit says after so many continuations; adds a point to its history."""
    done = int(counts.one.sum())
    one, two = made.fits(counts, tests)
    history.append([done, one.p_value, two.p_value, one.total_variation, one.noise_floor])
    return {
        "continuations": done,
        "one": described(one),
        "two": described(two),
        "rejected": min(one.corrected, two.corrected) < LEVEL,
        "prefixes": made.shared.nodes,
        "history": history,
    }


def described(fit: Fit) -> dict[str, float | None]:
    """A fit as JSON; a statistic that is infinite is None."""
    return {
        "cells": fit.cells,
        "statistic": fit.statistic if math.isfinite(fit.statistic) else None,
        "p_value": fit.p_value,
        "corrected": fit.corrected,
        "total_variation": fit.total_variation,
        "noise_floor": fit.noise_floor,
    }


def texts(order: TextsOrder, answer: Answer) -> None:
    """Answers to the same requests under each of the order's rules.

    Every rule after the first is compared with the first, request by request.
    """
    rules = [parse(rule) for rule in order["rules"]]
    config, R = RunConfig.make(order["config"]), order["requests"]
    workload = open_workload(config.workload, seed=config.seed, repeat=True)
    asked = [workload.stream.take(Moment(0.0)) for _ in range(R)]
    target, drafter, text = load(config, order["K"], None, answer.progress)
    prompts = [text.encode(prompt.messages) for prompt in asked]
    reference: Texts | None = None
    for number, rule in enumerate(rules):
        answers = Answers(
            target, drafter, prompts, rule, order["max_new_tokens"], config.temperature, config.seed
        )
        said = time.perf_counter()
        for ended in answers.serve():
            now = time.perf_counter()
            if now - said >= SAY_SECONDS:
                said = now
                answer.progress(rule.label, number * R + ended, len(rules) * R)
        done = answers.texts()
        shown = [
            {"prompt": asked[i].turns[-1][1], "text": text.decode(answers.tokens[i])}
            for i in range(min(SHOWN_TEXTS, R))
        ]
        row = {
            "rule": rule.text, "label": rule.label, "sound": rule.sound, "requests": R,
            "tokens": int(done.tokens.sum()), "measures": plain(intervals(done)), "difference": None, "texts": shown,
        }  # fmt: skip
        if reference is not None:
            row["difference"] = plain(differences(done, reference))
        reference = reference or done
        answer.found(row)


def plain(measures: dict[str, tuple[float, float, float]]) -> dict[str, list[float | None]]:
    """Intervals as JSON; what is not a number is None."""
    return {name: [x if math.isfinite(x) else None for x in interval] for name, interval in measures.items()}


def rows_at(
    config: RunConfig, prompts: Iterable[str], progress: Progress = lambda text, done, total: None
) -> Iterator[dict[str, object]]:
    """prompt, names, target and draft for each prompt, at the configuration's temperature."""
    target, drafter, text = load(config, 1, CONTEXT, progress)
    for prompt in prompts:
        progress("computing the rows", 0, 0)
        tokens = text.encode([{"role": "user", "content": prompt}])
        audit = Audit(target, drafter, tokens, parse("none"), config.temperature)
        ids, p, q = shortened(audit.one, audit.draft_row())
        names = [*(text.piece(token).replace("\n", "⏎").strip() or "␣" for token in ids), OTHERS]
        yield {"prompt": prompt, "names": names, "target": p.round(6).tolist(), "draft": q.round(6).tolist()}


def rows(order: RowsOrder, answer: Answer) -> None:
    """Target and draft row behind each of the order's prompts."""
    for each in rows_at(RunConfig.make(order["config"]), order["prompts"], answer.progress):
        answer.found(each)


TASKS = {"audit": audit, "texts": texts, "rows": rows}
