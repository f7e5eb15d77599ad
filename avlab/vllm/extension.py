"""What only vLLM's own worker can tell of adaptive verification. Name it when a server is started:

    vllm serve MODEL ... --worker-extension-cls avlab.vllm.extension.Watch

and read it once a second with `collective_rpc("avlab_drain", args=(after,))`, in process or over HTTP. Nothing here
changes what is sampled. `Switch` is the same and, by choice, can hold verification at a length: `avlab_policy`.

Written for Model Runner V2 of vLLM 0.32 and 0.33 (`vllm/v1/worker/gpu`). What it needs is looked for by name, and what
is missing is said: `avlab_begin`. This file imports nothing of avlab, so that it can be copied to a server alone.

A step's tokens are those that were sampled: what lies behind an end of text, or beyond a request's limit, is dropped
later, by vLLM's scheduler, and is among them here as it is among the labels that vLLM's estimator learns from.

In the hot path a step costs a few small copies on the device, which are never waited for. Sums over slots are made of
those copies when somebody drains, or when their buffer is full, and stay on the device till then. The overhead on a GPU
has not been measured.

Without development mode nobody can drain: name a folder in AVLAB_TELEMETRY, and a thread beside the hot path writes the
record to a file there (`avlab.vllm.telemetry`, which must lie beside this file then).

A fault of what is written here ends the record, and says so; vLLM serves on.
"""

import importlib
import inspect
import itertools
import logging
import math
import os
import sys
import threading
import time
from collections import deque
from contextlib import nullcontext
from typing import Any

import torch

ADAPTIVE_MODULE = "vllm.v1.worker.gpu.spec_decode.adaptive_verification"
WORKER_MODULE = "vllm.v1.worker.worker_base"
TELEMETRY = "AVLAB_TELEMETRY"  # the variable that names a folder: `avlab.vllm.telemetry`
BUFFER = 64  # steps whose slots are kept as they are
MOST_STEPS = 20_000  # whose sums are kept for readers; ten minutes at thirty steps a second
MOST_REFITS = 2_000
BINS, BIN_RANGE = (
    128,
    8.0,
)  # of log-odds, as in `avlab.speculation.calibration`: a test says that the two are equal
STEP_FIELDS = (
    "number",
    "time",
    "requests",
    "prompt_tokens",
    "target_tokens",
    "budget",
    "verify",
    "decide_ms",
    "idle_ms",
    "verify_ms",
    "sample_ms",
    "draft_ms",
    "expected_ms",
    "emitting",
    "tokens",
    "expected_accepted",
)
VECTORS = ("scheduled", "admitted", "accepted", "labelled")  # behind them, K numbers each
REFIT_FIELDS = ("refit", "number", "time", "slope", "intercepts", "counts", "positives")
UNTRIMMED = -1  # no length is held: vLLM decides
OTHER_COSTS = (
    "This vLLM's cost tables are not by requests and by tokens alone: costs and expected times are not known."
)
TRIMMED_ELSEWHERE = (
    "Fewer drafts were verified than were scheduled, and adaptive verification is off: the drafter trims them on the "
    "device (n-grams without a match). A step's budget is what was verified."
)
OUTCOME = (
    "idx_mapping",
    "num_sampled",
    "num_rejected",
)  # what a drafter's `observe_verification` takes, in its order
PROPOSED = (  # and its `propose`
    "input_batch", "attn_metadata", "slot_mappings", "last_hidden_states", "aux_hidden_states", "num_sampled",
    "num_rejected",
)  # fmt: skip
NO_STEPS = -2  # asked for in place of the last step that is known
NEEDED = {  # attributes that the record reads
    "budget manager": (
        "_batch_budget",
        "_max_total_logits",
        "num_bonus_tokens",
        "_confidence_probs",
    ),
    "estimator": ("features", "slope", "intercepts", "_refits"),
}


