"""Part 3: several positions, two consecutive steps, two requests: ready-made scenes, and tables of your own."""

import streamlit as st

from avlab.bias import scenes
from avlab.bias.goodness_of_fit import noise_floor
from avlab.bias.ready_made_scenes import LARGEST_SCENE, SCENES, own_scene
from avlab.bias.scenes import LETTERS, Outcome, Scene
from avlab.figures import bias as figures
from avlab.ui.bias import lesson, words
from avlab.ui.chart import chart

OWN = "random tables"
DRAWS = 5_000
FORMULAS = r"""
The survival of slot $k$ of request $r$ is $S(r,k) = \prod_{j \le k} \hat a(r,j)$ with $\hat a$ the acceptance
estimate (here the largest probability of the draft row). The budget is

$$B^* = \arg\max_B \frac{m + \sum \text{of the } B \text{ largest } S}{\text{cost}(B)}$$

with $m$ requests that emit a token anyway; it goes to the slots with the largest survivals, equals by depth, then by
request. With convex cost the objective has one peak, so whether a slot is admitted depends on larger survivals only.
Otherwise a later estimate, which depends on an earlier draw, can decide whether that draw is verified.

Every draw of both steps is enumerated; tokens that two steps did not reach are sampled by the target itself.
"""


def draw() -> None:
    """The part: a scene, its rows, what comes out under each of its rules."""
    show = lesson.head(
        "3 · Several positions, two steps",
        "Open each scene and predict which rules keep the target's distribution before you look.",
        "Whenever a draw influences its own verification, the output can be biased; each case has an exact fix.",
    )
    name = st.selectbox("Scene", [*SCENES, OWN], key="scene", bind="query-params")
    scene = _own() if name == OWN else SCENES[name or next(iter(SCENES))]()
    st.markdown(f"**{scene.name}.** {scene.sentence}")
    show_scene = lesson.sentences(scene.try_this, scene.shows)
    rows = [{"row": title, **dict(zip(LETTERS, values, strict=False))} for title, values in scene.rows]
    st.dataframe(rows, hide_index=True, width="content")
    if scenes.work_of(scene) > LARGEST_SCENE:
        st.warning(
            f"Each rule would need {scenes.work_of(scene):,} drafts; up to {LARGEST_SCENE:,} are enumerated. Each rule "
            f"is sampled {DRAWS:,} times instead: a total variation near the dashed noise floor means nothing, and a "
            "small bias may be missed."
        )
        found = _sampled(scene, name or "")
    else:
        found = _exact(scene, name or "")
    bend = [each.arm.name for each in found if each.bends] or [lesson.NONE]
    options = [*(each.arm.name for each in found), lesson.NONE]
    case = f"scene-{hash(_case(scene, name or ''))}"
    if not lesson.revealed(case, "Which rules bend the output?", options, bend, scene.shows):
        return
    show()
    show_scene()
    _charts(scene, found)
    lesson.formulas(FORMULAS)


def _own() -> Scene:
    columns = st.columns(4)
    V = columns[0].slider("Tokens", 2, 4, 2, key="own-V", bind="query-params")
    K = columns[1].slider("Positions K", 1, 3, 2, key="own-K", bind="query-params")
    requests = columns[2].slider("Requests", 1, 2, 1, key="own-requests", bind="query-params")
    length = columns[3].slider("Output tokens looked at", 1, 3, 2, key="own-length", bind="query-params")
    below = st.columns(4, vertical_alignment="bottom")
    sharp = below[0].slider(
        "Sharpness", 0.2, 5.0, 1.0, 0.1, key="own-sharp", bind="query-params", help=words.SHARPNESS
    )
    cut = below[1].slider("Threshold t", 0.0, 1.0, 0.5, 0.01, key="own-cut", bind="query-params")
    seed = below[2].number_input("Seed", 0, 10**6, 0, key="own-seed", bind="query-params")
    ties = below[3].toggle(
        "Ties", key="own-ties", bind="query-params",
        help="After a the drafter is certain, and every request starts behind the last token: a request's slots tie "
        "where a is drawn, and the first slots of two requests always tie. Random tie-breaking matters with two "
        "requests.",
    )  # fmt: skip
    return own_scene(V, K, requests, length, sharp, int(seed), cut, ties)


@st.cache_data(max_entries=64, show_spinner="Enumerating every draw …")
def _joint(_scene: Scene, case: tuple) -> list:
    return [
        (each.joint, each.due, each.token, each.token_due, each.draws) for each in scenes.outcomes(_scene)
    ]


@st.cache_data(max_entries=64, show_spinner="Sampling …")
def _drawn(_scene: Scene, case: tuple) -> list:
    return [
        (each.joint, each.due, each.token, each.token_due, each.draws)
        for each in scenes.sampled_outcomes(_scene, DRAWS)
    ]


def _case(scene: Scene, name: str) -> tuple:
    return (name, scene.rows, scene.starts, scene.length, scene.pair.K, tuple(arm.name for arm in scene.arms))


def _exact(scene: Scene, name: str) -> list[Outcome]:
    return [
        Outcome(arm, *laws) for arm, laws in zip(scene.arms, _joint(scene, _case(scene, name)), strict=True)
    ]


def _sampled(scene: Scene, name: str) -> list[Outcome]:
    return [
        Outcome(arm, *laws) for arm, laws in zip(scene.arms, _drawn(scene, _case(scene, name)), strict=True)
    ]


def _charts(scene: Scene, found: list[Outcome]) -> None:
    V, requests = scene.pair.V, len(scene.starts)
    which = ("first", "second", "third")[scene.position]
    of = f"{which} token" + (" of the first request" if requests > 1 else "")
    left, right = st.columns(2)
    shown = found if len(found) <= 4 else sorted(found, key=lambda each: -each.total_variation)[:2]
    with left:
        chart(
            figures.outputs(
                list(LETTERS[:V]), found[0].token_due, [(e.arm.name, e.token, e.arm.sound) for e in shown], 320
            ),
            "scene-token", f"The {of}",
            "Grey is what is due; green rules are sound, red ones are not."
            + ("" if len(found) <= 4 else " Shown: the two rules with most bias."),
        )  # fmt: skip
    draws = found[0].draws
    floor = noise_floor(found[0].due, draws) if draws else 0.0
    with right:
        chart(
            figures.variations([(e.arm.name, e.total_variation, e.arm.sound) for e in found], floor),
            "scene-variation", "How far from the target",
            f"Total variation over {scene.length * requests} output tokens together. "
            + (f"Dashed: {floor:.4f}, the noise floor of a correct sampler with {draws:,} draws. " if draws else "")
            + "; ".join(
                f"{e.arm.name}: an auditor needs {lesson.needs(e.sample_size)}"
                for e in found
                if e.bends and not e.draws
            ),
        )  # fmt: skip
    if len(found[0].due) > V:
        worst = max(found, key=lambda each: each.total_variation)
        names = scenes.names_of_outputs(V, scene.length, requests)
        chart(
            figures.outputs(names, worst.due, [(worst.arm.name, worst.joint, worst.arm.sound)], x="output"),
            "scene-joint", "All tokens together", _which_outputs(len(names), requests),
        )  # fmt: skip


def _which_outputs(count: int, requests: int) -> str:
    """What the bars of all tokens together are, of so many different outputs."""
    said = "Each bar is one whole output" + ("; a stroke separates requests." if requests > 1 else ".")
    if count <= figures.MOST_CELLS:
        return said
    return f"{said} Shown: the {figures.MOST_CELLS} of {count:,} outputs whose share changes most."
