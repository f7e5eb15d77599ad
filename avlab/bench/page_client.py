"""A client of the dashboard that receives every message of a page and draws nothing: Streamlit 1.67's protocol."""

import contextlib
import time
from collections.abc import Callable, Iterator

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.sync.client import connect
from websockets.typing import Subprotocol


class PageClient:
    """One visit. Asks for pages, presses buttons, and keeps the timers of fragments as a browser does.

    page: hash of the page it was last told of. timers: seconds by fragment. received: bytes so far.
    Not safe to use from several threads.
    """

    def __init__(self, url: str, patience: float = 60.0):
        """url: of the dashboard, as http. patience: seconds until `messages` gives up."""
        address = url.replace("http", "ws", 1).rstrip("/") + "/_stcore/stream"
        self._open = contextlib.ExitStack()
        self._socket = self._open.enter_context(
            connect(address, subprotocols=[Subprotocol("streamlit")], max_size=None, open_timeout=patience)
        )
        self.patience, self.page, self.received = patience, "", 0
        self.timers: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def __enter__(self) -> "PageClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def ask(
        self,
        page: str | None = None,
        name: str = "",
        fragment: str = "",
        press: str = "",
        automatic: bool = False,
    ) -> None:
        """Ask for a run. page: hash, by default the one last told of. name: of a page whose hash is not known yet.

        fragment: run it alone. press: id of a button to press. automatic: say that a timer asks.
        """
        message = BackMsg()
        state = message.rerun_script
        state.page_script_hash, state.page_name = self.page if page is None else page, name
        state.fragment_id, state.is_auto_rerun = fragment, automatic
        if press:
            state.widget_states.widgets.append(WidgetState(id=press, trigger_value=True))
        self._socket.send(message.SerializeToString())

    def receive(self, timeout: float) -> ForwardMsg | None:
        """The next message; None when none came for `timeout` seconds."""
        try:
            data = self._socket.recv(timeout=timeout)
        except TimeoutError:
            return None
        self.received += len(data)
        message = ForwardMsg()
        message.ParseFromString(data if isinstance(data, bytes) else data.encode())
        self._heed(message)
        return message

    def messages(self, until: Callable[[ForwardMsg], bool]) -> Iterator[ForwardMsg]:
        """Messages up to the first that `until` is true of. Raises TimeoutError after `patience` seconds."""
        end = time.monotonic() + self.patience
        while True:
            message = self.receive(max(end - time.monotonic(), 0.0))
            if message is None:
                raise TimeoutError(f"The dashboard did not answer within {self.patience:g} s.")
            yield message
            if until(message):
                return

    def watch(self, seconds: float) -> int:
        """Receive for so long, and ask for a run whenever a fragment's timer is due; how many runs ended."""
        end, runs = time.monotonic() + seconds, 0
        while (now := time.monotonic()) < end:
            for fragment, due in self._due.items():
                if due <= now:
                    self.ask(fragment=fragment, automatic=True)
                    self._due[fragment] = max(due + self.timers[fragment], now)
            message = self.receive(max(min(end, now + 1.0, *self._due.values()) - now, 0.0))
            runs += message is not None and message.WhichOneof("type") == "script_finished"
        return runs

    def _heed(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "new_session" and not message.metadata.run.fragment_ids:
            self.page = message.new_session.page_script_hash
            self.timers.clear()
            self._due.clear()
        elif kind == "navigation":
            self.page = message.navigation.page_script_hash
        elif kind == "auto_rerun":
            asked = message.auto_rerun
            if self.timers.get(asked.fragment_id) != asked.interval:
                self.timers[asked.fragment_id] = asked.interval
                self._due[asked.fragment_id] = time.monotonic() + asked.interval
        elif kind == "stop_auto_rerun":
            for fragment in message.stop_auto_rerun.fragment_ids:
                self.timers.pop(fragment, None)
                self._due.pop(fragment, None)
