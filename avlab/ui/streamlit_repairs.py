"""What we mend in Streamlit 1.67, to which this project is pinned; each with the fault it is for.

Nothing here changes what a page may do. `make` is called once, before the server answers its first visitor.
"""

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime import fragment
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import exec_code
from streamlit.runtime.scriptrunner_utils import script_requests

from avlab import faults
from avlab.errors import is_ours
from avlab.escaping import in_markdown, visible

_ASKED = "avlab_page"  # attribute of a session: hash of the page the reader asked for last; "" where it is not known


def make() -> None:
    """Make all repairs. A second call does nothing."""
    # else the first visitor's link to a page runs that page's file by itself, without what surrounds it
    PagesManager.uses_pages_directory = False
    _wrap("request_rerun", _request_rerun)
    _wrap("_enqueue_forward_msg", _enqueue_forward_msg)
    for place in (exec_code, fragment):  # of a whole page, and of a part that is drawn by itself
        vars(place)["handle_user_script_exception"] = _say_fault


def _say_fault(error: Exception, on_script_error: object = None) -> None:
    """What nobody caught: a sentence on the page and on standard error, where Streamlit prints a traceback."""
    said = str(error) if is_ours(error) else faults.sentence(error)
    print(visible(said), file=sys.stderr)
    with contextlib.suppress(Exception):  # a page that cannot even draw that
        st.error(in_markdown(said), icon=":material/error:")


def _wrap(name: str, repaired: Callable[..., Any]) -> None:
    original = getattr(AppSession, name)
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def method(session: AppSession, *arguments: Any, **named: Any) -> Any:
        return repaired(session, original, *arguments, **named)

    setattr(AppSession, name, method)


def _request_rerun(
    session: AppSession, original: Callable[..., None], client_state: ClientState | None
) -> None:
    """Keep the reader's last choice of a page, and clicks that no run has seen yet.

    A browser names a page with everything it sends: the one it was last told of. Between a click on another page's link
    and the word that this page is being drawn, that is the old page; so a fragment's timer, or a click on a button
    within a fragment, takes the reader back (Streamlit takes the page from whatever came last). A fragment never asks
    for another page: what comes from one stays on the page asked for. A timer of a page that is left is not heard.

    A click on a link ends the run in progress (`runner.fastReruns`), and with it the clicks that wait for its end, such
    as one on a button within a fragment. They are handed on to the run that follows.
    """
    if client_state is not None:
        asked = getattr(session, _ASKED, "")
        if not client_state.fragment_id:
            setattr(session, _ASKED, client_state.page_script_hash)
            _add_waiting_clicks(session, client_state)
        elif asked and client_state.page_script_hash != asked:
            if client_state.is_auto_rerun:
                return
            client_state.page_script_hash = asked
    original(session, client_state)


def _enqueue_forward_msg(session: AppSession, original: Callable[..., None], message: ForwardMsg) -> None:
    """The page that a run draws is the one asked for, however it came about: an address, or `st.switch_page`."""
    if message.WhichOneof("type") == "navigation":
        setattr(session, _ASKED, message.navigation.page_script_hash)
    original(session, message)


def _add_waiting_clicks(session: AppSession, client_state: ClientState) -> None:
    """Values of widgets that wait for a run, if a click is among them; newer values of the same widgets win."""
    if session._scriptrunner is None:
        return
    requests = session._scriptrunner._requests
    waiting = requests._rerun_data.widget_states
    if requests._state is not script_requests.ScriptRequestType.RERUN or waiting is None:
        return
    if any(script_requests._has_active_trigger_value(state) for state in waiting.widgets):
        known = {state.id for state in client_state.widget_states.widgets}
        client_state.widget_states.widgets.extend(state for state in waiting.widgets if state.id not in known)
