"""Whether the engine's own step samples from the target: many fresh continuations of one prompt, and a G-test.

The step is `Engine.step`, unchanged. What is shared between continuations stands in `shared`: rows of target and
drafter that depend on the prefix alone. Drafts, admission and sampling are fresh for each. Rules that are not sound
exist in `rules` and nowhere else in the engine.
"""
