"""The sidebar of every page: the worker and its buttons, the rates of this moment, the run on show."""

import re
from collections.abc import Callable, Sequence

import streamlit as st

from avlab import formats
from avlab.errors import is_ours
from avlab.escaping import in_markdown
from avlab.kinds.registry import kind_named
from avlab.kinds.replay import ReplayConfig
from avlab.lab.lab import Lab
from avlab.lab.supervisor import WorkerStatus
from avlab.policies.arm import Arm
from avlab.ui import host, replay_settings, settings, shown
from avlab.wire import commands, frames
from avlab.workloads import open_workload

COLOURS = {
    "serving": "green",
    frames.PLAYGROUND: "violet",
    "paused": "orange",
    "stopping": "orange",
    "failed": "red",
    "cut short": "red",
}


def draw() -> None:
    """The whole sidebar; chooses the run on show."""
    runs = host.run_list()
    chosen = shown.choose(runs)
    status = host.lab().supervisor.status()
    st.session_state.drawn = (status.run, _phase(status), _has(runs, status.run))
    with st.sidebar:
        every = shown.TICK_SECONDS if status.alive else shown.IDLE_SECONDS
        st.fragment(_worker, run_every=every, key="worker")()
        st.divider()
        _run_on_show(runs, chosen)


def _has(runs: list[dict], run: str | None) -> bool:
    return any(known["run_id"] == run for known in runs)


def _phase(status: WorkerStatus) -> str:
    """What of a worker's state makes the pages look different."""
    if status.state == frames.PLAYGROUND:
        return "serving"
    if status.state in ("none", "ended", "serving", "paused", "stopping"):
        return status.state
    return "preparing"


def is_preparing(status: WorkerStatus) -> bool:
    """Whether a worker lives that does not serve yet."""
    return status.alive and _phase(status) == "preparing"


def _worker() -> None:
    lab = host.lab()
    status = lab.supervisor.status()
    drawn = st.session_state.get("drawn")
    if drawn is not None:
        known = drawn[2] or (status.alive and _has(host.run_list(), status.run))  # serving, and now recorded
        if (status.run, _phase(status), known) != drawn:
            st.rerun()  # the pages begin or end to tick
    tally = lab.tally.snapshot()
    _state(status)
    _buttons(status)
    if status.alive and tally["steps"]:
        columns = st.columns((3, 2)) if tally["emulated"] else st.columns(2)
        title = "Emulated tokens/s" if tally["emulated"] else "Tokens/s now"
        columns[0].metric(title, formats.number(tally["recent_tokens_per_s"], 0))
        columns[1].metric("Update" if tally["emulated"] else "Last update", f"{status.silent:.1f} s ago")
        if suggested := kind_named(status.kind).policies:
            st.markdown(f"Policy in force: **{in_markdown(tally['policy'])}**")
            _change(lab, status.run, tally["policy"], suggested)
    elif status.state == "ended" and (status.error or status.outcome in ("failed", "cut short")):
        st.error(in_markdown(status.error or "The worker ended without a reason."))
        if status.log:
            with st.expander("Last lines of its log"):
                st.code("\n".join(status.log), language=None, wrap_lines=True)
    for note in lab.notes:
        st.caption(in_markdown(note))
    if problem := st.session_state.get("refused"):
        st.error(in_markdown(problem))


def _state(status: WorkerStatus) -> None:
    if status.state == "none":
        st.markdown("**Worker** :gray-badge[not started]")
    elif status.state == "ended":
        colour = COLOURS.get(status.outcome, "gray")
        st.markdown(f"**Worker** :{colour}-badge[{in_markdown(status.outcome or 'ended')}]")
    elif _phase(status) == "preparing":
        st.markdown("**Worker** :blue-badge[preparing]")
        match = re.fullmatch(r"(.+) (\d+)/(\d+)", status.state)
        share = int(match[2]) / max(int(match[3]), 1) if match else 0.0
        st.progress(min(share, 1.0), text=in_markdown(match[1] if match else status.state))
    else:
        st.markdown(f"**Worker** :{COLOURS.get(status.state, 'blue')}-badge[{in_markdown(status.state)}]")
    if status.late:
        st.warning(f"No message from the worker for {status.late:.0f} s.")


def _buttons(status: WorkerStatus) -> None:
    left, right = st.columns(2)
    if status.alive:
        left.button(
            "Stop",
            key="stop",
            icon=":material/stop:",
            width="stretch",
            disabled=status.state == "stopping",
            on_click=_try,
            args=(_stop,),
        )
        paused = status.state == "paused"
        right.button(
            "Resume" if paused else "Pause",
            key="pause",
            icon=":material/play_arrow:" if paused else ":material/pause:",
            width="stretch",
            disabled=status.state not in ("serving", "paused"),
            on_click=_try,
            args=(_send, commands.Resume() if paused else commands.Pause()),
        )
    else:
        broken = status.outcome in ("failed", "cut short")
        st.caption("Start: this machine serves a model with the lab's own engine, and times its steps first.")
        left.button(
            "Start again" if broken else "Start",
            key="start",
            type="primary",
            icon=":material/play_arrow:",
            width="stretch",
            on_click=_try,
            args=(host.start_again if broken else _start,),
        )
        if right.button("Settings", key="settings-button", icon=":material/tune:", width="stretch"):
            settings.dialog()
        _replay_buttons()


