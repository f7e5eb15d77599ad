"""The words of the subject, each in a sentence: what the pages, the tour and its speaker mean by them."""

WORDS = {
    "target, drafter": "the model whose distribution must be kept; the cheaper one that proposes",
    "draft slot": "a request and a position of its draft, counted from 0",
    "scheduled, admitted, trimmed": "drafted and offered; given to the target; not given",
    "accepted, rejected, censored": "kept; the first one refused; without a label, behind a refusal or trimmed",
    "recovered, bonus token": "the target's own token after a refusal; after a full accept",
    "acceptance estimate": "probability that a slot is accepted, given that every earlier one was",
    "log-odds": "log(p / (1 − p)): 0 is even odds, 2 is 88 %, −2 is 12 %",
    "survival": "product of a request's estimates up to a slot: the chance that the draft lives that long",
    "budget": "how many draft tokens, of all requests, the target verifies in a step",
    "draft cost, verify cost": "milliseconds by number of requests; by number of tokens in the target's pass",
    "slope, intercepts, refit": "the K + 1 numbers of the online estimator; their adjustment every 100 steps",
    "calibration, ranking": "whether 80 % means 80 %; whether accepted drafts stand above refused ones",
    "ECE, AUC": "mean distance from perfect calibration; chance to rank an accepted draft above a refused one",
    "arm, block, switchback": "a policy under comparison; steps under one arm; alternating blocks in one process",
    "throughput, interactivity": "output tokens a second of all requests; of one user",
    "frontier": "the settings that no other one beats in both",
    "emulated": "a speed by another machine's table of step costs; everything else of a replay is exact",
}
