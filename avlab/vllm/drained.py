"""What `avlab.vllm.extension` tells, as frames: steps, refits, calibration, cost tables."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from avlab.wire import frames

NO_LENGTH = -1  # of verification is held: `extension.UNTRIMMED`
NO_STEPS = (
    -2
)  # asks for a record's tables and sums without its steps: `extension.NO_STEPS`; a test compares both
UNTOLD_KIND = "all"  # requests' kinds and temperatures are not known to vLLM's workers
PROFILED = "profiled by vLLM"


class Drained:
    """A reader of one worker's record, from the step at which it began to read.

    put: takes a frame. began: the run's beginning on this machine's monotonic clock. K: the run's draft positions,
    where the worker may have fewer. temperature: of all requests, where it is known. Everything is told once: the
    record's cursors are kept here.
    """

    def __init__(
        self, put: Callable[[frames.Frame], None], began: float, K: int = 0, temperature: float = float("nan")
    ):
        self._put, self._began, self._run_K, self._temperature = put, began, K, temperature
        self.base = self.after = self.refits_after = -1
        self.first_step = 0
        self.K = 0
        self._offset = 0.0  # the record's clock less ours
        self._sums: dict[str, dict[tuple[int, int], list[float]]] = {}
        self._window = 0

    def begin(
        self, about: Mapping[str, Any], found: Mapping[str, Any], arm: str, block: int, first_step: int = 0
    ) -> None:
        """Read from here on. about: what `avlab_begin` answered, with "offset": its clock less ours, taken when the
        answer came. found: a whole record, whose steps are left out. first_step: the run's number of the next one.

        Puts the cost tables and the coefficients that the estimator has by now.
        """
        self.K = int(about["K"])
        self._offset = float(about["offset"])
        self.base, self.after = int(found["next"]), int(found["next"]) - 1
        self.first_step = first_step
        self._sums = {source: _by_cell(rows) for source, rows in found["calibration"].items()}
        if "cost_tables" in found:
            self._put(_costs(found, self.K))
        if found["refits_made"]:
            last = found["refits_made"][-1]
            self.refits_after = last[0]
            self._put_refit(last, arm, block, first_step, time.monotonic() + self._offset)

    def step_number(self, number: int) -> int:
        """A record's step as the run counts."""
        return number - self.base + self.first_step

    def take(
        self,
        found: Mapping[str, Any],
        block_of: Callable[[int], int],
        arm_of: Callable[[int], str],
        waiting: int,
    ) -> list[frames.Step]:
        """The steps that are new, as rows; puts what else is new. block_of, arm_of: by the run's step."""
        fields = found["step_fields"]
        steps = []
        for row in found["steps"]:
            if row[0] > self.after:
                self.after = row[0]
                values = dict(zip(fields, row, strict=True))
                number = self.step_number(row[0])
                steps.append(self._step(values, number, block_of(number), waiting))
        for refit in found["refits_made"]:
            if refit[0] > self.refits_after:
                self.refits_after = refit[0]
                number = self.step_number(refit[1])
                self._put_refit(refit, arm_of(number), block_of(number), number, refit[2])
        last = self.step_number(self.after)
        self._put_calibration(found["calibration"], block_of(last))
        return steps

    def _time(self, clock: float) -> float:
        return clock - self._offset - self._began

    def _step(self, each: Mapping[str, Any], number: int, block: int, waiting: int) -> frames.Step:
        rest = (0,) * max(0, self._run_K - self.K)
        scheduled = (*each["scheduled"], *rest)
        return frames.Step(
            step=number,
            time=self._time(each["time"]),
            block=block,
            running=each["requests"],
            waiting=waiting,
            emitting=each["emitting"],
            prompt_tokens=each["prompt_tokens"],
            target_tokens=each["target_tokens"],
            drafted=sum(map(bool, scheduled)),
            budget=each["budget"],
            tokens=each["tokens"],
            scheduled=scheduled,
            admitted=(*each["admitted"], *rest),
            accepted=(*each["accepted"], *rest),
            labelled=(*each["labelled"], *rest),
            expected_ms=each["expected_ms"],
            draft_ms=each["draft_ms"],
            verify_ms=each["verify_ms"],
            sample_ms=each["sample_ms"],
            decide_ms=each["decide_ms"],
            report_ms=0.0,
            idle_ms=each["idle_ms"],
        )

    def _put_refit(self, each: Sequence[Any], arm: str, block: int, step: int, clock: float) -> None:
        refit, _, _, slope, intercepts, counts, positives = each
        self._put(
            frames.Refit(arm, block, refit, step, self._time(clock), slope, intercepts, counts, positives)
        )

    def _put_calibration(self, calibration: Mapping[str, Any], block: int) -> None:
        self._window += 1
        for source, rows in calibration.items():
            now, before = _by_cell(rows), self._sums.get(source, {})
            self._sums[source] = now
            new = {
                cell: [a - b for a, b in zip(sums, before.get(cell, [0.0] * len(sums)), strict=True)]
                for cell, sums in now.items()
            }
            cells = {cell: sums for cell, sums in new.items() if sums[0]}
            if not cells:
                continue
            count, positives, *sums = (list(column) for column in zip(*cells.values(), strict=True))
            self._put(
                frames.Calibration(
                    source=source,
                    block=block,
                    window=self._window,
                    time=time.monotonic() - self._began,
                    kind=UNTOLD_KIND,
                    temperature=self._temperature,
                    position=[position for position, _ in cells],
                    bin=[number for _, number in cells],
                    count=[int(n) for n in count],
                    positives=[int(n) for n in positives],
                    sum_p=sums[0],
                    sum_log_loss=sums[1],
                    sum_squared_error=sums[2],
                )
            )


def _by_cell(rows: Sequence[Sequence[float]]) -> dict[tuple[int, int], list[float]]:
    return {(int(position), int(number)): list(sums) for position, number, *sums in rows}


def _costs(found: Mapping[str, Any], K: int) -> frames.CostProfile:
    """vLLM's tables. It always drafts K positions, so its draft cost does not depend on depth."""
    draft, verify = found["cost_tables"]
    curves = found.get("cost_curves") or [[], []]
    return frames.CostProfile(
        source=PROFILED,
        draft_samples=[(int(n), K, float(ms)) for n, ms in curves[0]],
        verify_samples=[(int(n), float(ms)) for n, ms in curves[1]],
        draft_table=[[0.0, *([float(ms)] * K)] for ms in draft],
        verify_table=[float(ms) for ms in verify],
        cost_hash="",
    )