class Watch:
    """Mixed into vLLM's worker class: every name begins with avlab_, but the two that vLLM 0.33 calls by itself."""

    model_runner: Any  # the worker's own: declared, not set

    def init_worker_extension(self) -> None:
        """vLLM 0.33 calls this before a model is loaded; 0.32 does not, and `avlab_begin` hooks in later."""
        self.avlab_begin()

    def avlab_begin(self) -> dict:
        """Hook in, once, and say what was found: K, rank, next step's number, and sentences of what was not."""
        if not hasattr(self, "avlab_record"):
            self.avlab_record = Record(self.model_runner, int(getattr(self, "rank", 0)))
            self.avlab_record.hook()
            self.avlab_record.publish(self)
        self.avlab_record.hook()
        return self.avlab_record.about() | {"switch": isinstance(self, Switch)}

    def avlab_drain(self, after: int = -1, refits_after: int = -1) -> dict:
        """Steps behind number `after`, refits behind `refits_after`, sums of calibration since the beginning, and the
        cost tables where `after` is negative; no steps where it is -2. Plain lists and numbers; asking twice gives the
        same again. Of several workers that serve one model, the first alone has a record.
        """
        self.avlab_begin()
        return self.avlab_record.drain(after, refits_after)

    def destroy_worker_extension(self) -> None:
        """vLLM 0.33 calls this before a worker ends: what was not written yet is."""
        if hasattr(self, "avlab_record"):
            self.avlab_record.close()


class Switch(Watch):
    """`Watch` for experiments: it can also hold verification at a length, which changes what is verified, never what
    is sampled from.
    """

    def avlab_policy(self, verify: int = UNTRIMMED) -> int | str:
        """Verify min(verify, scheduled) drafts of each request from the next step on; -1 leaves it to vLLM. Returns
        that step's number, or a sentence where it cannot be: an error of one worker would leave the answers of others
        lying in vLLM's queue, for the next question.
        """
        self.avlab_begin()
        return self.avlab_record.hold(int(verify))


