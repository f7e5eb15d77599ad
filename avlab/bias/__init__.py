"""Sampling bias: when trimming a draft bends the output, and how to notice. Numpy; only `audit` knows the engine.

What comes out, exactly or sampled (small vocabularies):
    exact              every draw of a small target and drafter enumerated: `Pair`, `Rule`, `output_distribution`
    first_token        the first token at one slot, in closed form over any vocabulary
    sampled            many texts at once, where there are too many draws to enumerate
    reused_noise       noise used twice: a redrawn position in the long run, races that share noise
Rules that decide which slots are verified:
    trimming           built from scores, budgets and coins; sound and unsound
    grammar            the same as a reader types them, `drawn:0.5`
What the page and the commands show:
    cases              one target row and one draft row: output, paths, bias
    scenes             several positions, steps and requests: a `Scene` and its `Outcome` under each rule
    ready_made_scenes  a scene for each way in which trimming can bend the output, and random tables
    real_rows          rows of the default model at some prompts, recorded
How to notice:
    goodness_of_fit    the G-test, and how many outputs an audit needs
    text_measures      log-probability, entropy and repetition of whole answers, with intervals
The engine's own step (torch):
    process            asks for an audit, texts or rows in a process of its own; imports no torch
    audit              what that process does
"""
