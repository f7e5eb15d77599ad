"""What a serving worker tells its lab: step reports become frames, raw slots become calibration sums."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from avlab.engine.report import Slots, StepReport
from avlab.policies.arm import Arm
from avlab.policies.fixed import NONE
from avlab.speculation import calibration
from avlab.speculation.regression import Coefficients
from avlab.wire import draft_rows, frames
from avlab.workers.raw_slots import RawSlots
from avlab.workers.step_rows import Kept, StepRows

REPORT_SECONDS = 0.25  # steps are sent four times a second, of real time
WINDOW_SECONDS = (
    2.0  # raw slots are summed up every two seconds of the run's clock; some hundred rows each, chosen here
)
SAMPLED_STEPS = 10  # `sampled` keeps the raw slots of every tenth step


class StepReporter:
    """Collects what steps did and puts frames: Steps, Refit, Calibration, Drafts, and Block where one begins.

    put: takes a frame and never blocks. clock: seconds since the run began. drafts: all, sampled or none.
    features: those that raw slots are sent with, where the drafter tells them.
    """

    def __init__(
        self,
        put: Callable[[frames.Frame], None],
        clock: Callable[[], float],
        K: int,
        drafts: str,
        features: Sequence[str],
    ):
        self._put, self._clock, self.K = put, clock, K
        self._recorded = features
        self._every = {"all": 1, "sampled": SAMPLED_STEPS, "none": 0}[drafts]
        if self._every:
            draft_rows.prepare()  # now, so that no step waits for imports
        self.arm: Arm = NONE
        self.block, self.kind, self._taught = -1, "", True
        self.name = "none"  # of the arm, where several blocks have the same one
        self._window = 0
        self._rows = StepRows(K)
        self._slots: list[tuple[int, Slots]] = []  # (step, the engine's raw slots)
        self._rounds: dict[str, np.ndarray] = {}  # by arm: labelled and positive slots since its last refit
        self._labels: list[np.ndarray] = []  # of the arm's round, not yet counted there
        self._sent, self._summed = time.monotonic(), clock()
        self._report_ms = 0.0
        self.tokens = 0

    def begin_block(
        self,
        arm: Arm,
        kind: str,
        step: int,
        workload: str,
        round: int | None = None,
        taught: bool = True,
        name: str = "",
    ) -> None:
        """What follows belongs to a new block. taught: its labels count in the arm's round.

        name: of the arm, where others have the same one. Tokens and raw slots of a playground block are not counted:
        they are the reader's, not the workload's.
        """
        self.flush()
        self.block, self.arm, self.kind, self._taught = self.block + 1, arm, kind, taught
        self.name = name or str(arm)
        self._put(frames.Block(self.block, self.name, kind, step, self._clock(), workload, round))

    def cold_start(self, coefficients: Coefficients, step: int) -> None:
        """The coefficients that an arm's estimator begins with, as refit 0; once an arm."""
        if self.name not in self._rounds:
            self._rounds[self.name] = np.zeros((2, self.K), dtype=np.int64)
            self._put_refit(0, step, coefficients, self._rounds[self.name])

    def take(self, report: StepReport, idle_ms: float) -> None:
        """Take an engine's step report; sends what is due. idle_ms: how long nothing ran before the step."""
        began = self._clock()
        self._rows.add(Kept(report, began, self.block, idle_ms, self._report_ms))
        if self.kind != frames.PLAYGROUND:
            self.tokens += report.tokens
        if report.slots is not None and self.kind != frames.PLAYGROUND:
            self._slots.append((report.step, report.slots))
            if self._taught and self.name in self._rounds:
                self._labels.append(report.slots.label)
        if report.refit is not None:
            self._count_labels()
            counts = self._rounds.get(self.name, np.zeros((2, self.K), dtype=np.int64))
            self._rounds[self.name] = np.zeros_like(counts)
            self._put_refit(report.refit.number, report.step, report.refit.after, counts)
        if time.monotonic() - self._sent >= REPORT_SECONDS:
            self._send_steps()
        if self._clock() - self._summed >= WINDOW_SECONDS:
            self._sum_up()
        self._report_ms = (self._clock() - began) * 1e3

    def spent(self, seconds: float) -> None:
        """Count time that the serving loop spent on texts and arrivals as reporting."""
        self._report_ms += seconds * 1e3

    def flush(self) -> None:
        """Send all that was collected."""
        self._send_steps()
        self._sum_up()

    # ---- frames --------------------------------------------------------------------------------------------

    def _put_refit(self, number: int, step: int, coefficients: Coefficients, counts: np.ndarray) -> None:
        self._put(
            frames.Refit(
                arm=self.name,
                block=self.block,
                refit=number,
                step=step,
                time=self._clock(),
                slope=float(coefficients.slope),
                intercepts=np.asarray(coefficients.intercepts, dtype=float).tolist(),
                counts=counts[0].tolist(),
                positives=counts[1].tolist(),
            )
        )

    def _count_labels(self) -> None:
        """Add the labels since the last time to the arm's round."""
        if self._labels:
            label = np.concatenate(self._labels)
            self._rounds[self.name] += np.stack([(label >= 0).sum(0), (label == 1).sum(0)])
            self._labels = []

    def _send_steps(self) -> None:
        self._sent = time.monotonic()
        self._count_labels()
        if rows := self._rows.take():
            self._put(frames.Steps(rows))

    def _sum_up(self) -> None:
        """Calibration sums and raw slots of the window that ends now."""
        self._summed = self._clock()
        if not self._slots:
            return
        slots = RawSlots.of(self._slots)
        self._slots = []
        self._put_calibration(slots)
        if self._every and (frame := slots.frame(self.block, self._every, self._recorded)):
            self._put(frame)

    def _put_calibration(self, slots: RawSlots) -> None:
        self._window += 1
        for source, kind, temperature, sums in slots.sums(self.arm.source if self.arm.adaptive else ""):
            position, number = np.nonzero(sums[..., calibration.COUNT])
            if not len(position):
                continue
            cells = sums[position, number]
            self._put(
                frames.Calibration(
                    source=source,
                    block=self.block,
                    window=self._window,
                    time=self._clock(),
                    kind=kind,
                    temperature=temperature,
                    position=position.tolist(),
                    bin=number.tolist(),
                    count=cells[:, calibration.COUNT].astype(int).tolist(),
                    positives=cells[:, calibration.POSITIVES].astype(int).tolist(),
                    sum_p=cells[:, calibration.SUM_P].tolist(),
                    sum_log_loss=cells[:, calibration.SUM_LOG_LOSS].tolist(),
                    sum_squared_error=cells[:, calibration.SUM_SQUARED_ERROR].tolist(),
                )
            )
