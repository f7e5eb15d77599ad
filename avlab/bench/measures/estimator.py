"""How well the online estimator is calibrated on labels that it neither chose nor learnt from."""

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.speculation import calibration
from avlab.speculation.features import probability

BARS = (
    Bar("ece", "ECE of the fitted estimate, 15 equal-mass groups", "", 0.015, "<="),
    Bar("ece-over-raw", "the same over the ECE of the raw maximum probability", "×", 0.5, "<="),
    Bar("ece-floor", "ECE that perfect estimates would show at this count", ""),
    Bar("auc", "AUC of the fitted estimate", ""),
)
SCORES = ("count", "observed", "mean_estimate", "auc", "log_loss", "brier", "ece", "ece_floor")


def measure(context: Context) -> Result:
    """Learn under AV, freeze, then serve the full length and score its labels."""
    from avlab.bench.lab import Lab
    from avlab.policies import Arm

    lab = Lab(context)
    lab.need_drafter()
    engine, K = lab.engine, lab.engine.K
    lab.begin(16, "adaptive")
    lab.learn(context.pick(210, 2000), lambda done, total: context.progress("learning", done, total))
    frozen = engine.policy.estimator.coefficients
    engine.set_policy(Arm.parse(f"fixed:{K}"))
    wanted, slots, count = context.pick(2000, 50_000), [], 0
    while count < wanted:
        report, _ = lab.step()
        if report.slots is not None:
            slots.append(report.slots)
            count += int((report.slots.label >= 0).sum())
        context.progress("labels", min(count, wanted), wanted)
    label = np.concatenate([s.label for s in slots])
    feature = np.concatenate([s.feature for s in slots])
    estimates = {"fitted": frozen.predict(feature), "raw": probability(feature)}
    if slots[0].head is not None:
        estimates["head"] = np.concatenate([s.head for s in slots])
    rows, fitted, raw = scored(estimates, label)
    values = {
        "ece": fitted.ece,
        "ece-over-raw": fitted.ece / raw.ece if raw.ece else None,
        "ece-floor": fitted.ece_floor,
        "auc": fitted.auc,
    }
    table = Table(f"{count} labels under fixed:{K}", ["estimate", "position", *SCORES], rows)
    note = f"Frozen coefficients: slope {frozen.slope:.4f}, intercepts "
    notes = [note + ", ".join(f"{b:.3f}" for b in frozen.intercepts) + "."]
    if fitted.ece_floor > 0.01:
        notes.append(
            "At this number of labels the noise floor alone is near the bar: only the full form judges it."
        )
    return Result(values, [table], notes)


def scored(estimates: dict[str, np.ndarray], label: np.ndarray):
    """Rows of scores, all positions and then each one: (rows, fitted scores, raw scores). label [R, K]: -1 is none."""
    rows, whole = [], {}
    for name, p in estimates.items():
        for position in (None, *range(label.shape[1])):
            place = np.s_[:] if position is None else np.s_[:, position : position + 1]
            known = label[place] >= 0
            scores = calibration.exact_scores(p[place][known], label[place][known])
            if position is None:
                whole[name] = scores
            where = "all" if position is None else position
            rows.append([name, where, scores.count, *(round(getattr(scores, s), 4) for s in SCORES[1:])])
    return rows, whole["fitted"], whole["raw"]


MEASURES = (Measure("estimator", "the estimator's calibration", BARS, measure, 60),)