class Record:
    """One worker's record: hooks, the buffer on the device, and what readers ask for."""

    def __init__(self, runner, rank: int):
        self.runner, self.rank, self.verify = runner, rank, UNTRIMMED
        self.missing: list[str] = []
        self.number = 0  # of the next step
        self.steps: deque[list] = deque(maxlen=MOST_STEPS)  # rows of numbers
        self.folded: deque[tuple] = deque(
            maxlen=MOST_STEPS // BUFFER
        )  # steps with their sums, still on the device
        self.refits: deque[list] = deque(maxlen=MOST_REFITS)
        self.curves: list = []  # as vLLM profiled them, where they were set after the hooks
        self.pending: list[dict] = []  # steps in the buffer
        self.step: dict | None = None  # under way
        self.held = UNTRIMMED  # what of `verify` has room in this step
        self.last_mark = None
        self.since_refit: torch.Tensor | None = (
            None  # labelled and accepted since then, [2, K], on the device
        )
        self.sums: dict[str, torch.Tensor] = {}  # calibration, [K, BINS, 5] float64, on the device
        self._hooked: set[str] = set()
        self.failure = ""
        self.notes: list[str] = []  # what was not found in a step, each said once
        self._own = Own(self)
        # `_buffering` guards pending steps and their tensors and is never held while anybody waits for the device;
        # `_settling` guards what readers are given.
        self._buffering, self._settling = threading.Lock(), threading.RLock()
        self._stream: Any = None  # of the device, that the hot path runs on
        self._late = False  # a reader waits for the buffered steps
        self.totals: Any = None  # sums since the start, where a file is written
        self._publisher: Any = None

    # ---- finding one's way -----------------------------------------------------------------------------------

    @property
    def manager(self):
        return getattr(self.runner, "adaptive_verification", None)

    @property
    def estimator(self):
        return getattr(getattr(self.runner, "speculator", None), "acceptance_estimator", None)

    @property
    def tables(self):
        """vLLM's costs by requests and by tokens; None where there are none, or of another shape."""
        tables = getattr(self.manager, "cost_tables", None)
        if tables is None:
            return None
        if _are_tables(tables):
            return tables
        self.note(OTHER_COSTS)
        return None

    @property
    def warming_up(self) -> bool:
        """Whether vLLM serves made-up requests to warm its kernels: it sets the manager aside meanwhile."""
        speculator = getattr(self.runner, "speculator", None)
        return self.manager is None and getattr(speculator, "enable_adaptive_verification", False)

    def hook(self) -> None:
        """Wrap what is there by now; what is there already wrapped stays as it is."""
        runner, self.missing = self.runner, []
        speculator = getattr(runner, "speculator", None)
        states = getattr(runner, "req_states", None)
        if states is None or not hasattr(runner, "sample_tokens"):
            self.missing.append(
                f"{type(runner).__module__}.{type(runner).__name__} is not Model Runner V2: steps, admitted drafts "
                "and coefficients cannot be seen."
            )
            return
        if not (hasattr(speculator, "observe_verification") or _takes_outcomes(speculator)):
            self.missing.append("The drafter is not told what was verified: no step can be seen.")
            return
        self.K = int(runner.num_speculative_steps)
        self.device = runner.device
        self.cuda = self.device.type == "cuda"
        self._wrap(runner, "execute_model", self._execute)
        if hasattr(speculator, "observe_verification"):
            self._wrap(speculator, "observe_verification", self._observe)
        else:  # n-grams and suffixes have nothing to fit: their next draft is the first to hear of the outcome
            self._wrap(speculator, "propose", self._propose)
        self._wrap(runner, "sample_tokens", self._sample)
        module = _module(ADAPTIVE_MODULE)
        kind = getattr(module, "AdaptiveVerificationManager", None)
        if kind is None:
            self.missing.append("This vLLM has no adaptive verification.")
        else:
            self._hook_manager(module, kind)
        if not getattr(speculator, "enable_adaptive_verification", False):
            self.missing.append("Adaptive verification is off: what was scheduled was verified.")
        elif self.estimator is None and "estimator" not in self._hooked:
            if getattr(speculator, "use_confidence_head", False):
                self.missing.append("The drafter's confidence head estimates: there are no coefficients.")
            elif hasattr(speculator, "accept_stats"):
                self.missing.append(
                    "Acceptance is counted by length of match (suffix): there are no coefficients."
                )
        if self.manager is not None and not hasattr(self.manager, "cost_tables"):
            self.missing.append(OTHER_COSTS)
        if self.estimator is not None:
            self._wrap(self.estimator, "step", self._refit)
            self._hooked.add("estimator")
        for name, found in (("budget manager", self.manager), ("estimator", self.estimator)):
            absent = [each for each in NEEDED[name] if found is not None and not hasattr(found, each)]
            if absent:
                self.fail(f"This vLLM's {name} has no {', '.join(absent)}: steps cannot be seen.")
        self.missing += self.notes + ([self.failure] if self.failure else [])
        if self._publisher is not None and self._publisher.failure:
            self.missing.append(self._publisher.failure)

    def note(self, sentence: str) -> None:
        """Say once what is not known of steps; the record goes on."""
        if sentence not in self.notes:
            self.notes.append(sentence)
            self.missing.append(sentence)

    def _hook_manager(self, module, kind) -> None:
        for name in ("get_num_tokens", "reallocate_drafts", "set_cost_curves"):
            if not hasattr(kind, name):
                self.missing.append(
                    f"This vLLM's budget manager has no {name}: its part of a step is not known."
                )
                continue
            if name not in self._hooked:
                self._hooked.add(name)
                _wrap_method(kind, name, getattr(self, f"_{name}"))
        assign = "_assign_draft_token_budget_compiled"
        if assign in self._hooked:
            return
        if hasattr(module, assign):
            self._hooked.add(assign)
            setattr(module, assign, _around(getattr(module, assign), self._assign))
        else:
            self.missing.append(
                "This vLLM ranks drafts in another place: verification cannot be held at a length."
            )

    def fail(self, sentence: str) -> None:
        """End the record: what is there stays, nothing is added. A length that is held stays held: other workers of
        the same model hold it too.
        """
        self.failure, self.step = self.failure or sentence, None

    def _wrap(self, owner, name: str, inner) -> None:
        key = f"{name}@{id(owner)}"
        if key not in self._hooked:
            self._hooked.add(key)
            setattr(owner, name, _around(getattr(owner, name), inner))

    def about(self) -> dict:
        """What was found, in plain values."""
        manager, estimator = self.manager, self.estimator
        runner = type(self.runner)
        return {
            "rank": self.rank,
            "runner": f"{runner.__module__}.{runner.__name__}",
            "K": getattr(self, "K", 0),
            "steps": bool(self._hooked) and not self.failure,
            "adaptive": manager is not None,
            "source": self._source(),
            "refits": getattr(estimator, "_refits", -1),
            "refit_interval": getattr(estimator, "REFIT_INTERVAL", 0),
            "next": self.number,
            "clock": time.monotonic(),
            "missing": list(self.missing),
            "failure": self.failure,
        }

    def _source(self) -> str:
        """What estimates acceptance: "online", "head", "counts" of suffixes, or "" where nothing does."""
        if self.manager is None:
            return ""
        if self.estimator is not None:
            return "online"
        return "counts" if hasattr(getattr(self.runner, "speculator", None), "accept_stats") else "head"

    def hold(self, verify: int) -> int | str:
        """Hold verification at a length, or let vLLM decide again. Returns the number of the next step, or why not."""
        if self.failure:
            return self.failure
        if self.manager is None:
            return "Adaptive verification is off, so its length cannot be held."
        if "_assign_draft_token_budget_compiled" not in self._hooked:
            return "This vLLM ranks drafts in another place: verification cannot be held at a length."
        if not UNTRIMMED <= verify <= self.K:
            return f"verify is {verify}; it must be 0 to {self.K}, or -1 for vLLM's own rule."
        self.verify = verify
        return self.number

    # ---- a file beside it -------------------------------------------------------------------------------------

    def publish(self, worker) -> None:
        """Begin to write a file where AVLAB_TELEMETRY names a folder; the first of several workers does."""
        if not os.environ.get(TELEMETRY) or self.rank != 0:
            return
        with self._own:
            name = __name__.replace("extension", "telemetry")
            telemetry = _module(name)
            if telemetry is None:
                self.note(f"Telemetry is not written: {name}.py must lie beside the extension.")
            elif not hasattr(self, "K"):
                self.note("Telemetry is not written: " + " ".join(self.missing))
            else:
                self.totals = telemetry.Totals(self.K)
                self._publisher = telemetry.Publisher(self, os.environ[TELEMETRY], _identity(worker))
                self._publisher.start()
        if self._publisher is None:
            logging.getLogger("vllm.avlab").warning("avlab: %s", (self.notes or [self.failure])[-1])

    def close(self) -> None:
        """Write what is left."""
        if self._publisher is not None:
            self._publisher.close()

    def ready(self) -> bool:
        """Whether a file can be laid out: K is known, and the costs where there will be any."""
        speculator = getattr(self.runner, "speculator", None)
        adaptive = getattr(speculator, "enable_adaptive_verification", False)
        return hasattr(self, "K") and (self.number > 0 or not adaptive or self.tables is not None)

    def rooms(self) -> tuple[int, int]:
        """Bytes that calibration and costs may need."""
        tables = self.tables or ((), ())
        samples = sum(map(len, self.curves)) + 1024
        return 2 * (4 + self.K * BINS * 7 * 8), 16 + 8 * (sum(map(len, tables)) + 2 * samples)

    # ---- the hot path ----------------------------------------------------------------------------------------

    def _execute(self, original, *args, **named):
        """A step begins."""
        dummy = args[2] if len(args) > 2 else named.get("dummy_run", False)
        self.step, self.held = None, UNTRIMMED
        if not (dummy or self.failure or self.warming_up):
            with self._own:
                self.step = self._begun(args[0] if args else named["scheduler_output"])
        try:
            return original(*args, **named)
        finally:
            if self.step is not None:
                self.step["verified"] = self._mark()

    def _begun(self, scheduler_output) -> dict | None:
        counts, drafts = scheduler_output.num_scheduled_tokens, scheduler_output.scheduled_spec_decode_tokens
        tokens = sum(counts.values())
        if not tokens:
            return None
        lengths = list(map(len, drafts.values()))
        if lengths.count(self.K) == len(
            lengths
        ):  # nearly always: every loop over requests is paid in each step
            scheduled = [len(lengths)] * self.K
        else:
            longer = [0] * (self.K + 1)  # drafts of exactly k tokens, then of more than k
            for n in lengths:
                longer[min(n, self.K)] += 1
            for k in range(self.K - 1, 0, -1):
                longer[k] += longer[k + 1]
            scheduled = longer[1:]
        prompt_tokens = 0
        if tokens - sum(lengths) > len(counts):  # more than one of its own for some request
            own = [n - len(drafts.get(request, ())) for request, n in counts.items()]
            prompt_tokens = sum(n for n in own if n > 1)
        return {
            "requests": len(counts),
            "prompt_tokens": prompt_tokens,
            "target_tokens": tokens,
            "budget": sum(lengths),
            "scheduled": scheduled,
            "verify": self.verify,
            "decide_ms": 0.0,
            "expected_ms": math.nan,
            "begun": self._mark(),
        }

    def _get_num_tokens(self, manager, original, *args, **named):
        """vLLM chooses the budget; a held length replaces it."""
        began = time.perf_counter()
        tokens = original(manager, *args, **named)
        step = self.step
        if step is None and self.verify == UNTRIMMED:
            return tokens
        with self._own:
            if manager._batch_budget is None:
                return tokens
            drafts, others, budget = manager._batch_budget
            if self.verify != UNTRIMMED:
                room = manager._max_total_logits - len(drafts) * manager.num_bonus_tokens
                self.held, budget = _longest(list(drafts.values()), self.verify, room)
                manager._batch_budget = (drafts, others, budget)
                tokens = sum(others.values()) + budget
            if step is None:
                return tokens
            step["verify"] = self.held
            step["budget"], step["target_tokens"] = int(budget), int(tokens)
            tables = self.tables
            if tables is not None:
                step["expected_ms"] = float(tables[0][len(drafts)] + tables[1][tokens])
            step["decide_ms"] += (time.perf_counter() - began) * 1e3
        return tokens

    def _reallocate_drafts(self, manager, original, *args, **named):
        began = time.perf_counter()
        result = original(manager, *args, **named)
        if self.step is not None:
            self.step["decide_ms"] += (time.perf_counter() - began) * 1e3
        return result

    def _assign(self, original, confidence, idx_mapping, capacities, *args, **named):
        """vLLM gives the budget to the likeliest slots; a held length gives each request its own share."""
        if self.held == UNTRIMMED:
            return original(confidence, idx_mapping, capacities, *args, **named)
        capacities.clamp_(max=self.held)

    def _observe(self, original, *args, **named):
        """The outcome is known, on the device: copy what the estimate was made of before the next draft replaces it."""
        if self.step is not None and self.rank == 0:
            with self._own, self._buffering:
                told = dict(zip(OUTCOME, args, strict=False)) | named
                self._keep(self.step, *(told[name] for name in OUTCOME))
        return original(*args, **named)

    def _propose(self, original, *args, **named):
        """The next draft of a drafter that observes nothing: the outcome is among what it is given."""
        step = self.step
        if step is not None and "observed" not in step and self.rank == 0 and not named.get("dummy_run"):
            with self._own, self._buffering:
                told = dict(zip(PROPOSED, args, strict=False)) | named
                batch, *outcome = (told[name] for name in ("input_batch", *OUTCOME[1:]))
                self._keep(step, batch.idx_mapping, *outcome)
        return original(*args, **named)

    def _keep(self, step: dict, idx_mapping, num_sampled, num_rejected) -> None:
        n = idx_mapping.shape[0]
        if not self.sums:
            self.hook()  # the estimator and the manager are there by now
            self._allocate()
        if len(self.pending) == BUFFER or self._late:
            self._fold()
        row = len(self.pending)
        manager, estimator, requests = self.manager, self.estimator, idx_mapping.long()
        self._rows[row].fill_(
            n
        )  # here, for numbers that _fold brought over from the host would be waited for
        self._sampled[row, :n].copy_(num_sampled)
        self._rejected[row, :n].copy_(num_rejected)
        if manager is not None:
            torch.index_select(manager._confidence_probs, 0, requests, out=self._estimate[row, :n])
        if estimator is not None:
            torch.index_select(estimator.features, 0, requests, out=self._feature[row, :n])
        step |= {
            "number": self.number,
            "time": time.monotonic(),
            "rows": n,
            "estimated": manager is not None,
            "observed": self._mark(),
            "before": self.last_mark,
        }
        self.number += 1
        self.pending.append(step)

    def _refit(self, original, *args, **named):
        """The estimator learns; where it refits, keep the coefficients, still on the device."""
        estimator = self.estimator
        if self.failure or self.rank != 0:
            return original(*args, **named)
        before = None
        with self._own:
            before = estimator._refits
            if not self.refits:  # what the record begins with
                self._remember(estimator, before)
        result = original(*args, **named)
        with self._own:
            if before is not None and estimator._refits != before:
                with self._buffering:
                    self._fold()
                    self._remember(estimator, estimator._refits)
        return result

    def _remember(self, estimator, refit: int) -> None:
        slots = self.since_refit
        counts = (
            torch.zeros(2, self.K, dtype=torch.int64, device=self.device) if slots is None else slots.clone()
        )
        if slots is not None:
            slots.zero_()
        number, now = self.number - 1, time.monotonic()
        self.refits.append(
            [refit, number, now, estimator.slope.clone(), estimator.intercepts.clone(), counts]
        )

    def _sample(self, original, *args, **named):
        """Sampling, observing and the next draft: behind it the step is over."""
        result = original(*args, **named)
        if self.step is not None and "observed" in self.step:
            self.step["drafted"] = self.last_mark = self._mark()
        self.step = None
        return result

    def _mark(self):
        """A moment: of the device's own time on a GPU, where it is only recorded."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    # ---- sums ------------------------------------------------------------------------------------------------

    def _allocate(self) -> None:
        requests, K, device = int(self.runner.max_num_reqs), self.K, self.device
        self._stream = torch.cuda.current_stream(device) if self.cuda else None
        whole = {"dtype": torch.int32, "device": device}
        self._rows = torch.zeros(BUFFER, **whole)
        self._sampled = torch.zeros(BUFFER, requests, **whole)
        self._rejected = torch.zeros(BUFFER, requests, **whole)
        self._estimate = torch.zeros(BUFFER, requests, K, dtype=torch.float32, device=device)
        self._feature = torch.zeros(BUFFER, requests, K, dtype=torch.float32, device=device)
        self.since_refit = torch.zeros(2, K, dtype=torch.int64, device=device)
        sources = ([self.about()["source"]] if self.manager is not None else []) + (
            ["raw"] if self.estimator is not None else []
        )
        double = {"dtype": torch.float64, "device": device}
        self.sums = {name: torch.zeros(K, BINS, 5, **double) for name in sources} or {
            "": torch.zeros(0, **double)
        }

    def _fold(self) -> None:
        """Make sums of the buffered steps. On the device, and not waited for."""
        pending, self.pending, self._late = self.pending, [], False
        if not pending:
            return
        with torch.inference_mode():
            B, S = max(step["rows"] for step in pending), len(pending)
            sampled, rejected = self._sampled[:S, :B].long(), self._rejected[:S, :B].long()
            there = torch.arange(B, device=self.device) < self._rows[:S, None]
            sampled, rejected = sampled * there, rejected * there
            accepted = (sampled - 1).clamp(min=0)  # without the target's own token
            admitted = accepted + rejected
            k = torch.arange(self.K, device=self.device)
            is_admitted, is_accepted = k < admitted[..., None], k < accepted[..., None]  # [S, B, K]
            labelled = is_admitted & (k <= accepted[..., None])
            vectors = torch.stack([is_admitted.sum(1), is_accepted.sum(1), labelled.sum(1)], 1)  # [S, 3, K]
            survival = torch.cumprod(self._estimate[:S, :B].double(), 2)
            expected = torch.where(is_admitted, survival, 0.0).sum((1, 2))
            totals = torch.stack([(sampled > 0).sum(1), sampled.sum(1), expected], 1)  # [S, 3]
            assert self.since_refit is not None
            self.since_refit += torch.stack([labelled.sum((0, 1)), is_accepted.sum((0, 1))])
            for source, sums in self.sums.items():
                if source:
                    values = self._feature if source == "raw" else torch.logit(self._estimate.double())
                    _add(sums, values[:S, :B].double(), is_accepted, labelled)
        self.folded.append((pending, vectors, totals))

    # ---- readers ---------------------------------------------------------------------------------------------

    def drain(self, after: int, refits_after: int) -> dict:
        """What happened since; waits for the device, once. Of two threads that ask at once the second waits."""
        with self._settling, self._on_stream():
            self._fold_for_readers()
            with self._buffering, torch.inference_mode():
                copies = {name: sums.clone() for name, sums in self.sums.items() if name}
                refits = list(self.refits)
            found = self.about() | {
                "step_fields": [*STEP_FIELDS, *VECTORS],
                "refit_fields": list(REFIT_FIELDS),
            }
            while self.folded:
                self._settle(*self.folded.popleft())
            newer = itertools.takewhile(lambda row: row[0] > after, reversed(self.steps))
            found["steps"] = [] if after == NO_STEPS else list(newer)[::-1]
            first = found["steps"][0][0] if found["steps"] else self.number
            found["dropped"] = 0 if after == NO_STEPS else max(0, first - (after + 1))
            found["refits_made"] = [_plain_refit(each) for each in refits if each[0] > refits_after]
            found["calibration"] = {name: _cells(sums) for name, sums in copies.items()}
            if after < 0:
                found |= self.costs()
        return found

    def _fold_for_readers(self) -> None:
        """Sums of the buffered steps. Another thread's question may fall into a step: then the hot path makes them
        at the next one, and the reader has them the next time.
        """
        with self._buffering:
            if self.step is None:
                self._fold()
            else:
                self._late = True

    def _on_stream(self):
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def costs(self) -> dict:
        """The cost tables and the curves that they were made of, as far as they are known."""
        tables = self.tables
        if tables is None:
            return {}
        return {"cost_tables": [table.tolist() for table in tables], "cost_curves": self.curves}

    def _settle(self, steps: list[dict], vectors: torch.Tensor, totals: torch.Tensor) -> None:
        """Make rows of numbers of steps, their tensors and their moments."""
        for step, by_position, total in zip(steps, vectors.tolist(), totals.tolist(), strict=True):
            step |= dict(zip(VECTORS[1:], by_position, strict=True))
            verify_ms = self._between(step["begun"], step.get("verified"))
            if (
                not self.cuda
            ):  # the host decides within it; a GPU's own time has that only where it waits for it
                verify_ms = max(0.0, verify_ms - step["decide_ms"])
            step |= {
                "emitting": int(total[0]),
                "tokens": int(total[1]),
                "expected_accepted": total[2] if step["estimated"] else math.nan,
                "idle_ms": self._between(step["before"], step["begun"]),
                "verify_ms": verify_ms,
                "sample_ms": self._between(step.get("verified"), step["observed"]),
                "draft_ms": self._between(step["observed"], step.get("drafted")),
            }
            more = 0 if step["estimated"] else step["budget"] - sum(step["admitted"])
            if more > 0:
                self.note(TRIMMED_ELSEWHERE)
                step["budget"] -= more
                step["target_tokens"] -= more
            self.steps.append([step[name] for name in (*STEP_FIELDS, *VECTORS)])
            if self.totals is not None:
                self.totals.add(step)

    def _between(self, first, last) -> float:
        """Milliseconds from one moment to another; 0 where one was not met."""
        if first is None or last is None:
            return 0.0
        return max(0.0, float(first.elapsed_time(last)) if self.cuda else (last - first) * 1e3)

    def _set_cost_curves(self, manager, original, draft_curve, verify_curve):
        result = original(manager, draft_curve, verify_curve)
        self.curves = [[[int(n), float(ms)] for n, ms in curve] for curve in (draft_curve, verify_curve)]
        return result


def _are_tables(tables) -> bool:
    """Whether costs are two tables of one dimension each: by requests, by tokens."""
    two = isinstance(tables, (tuple, list)) and len(tables) == 2
    return two and all(getattr(table, "ndim", 0) == 1 for table in tables)


def _takes_outcomes(speculator) -> bool:
    """Whether a drafter's `propose` is told what was verified, in the order that is known."""
    propose = getattr(speculator, "propose", None)
    if propose is None:
        return False
    try:
        names = tuple(inspect.signature(propose).parameters)
    except (TypeError, ValueError):
        return False
    return names[: len(PROPOSED)] == PROPOSED or names == ("args", "named")  # as known, or wrapped already


