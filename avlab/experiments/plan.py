"""The plan of an A/B from what a reader typed: checked here, so that a worker only starts on one that can be served."""

import math
import re
import secrets
from collections.abc import Sequence
from typing import TypeVar

from avlab.config import ConfigError
from avlab.experiments.statistics import least_rounds
from avlab.formats import counted
from avlab.kinds.base import ServingConfig
from avlab.policies.arm import DEFAULT_ARM, PolicyError, arm_of, labels, load_of, unlabelled
from avlab.wire.commands import Experiment

Served = TypeVar("Served", bound=ServingConfig)

DESIGNS = {
    "switchback": "One worker serves the same stream of requests throughout. The arm changes from block to block in "
    "random order, so drift of the machine hits every arm alike.",
    "isolated": "Every block starts without requests, and each arm of a round serves the same prompts with the same "
    "seeds. No arm inherits requests, cache or estimates from another. What +depth knows of step costs is the "
    "machine's, and is kept.",
}
ARMS = (DEFAULT_ARM, "adaptive", "fixed:5", "none")  # of an A/B that names none
FRONTIER_ARMS = (
    DEFAULT_ARM,
    "adaptive",
    "adaptive+depth",
    "fixed:1",
    "fixed:3",
    "fixed:5",
    "fixed:7",
    "none",
)
FRONTIER_LOADS = (1, 2, 4, 8, 16, 32, 64)
DECIDED = ("policy", "arrival", "duration", "tokens", "requests")  # settings that a plan decides
DEFAULT_BLOCKS = {"switchback": "40steps", "isolated": "80steps"}
DEFAULT_WASHOUT = 4
ENGINE_BLOCK = "400steps"  # where an engine is started for every block
MOST_ROUNDS = 2000
MOST_ARMS = 12
SEED_BITS = 31
LEAST_REPEATS = 3  # behind an interval: with two, Student's is some hundred times wider than they are apart
SECONDS_A_STEP = 0.05  # a guess, for how long a wash-out lasts where a block is given in seconds


def make_plan(
    config: Served,
    arms: Sequence[str],
    baseline: str | None = None,
    concurrency: int = 16,
    rounds: int = 30,
    design: str = "switchback",
    block: str | None = None,
    washout: int | None = None,
    learn: int = 200,
    order_seed: int | None = None,
) -> tuple[Served, Experiment]:
    """A run's configuration and the plan of its A/B. Raises ConfigError, with a sentence for everything that is wrong.

    arms: policies; one listed twice is compared with itself. baseline: else the first fixed length, else none, else the
    first arm. block: the length of a counted block, as "40steps" or "2s". washout: else 4 steps. Where every block has
    an engine of its own, an adaptive arm begins each knowing nothing: it learns within the wash-out, which is then
    `learn` steps long unless told otherwise, for all arms. order_seed: of the order of arms, and with the run's seed of
    the prompts of isolated blocks; else drawn here, since the statistics rest on an order that nobody knew. The plan,
    and with it the database, keeps it.
    """
    if fresh := config.engines:
        design, block = "isolated", block or ENGINE_BLOCK
    problems: list[str] = []
    named: list[str] = []
    try:
        named = labels([arm for arm in arms if arm.strip()], config.K)
        for label in named:
            config.changed(policy=unlabelled(label))
            if "head_log_odds" in arm_of(label).reads and not config.head:
                raise PolicyError(
                    f"policy {label} needs the drafter's confidence head, which is off: leave --no-head out."
                )
        chosen = baseline_of(named, baseline)
    except (PolicyError, ConfigError) as error:
        problems.append(str(error))
        chosen = ""
    if named and len(named) < 2:
        problems.append(
            f"an A/B needs two arms or more, and there is only {named[0]}: add one, such as none."
        )
    if not named and not problems:
        problems.append("an A/B needs arms: name two or more, such as adaptive,fixed:5.")
    if len(named) > MOST_ARMS:
        problems.append(f"{len(named)} arms are too many to compare at once; give at most {MOST_ARMS}.")
    if design not in DESIGNS:
        problems.append(f"there is no design {design!r}; choose {' or '.join(DESIGNS)}.")
    if not 1 <= rounds <= MOST_ROUNDS:
        problems.append(f"rounds is {rounds}; it must be 1 to {MOST_ROUNDS}.")
    if concurrency < 1:
        problems.append(f"concurrency is {concurrency}; it must be 1 request or more.")
    if concurrency > config.max_num_seqs:
        problems.append(
            f"concurrency is {concurrency}; it must be at most max_num_seqs, {config.max_num_seqs}: "
            "lower it, or raise max_num_seqs."
        )
    if washout is None:
        within = fresh and any(arm_of(label).learns for label in named)
        washout = max(learn, DEFAULT_WASHOUT) if within else DEFAULT_WASHOUT
    if washout < 1:
        problems.append(
            "washout is below 1 step: the first step after a switch still carries the arm before."
        )
    if order_seed is None:
        order_seed = secrets.randbits(SEED_BITS)
    if not 0 <= order_seed < 1 << SEED_BITS:
        problems.append(f"order-seed is {order_seed}; it must be 0 to {(1 << SEED_BITS) - 1}.")
    if learn < 0:
        problems.append(f"learn is {learn}; it must be 0 steps or more.")
    try:
        length, unit = parse_block(block or DEFAULT_BLOCKS.get(design, "40steps"), washout)
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise ConfigError(problems)
    learn = 0 if fresh else learn
    plan = Experiment(named, chosen, rounds, concurrency, design, length, unit, washout, learn, order_seed)
    endless = {"duration": None, "tokens": None, "requests": None}
    first = unlabelled(chosen)
    served = config.changed(policy=first, arrival=f"closed:{concurrency}", **endless)
    return served.reading(list(map(arm_of, named))), plan


