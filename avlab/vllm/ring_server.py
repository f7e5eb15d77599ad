"""Telemetry files alone, asked as a server is: for a machine where only they can be reached.

The text of its /metrics is made of the sums that the workers keep, under vLLM's own names. What only the server's front
knows is not in it: when a first token came, how long requests took and how many wait.
"""

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from avlab.vllm.ring import RingError, RingFile, State, ring_files
from avlab.vllm.server import Server, ServerError

Family = CounterMetricFamily | GaugeMetricFamily
LABELS = ("model_name", "engine")


class RingServer(Server):
    """The engines whose workers write into a folder, which stands for the address."""

    def metrics(self) -> str:
        """The counters of all engines that write. Raises ServerError, which may pass."""
        try:
            files = [RingFile(path) for path in ring_files(Path(self.url))]
        except RingError as error:
            raise ServerError(str(error), passing=True) from None
        told: list[tuple[State, int]] = []
        silent: list[str] = []
        for file in files:
            try:
                state = file.state()
                step = file.last_step(state)
                if state.lives:
                    told.append((state, int(step.get("requests", 0))))
                else:
                    silent.append(f"{file.path} was last written {state.age:,.0f} s ago")
            except RingError as error:
                silent.append(str(error))
            finally:
                file.close()
        if not told:
            raise ServerError(f"No worker writes telemetry to {self.url} now ({silent[0]}).", passing=True)
        registry = CollectorRegistry()
        registry.register(_Made(told))
        return generate_latest(registry).decode()

    def version(self) -> str:
        """vLLM's version, "" where no file says it."""
        for path in ring_files(Path(self.url)):
            try:
                return RingFile(path).state().vllm
            except RingError:
                continue
        return ""

    def configuration(self) -> None:
        """Nobody tells it here."""
        return None


class _Made(Collector):
    """States as vLLM's metrics."""

    def __init__(self, told: list[tuple[State, int]]):
        self._told = told

    def collect(self) -> Iterable[Family]:
        running = GaugeMetricFamily("vllm:num_requests_running", "In the last step.", labels=LABELS)
        tokens = CounterMetricFamily("vllm:generation_tokens", "Sampled.", labels=LABELS)
        prompts = CounterMetricFamily("vllm:prompt_tokens", "Computed.", labels=LABELS)
        drafts = CounterMetricFamily("vllm:spec_decode_num_drafts", "Offered.", labels=LABELS)
        draft_tokens = CounterMetricFamily("vllm:spec_decode_num_draft_tokens", "Offered.", labels=LABELS)
        accepted = CounterMetricFamily("vllm:spec_decode_num_accepted_tokens", "Accepted.", labels=LABELS)
        by_position = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted.", labels=(*LABELS, "position")
        )
        for state, requests in self._told:
            engine, totals = (state.model, state.engine), state.totals
            offered, taken = (totals["by_position"][name] for name in ("scheduled", "accepted"))
            running.add_metric(engine, requests)
            tokens.add_metric(engine, totals["tokens"])
            prompts.add_metric(engine, totals["prompt_tokens"])
            drafts.add_metric(engine, offered[0] if offered else 0)
            draft_tokens.add_metric(engine, sum(offered))
            accepted.add_metric(engine, sum(taken))
            for k, count in enumerate(taken):
                by_position.add_metric((*engine, str(k)), count)
        return (running, tokens, prompts, drafts, draft_tokens, accepted, by_position)