def _identity(worker) -> dict:
    """What a file says of its server: as its own metrics name it."""
    model, parallel = getattr(worker, "model_config", None), getattr(worker, "parallel_config", None)
    name = getattr(model, "served_model_name", None) or getattr(model, "model", "")
    engine = getattr(parallel, "data_parallel_index", getattr(parallel, "data_parallel_rank", 0))
    version = getattr(_module("vllm"), "__version__", "")
    return {
        "model": str(name[0] if isinstance(name, list) else name),
        "engine": int(engine),
        "vllm": str(version),
    }


class Own:
    """What is the record's own within a step of vLLM's: a fault in it ends the record, and nothing else."""

    def __init__(self, record: Record):
        self.record = record

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, trace) -> bool:
        if isinstance(error, Exception):
            self.record.fail(f"Steps cannot be seen any more ({type(error).__name__}: {error}).")
            return True
        return False


def _around(original, inner):
    """A function that hands its arguments to `inner`, with the original in front."""

    def wrapped(*args, **named):
        return inner(original, *args, **named)

    return wrapped


def _wrap_method(kind, name: str, inner) -> None:
    original = getattr(kind, name)

    def wrapped(self, *args, **named):
        return inner(self, original, *args, **named)

    setattr(kind, name, wrapped)


def _module(name: str):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _longest(lengths: list[int], most: int, room: int) -> tuple[int, int]:
    """The longest common length up to `most` whose drafts fit into `room` logits, and how many drafts that is."""
    for length in range(most, 0, -1):
        budget = sum(min(length, n) for n in lengths)
        if budget <= room:
            return length, budget
    return 0, 0