def parse_block(text: str, washout: int) -> tuple[float, str]:
    """("40steps", 4) as (40.0, "steps"). Raises ValueError for no length, and for one that a wash-out outlasts; of a
    block in seconds that is an estimate, at SECONDS_A_STEP.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(steps?|s|seconds?)\s*", text)
    if not match:
        raise ValueError(
            f"the block length {text!r} is no length; give steps or seconds, such as 40steps or 2s."
        )
    length, unit = float(match[1]), "steps" if match[2].startswith("st") else "seconds"
    if unit == "steps" and length != int(length):
        raise ValueError(f"a block of {counted(length, 'step')} does not exist; give a whole number.")
    if not 0 < length < math.inf:
        raise ValueError("a block of length 0 counts nothing; give a longer one.")
    lasts = washout if unit == "steps" else washout * SECONDS_A_STEP
    if length <= lasts:
        about = (
            "" if unit == "steps" else f", some {lasts:g} s at {1e3 * SECONDS_A_STEP:g} ms a step (a guess)"
        )
        raise ValueError(
            f"a block of {counted(length, unit.removesuffix('s'))} is no longer than its wash-out of "
            f"{counted(washout, 'step')}{about}: lengthen it, give it in steps, or shorten the wash-out."
        )
    return length, unit


def notes(plan: Experiment) -> list[str]:
    """What a reader should know of a plan before it is served, though nothing is wrong with it; a sentence each."""
    said: list[str] = []
    frontier = any(map(load_of, plan.arms))
    if frontier and plan.rounds < LEAST_REPEATS:
        said.append(
            f"With {counted(plan.rounds, 'repeat')} there are no error bars: at least {LEAST_REPEATS} are needed."
        )
    if not frontier and plan.rounds < least_rounds():
        said.append(
            f"With {counted(plan.rounds, 'round')} there is no interval and no verdict: at least "
            f"{least_rounds()} are needed."
        )
    return said


def baseline_of(named: list[str], asked: str | None) -> str:
    """The arm that others are compared with: the one asked for, else the first fixed length, else none, else the first.

    Raises PolicyError for one that is not among them."""
    if asked:
        wanted = labels([unlabelled(asked)])[0] + asked[len(unlabelled(asked)) :]
        if wanted not in named:
            raise PolicyError(
                f"the baseline {asked} is not among the arms {', '.join(named)}: add it, or name one."
            )
        return wanted
    lengths = [label for label in named if arm_of(label).verified is not None]
    drafting = [label for label in lengths if arm_of(label).drafts]
    return (drafting or lengths or named or [""])[0]


def steps_ahead(plan: Experiment) -> int | None:
    """Steps that the plan takes in all, without what dropped rounds add; None where blocks are in seconds."""
    if plan.unit != "steps":
        return None
    learning = plan.learn * sum(arm_of(label).learns for label in plan.arms)
    return learning + int(plan.rounds * len(plan.arms) * (plan.washout + plan.length))
