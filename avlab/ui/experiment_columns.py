"""How the tables of the A/B and Frontier pages show their columns: short names, explained on hover."""

import streamlit as st

from avlab.experiments.words import SLO_MEASURES, SloError, parse_slo

_HELP = {
    "tokens/s": "Output tokens of all requests together, in a second; in an A/B prompts may be evened out, see below.",
    "one user": "Tokens/s for one user: the median over requests.",
    "p50, ms": "Time for an output token, milliseconds: the median.",
    "p95, ms": "Time for an output token, milliseconds: 95 % of tokens come faster.",
    "first, ms": "Time to the first token, milliseconds: the median.",
}
_REPEATS = "Over repeats, from three on."
COLUMNS = {
    "arm": st.column_config.TextColumn(width="medium"),
    **{name: st.column_config.NumberColumn(format="%.1f", help=text) for name, text in _HELP.items()},
    "tokens a step": st.column_config.NumberColumn(format="%.2f", help="For a request that gains any."),
    **{f"{name}, 95 %": st.column_config.TextColumn(help=_REPEATS) for name in ("tokens/s", "one user")},
    "95 %, watched": st.column_config.TextColumn(
        help="Holds at every round at once: look, and stop, whenever you like."
    ),
    "95 %, planned": st.column_config.TextColumn(
        help="Holds for one look, at the end of a planned number of rounds."
    ),
}


def objective() -> tuple[str, float] | None:
    """The service-level objective that the reader types, if it can be read; it is in the address."""
    typed = st.text_input(
        "Within a limit", key="slo", bind="query-params", placeholder="p95_tpot_ms=80", width=360,
        help=f"Names the fastest arm that keeps a limit in ms: {', '.join(SLO_MEASURES)}.",
    )  # fmt: skip
    try:
        return parse_slo(typed) if typed else None
    except SloError as error:
        st.error(str(error))
        return None