def _add(sums: torch.Tensor, x: torch.Tensor, accepted: torch.Tensor, labelled: torch.Tensor) -> None:
    """Add labelled slots to binned sums: x log-odds [S, B, K] float64, sums [K, BINS, 5]."""
    K = x.shape[-1]
    # a probability of exactly 0 or 1 has no finite log-odds; float32 keeps none beyond 88
    x = x.clamp(-88.0, 88.0).nan_to_num()
    y, weight = accepted.double(), labelled.double()
    p = torch.sigmoid(x)
    loss = torch.nn.functional.softplus(torch.where(accepted, -x, x))
    bins = ((x + BIN_RANGE) * (BINS / (2 * BIN_RANGE))).floor().clamp(0, BINS - 1).long()
    cell = (torch.arange(K, device=x.device) * BINS + bins).flatten()
    columns = torch.stack([torch.ones_like(y), y, p, loss, (p - y) ** 2], -1) * weight[..., None]
    sums.view(K * BINS, 5).index_add_(0, cell, columns.reshape(-1, 5))


def _cells(sums: torch.Tensor) -> list[list]:
    """Non-empty cells: position, bin, count, positives, and sums of p, log-loss and squared error."""
    rows = []
    for k, bins in enumerate(sums.tolist()):
        rows += [[k, number, int(c[0]), int(c[1]), *c[2:]] for number, c in enumerate(bins) if c[0]]
    return rows


def _plain_refit(each: list) -> list:
    if len(each) == 6:
        labelled, accepted = each[5].tolist()
        each[3:] = [float(each[3].item()), each[4].tolist(), labelled, accepted]
    return list(each)


def _begin_by_itself() -> None:
    """Hook in when a worker's device is ready, where vLLM does not (0.32). vLLM imports this file before that."""
    wrapper = getattr(sys.modules.get(WORKER_MODULE), "WorkerWrapperBase", None)
    original = getattr(wrapper, "init_device", None)
    if wrapper is None or original is None:
        return

    def init_device(self, *args, **named):
        result = original(self, *args, **named)
        worker = getattr(self, "worker", None)
        if isinstance(worker, Watch) and not hasattr(worker, "avlab_record"):
            worker.avlab_begin()
        return result

    wrapper.init_device = init_device


if os.environ.get(TELEMETRY):
    _begin_by_itself()