def _replay_buttons() -> None:
    left, right = st.columns(2)
    left.button(
        "Replay",
        key="start-replay",
        icon=":material/fast_forward:",
        width="stretch",
        on_click=_try,
        args=(_replay,),
    )
    if right.button("Machine", key="replay-button", icon=":material/memory:", width="stretch"):
        replay_settings.dialog()
    st.caption(f"{replay_settings.ABOUT} Next: {in_markdown(replay_settings.in_short())}.")


def _replay() -> None:
    host.start(replay_settings.config())


def _try(act: Callable[..., object], *arguments: commands.Command) -> None:
    """Do what a button says; a refusal is kept as its sentence."""
    st.session_state.refused = ""
    try:
        act(*arguments)
    except Exception as error:
        if not is_ours(error):
            raise
        st.session_state.refused = str(error)
        return
    st.session_state.follow = (
        True if act in (_start, _replay, host.start_again) else st.session_state.get("follow", True)
    )


def start_button() -> None:
    """A button in a page that starts a run with this browser's settings."""
    st.button("Start a run", type="primary", icon=":material/play_arrow:", on_click=_try, args=(_start,))


def _start() -> None:
    config, wrong = settings.check(settings.values())
    if config is None:
        st.session_state.refused = " ".join(wrong.values())
        return
    host.start(config)


def _change(lab: Lab, run: str | None, policy: str, suggested: Sequence[str]) -> None:
    """Another policy or workload, from the next step on; offers what is in force first."""
    if lab.comparing:
        st.caption("An experiment decides policy and workload: stop it to change them.")
        return
    workload, arrival = lab.traffic
    if st.session_state.get("change-run") != run:  # what was chosen for another run is not in force here
        st.session_state["change-run"] = run
        for name in ("policy", "workload", "arrival"):
            st.session_state.pop(f"change-{name}", None)
    with st.popover("Change while it runs", width="stretch"):
        _choice("Policy", policy, suggested)
        st.button("Switch policy", on_click=_try, args=(_set_policy,), width="stretch")
        _choice("Workload", workload, settings.workloads())
        _choice("Arrival", arrival, settings.SUGGESTED["arrival"])
        st.button("Switch workload", on_click=_try, args=(_set_workload,), width="stretch")


def _choice(name: str, in_force: str, suggested: Sequence[str]) -> None:
    """A field that begins with what is in force; empty where that has no name, as a file's own arrival times."""
    options = list(dict.fromkeys([in_force, *suggested] if in_force else suggested))
    st.selectbox(
        name, options, index=0 if in_force else None, placeholder="the file's own times",
        key=f"change-{name.lower()}", accept_new_options=True,
    )  # fmt: skip


def _set_policy() -> None:
    """Raises PolicyError at once for what no worker could follow, WorkerError for what this one refuses."""
    if arm := st.session_state["change-policy"]:
        host.lab().change(commands.SetPolicy(str(Arm.parse(arm))))


def _set_workload() -> None:
    """Raises WorkloadError at once for what no worker could follow, WorkerError for what this one refuses."""
    workload = st.session_state["change-workload"] or "mixed"
    arrival = st.session_state["change-arrival"] or ""
    if host.lab().supervisor.status().kind != ReplayConfig.kind:  # whose kinds are its trace's
        open_workload(workload, arrival or None)
    host.lab().change(commands.SetWorkload(workload, arrival))


def _stop() -> None:
    host.lab().supervisor.send(commands.Stop())


def _send(command: commands.Command) -> None:
    host.lab().supervisor.send(command)


def _run_on_show(runs: list[dict], chosen: str | None) -> None:
    known = [run["run_id"] for run in runs]
    if not known:
        return
    labels = {run["run_id"]: formats.run_label(run) for run in runs}
    place = known.index(chosen) if chosen in known else None
    picked = st.selectbox(
        "Run on show",
        known,
        index=place,
        format_func=labels.__getitem__,
        placeholder="starting",
    )
    if picked is not None and picked != chosen:
        shown.pick(picked, picked == known[0])
        st.rerun()
    live = host.lab().supervisor.status()
    if live.alive and live.run in known and live.run != chosen:
        st.button("Show the live run", icon=":material/sensors:", on_click=shown.pick, args=(live.run, True))
