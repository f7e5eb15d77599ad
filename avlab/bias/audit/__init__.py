"""Whether the engine's own step samples from the target: many fresh continuations of one prompt, and a G-test.

    audit            continuations of one and two tokens through `Engine.step`, compared with the target's distribution
    rules            what can be audited: policies of serving, and UNSOUND rules that exist nowhere else
    answers          whole answers under a rule, and what the target says of each token
    ranking          how well each score ranks acceptance
    shared_target, shared_drafter, shared_rows   rows behind equal prefixes, computed once
    tasks            what the process can be asked (`__main__`); record_rows writes `real_rows.json`

The step is `Engine.step`, unchanged. An audit gives its engine a target and a drafter that look rows up (`ServedTarget`
and `Drafter`), a source of noise (`Uniforms`) and an observer. Drafts, admission and sampling are fresh for each
continuation.
"""
