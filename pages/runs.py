"""Runs: all that was recorded, side by side; notes, files, deletion."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import streamlit as st

from avlab import formats
from avlab.config import arrival_shown
from avlab.figures import compare
from avlab.store import queries, retention, sql_box
from avlab.store.tables import TABLES
from avlab.ui import again, host, shown, transfer
from avlab.ui.chart import chart
from avlab.ui.refusals import refusals
from avlab.ui.typed import Fields

TITLE = "Runs"
ICON = ":material/table_rows:"
ORDER = 100

MOST = 6  # runs that are compared at once
MOST_DAYS, MOST_MB = 36_500, 10_000_000
Run = Mapping[str, Any]  # a row of `queries.runs`


def draw() -> None:
    st.markdown(f"## {TITLE}")
    st.markdown(
        "<p class='avlab-question'>Which run did better, and under which settings?</p>",
        unsafe_allow_html=True,
    )
    with host.connection() as con:
        runs = queries.runs(con)
    if runs:
        ticked = table(runs)
        if len(ticked) > 1:
            side_by_side(ticked)
        elif ticked:
            single(ticked[0], newest=ticked[0]["run_id"] == runs[0]["run_id"])
        with st.expander("Ask in SQL", icon=":material/database:"):
            ask(st.session_state.get("run") or runs[0]["run_id"])
        with st.expander("Delete old runs", icon=":material/auto_delete:"):
            keep(runs)
    else:
        st.info("No runs yet. Press **Start** in the sidebar, or import a run below.")
    import_one()


def table(runs: Sequence[Run]) -> list[Run]:
    """A row a run; returns those that are ticked."""
    emulated = any(run["emulated"] for run in runs)
    rows = [
        {
            "run": run["run_id"][-8:],
            "started": formats.moment(run["started"]),
            "state": run["state"],
            "policy": run["policy"],
            "tokens/s": run["tokens_per_s"],
            **({"emulated": run["emulated"].removeprefix("emulated: ") or "no"} if emulated else {}),
            "target": PurePath(run["target"] or "").name,
            "temperature": run["temperature"],
            "seed": None if run["seed"] is None else str(run["seed"]),
            "machine": run["machine"],
            "workload": run["workload"],
            "arrival": arrival_shown(run["arrival"], run["workload"]),
            "lasted": formats.seconds(run["duration_s"]),
            "steps": run["steps"],
            "tokens": run["tokens"],
            "requests": run["requests"],
            "tags": " ".join(retention.tags_of(run["notes"])),
            "notes": " · ".join(run["notes"]),
        }
        for run in runs
    ]
    wanted = st.text_input(
        "Filter",
        key="runs-filter",
        placeholder="words that a row must hold: adaptive code finished",
        bind="query-params",
    )
    words = (wanted or "").lower().split()
    kept = [place for place, row in enumerate(rows) if _holds(row, words)]
    if words:
        st.caption(f"{len(kept)} of {len(rows)} runs hold these words.")
    rows = [rows[place] for place in kept]
    chosen = st.dataframe(
        rows, hide_index=True, on_select="rerun", selection_mode="multi-row", key="runs-table",
        height=min(420, 38 + 35 * len(rows)), placeholder=formats.DASH,
        column_config={
            "tokens/s": st.column_config.NumberColumn(format="%.1f"),
            "emulated": st.column_config.TextColumn(width="small"),
        },
    )  # fmt: skip
    st.caption(f"Tick up to {MOST} runs to compare them; tick one to show, export, annotate or delete it.")
    return [runs[kept[row]] for row in chosen.selection.rows[:MOST] if row < len(kept)]


def _holds(row: Mapping[str, Any], words: Sequence[str]) -> bool:
    said = " ".join(str(value) for value in row.values()).lower()
    return all(word in said for word in words)


def side_by_side(ticked: Sequence[Run]) -> None:
    """Several runs against the one that is chosen as their baseline."""
    with host.connection() as con:
        summaries = [queries.run_summary(con, run["run_id"]) for run in ticked]
    for summary in summaries:
        policy = textwrap.shorten(summary["policy"], 26, placeholder=" …")  # fits a legend and a column
        summary["label"] = f"{summary['run_id'][-8:]} {policy}" + (
            ", emulated" if summary["emulated"] else ""
        )
    pinned = st.selectbox("Baseline", [summary["label"] for summary in summaries])
    baseline = next(summary for summary in summaries if summary["label"] == pinned)
    left, right = st.columns([2, 3])
    with left:
        chart(
            compare.frontier(summaries), "frontier", "Throughput against interactivity",
            "Up and to the right is better. Compare runs under different loads by both axes, never by one.",
        )  # fmt: skip
    with right:
        st.markdown("#### Side by side")
        st.dataframe(
            compare.against(summaries, baseline), hide_index=True, placeholder=formats.DASH,
            column_config={
                "run": st.column_config.TextColumn(width="medium"),
                "policy": st.column_config.TextColumn(width="small"),
                "against baseline, %": st.column_config.NumberColumn(format="%+.1f"),
                **{
                    name: st.column_config.NumberColumn(title, format="%.3f")
                    for name, title in compare.MEASURES.items()
                },
            },
        )  # fmt: skip
        if any(summary["emulated"] for summary in summaries):
            st.caption(
                "Emulated speeds hold for the machine named beside them, not for the one that computed them."
            )
        st.caption(
            "Two runs differ by drift too. To compare policies, run an A/B: alternating blocks in one process."
        )
    overlaid(ticked, [summary["label"] for summary in summaries])


def overlaid(ticked: Sequence[Run], labels: Sequence[str]) -> None:
    """A chart of several runs over each other, and what differs in their settings."""
    name = st.selectbox("Chart of all runs", list(compare.OVERLAID), key="runs-overlay", bind="query-params")
    emulated = compare.OVERLAID[name].speed and any(run["emulated"] for run in ticked)
    chart(
        compare.overlay(
            {label: host.feed(run["run_id"]).steps for label, run in zip(labels, ticked, strict=True)}, name
        ),
        "overlay", f"{name} over each run{', emulated' if emulated else ''}",
        "Each on its own clock, from its begin.",
    )  # fmt: skip
    with host.connection() as con:
        described = [queries.describe(con, run["run_id"])["config"] for run in ticked]
    if rows := compare.differences(dict(zip(labels, described, strict=True))):
        st.markdown("#### What differs in their settings")
        st.dataframe(rows, hide_index=True, placeholder=formats.DASH)
    else:
        st.caption("Their settings are the same.")


def single(run: Run, newest: bool) -> None:
    """What can be done with one run: show, export, delete, report, note."""
    st.markdown(f"#### Run `{run['run_id']}`")
    one, two, three, four = st.columns(4)
    one.button("Show on every page", on_click=shown.pick, args=(run["run_id"], newest), width="stretch")
    form = two.selectbox("Export as", ["parquet", "csv"], label_visibility="collapsed")
    three.download_button(
        f"Export as {form}", data=lambda: transfer.exported(run["run_id"], form),
        file_name=f"avlab-{run['run_id']}.zip", mime="application/zip", width="stretch",
    )  # fmt: skip
    with four.popover("Delete", width="stretch"):
        st.markdown("Deletes the run from every list. The file shrinks when the dashboard ends.")
        if st.button("Delete this run", type="primary"):
            with refusals():
                delete([run["run_id"]])
    again.button(run["run_id"])
    transfer.report_button(run["run_id"])
    with st.form("note", clear_on_submit=True, border=False):
        text = st.text_input("Note", placeholder="What to remember about this run; #words are its tags")
        if st.form_submit_button("Add the note") and text.strip():
            with host.connection() as con:
                retention.add_note(con, run["run_id"], text)
            st.rerun()


def delete(runs: Sequence[str]) -> None:
    """Delete runs by their ids, and draw the page without them. Raises StoreError."""
    with host.connection() as con:
        for run in runs:
            retention.delete_run(con, run)
    host.deleted()
    st.rerun()


def ask(run: str) -> None:
    """A question in SQL about one run."""
    st.caption(
        f"One SELECT over a copy of the run on show (`{run[-8:]}`), without access to files or network. Tables: "
        + ", ".join(f"`{name}`" for name in TABLES)
    )
    with st.form("sql", border=False):
        sql = st.text_area(
            "SQL", "SELECT step, tokens, budget, verify_ms FROM steps ORDER BY step DESC LIMIT 20"
        )
        asked = st.form_submit_button("Ask")
    if not asked:
        return
    with refusals():
        with host.connection() as con:
            found = sql_box.ask(con, run, sql)
        st.dataframe(
            [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]], hide_index=True
        )
        if found["cut"]:
            st.caption(f"Only the first {sql_box.MOST_ROWS:,} rows are shown.")


def keep(runs: Sequence[Run]) -> None:
    """Deletes runs by their age and by the file's size."""
    left, right = st.columns(2)
    fields = Fields()
    days = fields.whole(
        left, "Delete runs older than (days)", 1, MOST_DAYS, None, key="keep-days", placeholder="any age"
    )
    size = fields.whole(
        right, "Keep the file below (MB)", 1, MOST_MB, None, key="keep-mb", placeholder="any size"
    )
    if not (days or size) or fields.wrong:
        return
    with host.connection() as con:
        gone = retention.expired(con, days, None if size is None else int(size * 1e6))
    st.markdown(f"{len(gone)} of {len(runs)} runs would go: oldest first, never the newest or a live one.")
    if gone and st.button(f"Delete {len(gone)} runs", type="primary"):
        with refusals():
            delete(gone)


def import_one() -> None:
    """A run from a file that was exported elsewhere."""
    st.markdown("#### Import a run that was exported elsewhere")
    file = st.file_uploader("A zip file of an exported run", type="zip", label_visibility="collapsed")
    if file is None or st.session_state.get("imported") == file.file_id:
        return
    with refusals():
        run = transfer.imported(file)
        st.session_state["imported"] = file.file_id
        shown.pick(run, False)
        st.rerun()


draw()
