"""How well the online estimator is calibrated on labels that it neither chose nor learnt from."""

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.speculation import calibration
from avlab.speculation.estimators.base import REFIT_INTERVAL
from avlab.speculation.features import probability
from avlab.speculation.regression import Coefficients, RoundStatistics, refit

BARS = (
    Bar("ece", "ECE of the fitted estimate, 15 equal-mass groups", "", 0.015, "<="),
    Bar("ece-over-raw", "the same over the ECE of the raw maximum probability", "×", 0.5, "<="),
    Bar("ece-floor", "ECE that perfect estimates would show at this count", ""),
    Bar("ece-best-fit", "ECE of the best K + 1 coefficients for these labels, chosen afterwards", ""),
    Bar("auc", "AUC of the fitted estimate", ""),
)
SCORES = ("count", "observed", "mean_estimate", "auc", "log_loss", "brier", "ece", "ece_floor")

LAST = 10  # refits whose coefficients are compared
FITTING_STEPS = 60  # damped Newton steps over all labels at once, after which nothing moves


def measure(context: Context) -> Result:
    """Learn under AV, freeze, then serve the full length and score its labels."""
    from avlab.bench.lab import Lab
    from avlab.policies.arm import Arm

    lab = Lab(context)
    lab.need_drafter()
    engine, K = lab.engine, lab.engine.K
    lab.begin(16, "adaptive")
    rounds, moments = context.pick(2, 2000 // REFIT_INTERVAL), []
    for done in range(rounds):
        lab.learn(REFIT_INTERVAL, lambda steps, _: None)
        moments.append(lab.learnt())
        context.progress("learning", done + 1, rounds)
    frozen = moments[-1]
    engine.set_policy(Arm.parse(f"fixed:{K}"))
    wanted, slots, count = context.pick(2000, 50_000), [], 0
    while count < wanted:
        report, _ = lab.step()
        if report.slots is not None:
            slots.append(report.slots)
            count += int((report.slots.label >= 0).sum())
        context.progress("labels", min(count, wanted), wanted)
    label = np.concatenate([s.label for s in slots])
    feature = np.concatenate([s.features["max_log_odds"] for s in slots])
    estimates = {"fitted": frozen.predict(feature), "raw": probability(feature)}
    if "head_log_odds" in engine.features:
        estimates["head"] = probability(np.concatenate([s.features["head_log_odds"] for s in slots]))
    rows, fitted, raw = scored(estimates, label)
    values = {
        "ece": fitted.ece,
        "ece-over-raw": fitted.ece / raw.ece if raw.ece else None,
        "ece-floor": fitted.ece_floor,
        "auc": fitted.auc,
    }
    table = Table(f"{count} labels under fixed:{K}", ["estimate", "position", *SCORES], rows)
    by_moment, values["ece-best-fit"] = compared(moments, feature, label)
    note = f"Frozen coefficients: slope {frozen.slope:.4f}, intercepts "
    notes = [note + ", ".join(f"{b:.3f}" for b in frozen.intercepts) + "."]
    if fitted.ece_floor > 0.01:
        notes.append(
            "At this number of labels the noise floor alone is near the bar: only the full form judges it."
        )
    return Result(values, [table, by_moment], notes)


def compared(moments: list[Coefficients], feature: np.ndarray, label: np.ndarray) -> tuple[Table, float]:
    """ECE on the same labels by coefficients of the last refits, their mean, and the best there are; the ECE of these.

    A round's refit follows its own hundred steps, so which moment is frozen is a draw of its own.
    """
    last, known = moments[-LAST:], label >= 0
    mean = Coefficients(
        float(np.mean([c.slope for c in last])), np.mean([c.intercepts for c in last], axis=0)
    )
    back = [f"{refits} refits earlier" if refits else "as frozen" for refits in reversed(range(len(last)))]
    named = [*zip(back, last, strict=True), (f"mean of these {len(last)}", mean)]
    named.append(("best fit to the labels themselves", best_fit(feature, label)))
    eces = [calibration.exact_scores(c.predict(feature)[known], label[known]).ece for _, c in named]
    rows = [
        [name, round(ece, 4), round(c.slope, 3), ", ".join(f"{b:.2f}" for b in c.intercepts)]
        for (name, c), ece in zip(named, eces, strict=True)
    ]
    title = "The same labels by coefficients of other moments"
    return Table(title, ["coefficients", "ece", "slope", "intercepts"], rows), eces[-1]


def best_fit(feature: np.ndarray, label: np.ndarray) -> Coefficients:
    """The coefficients of maximum likelihood for labelled slots. feature, label: [R, K]; label -1 is none."""
    fit = Coefficients.cold_start(label.shape[1])
    for _ in range(FITTING_STEPS):
        fit = refit(fit, RoundStatistics.of(feature, fit.predict(feature), label, label >= 0))
    return fit


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
