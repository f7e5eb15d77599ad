"""How the tables of the A/B and Frontier pages show their columns: short names, explained on hover."""

import streamlit as st

from avlab.escaping import in_markdown
from avlab.experiments.answers import Objective
from avlab.experiments.slo import SLO_MEASURES, SloError, parse_slo

_HELP = {
    "tokens/s": "Output tokens per second, all requests together; in an A/B adjusted for prompts, see below.",
    "one user": "Tokens/s for one user: the median over requests.",
    "p50, ms": "Milliseconds per output token: the median.",
    "p95, ms": "Milliseconds per output token: 95 % of tokens are faster.",
    "first, ms": "Milliseconds to the first token: the median.",
}
_REPEATS = "Over repeats, from three on."
COLUMNS = {
    "arm": st.column_config.TextColumn(width="medium"),
    **{name: st.column_config.NumberColumn(format="%.1f", help=text) for name, text in _HELP.items()},
    "tokens a step": st.column_config.NumberColumn(format="%.2f", help="Per request that gains any."),
    **{f"{name}, 95 %": st.column_config.TextColumn(help=_REPEATS) for name in ("tokens/s", "one user")},
    "95 %, watched": st.column_config.TextColumn(
        help="Valid at all rounds at once: look, and stop, at any time."
    ),
    "95 %, planned": st.column_config.TextColumn(
        help="Valid for one look, after the planned number of rounds."
    ),
}


def objective() -> Objective | None:
    """The service-level objective that the reader types, if it can be read; it is in the address."""
    typed = st.text_input(
        "Within a limit", key="slo", bind="query-params", placeholder="p95_tpot_ms=80", width=360,
        help=f"Names the fastest arm that keeps a limit in ms: {', '.join(SLO_MEASURES)}.",
    )  # fmt: skip
    try:
        return parse_slo(typed) if typed else None
    except SloError as error:
        st.error(in_markdown(error))
        return None
