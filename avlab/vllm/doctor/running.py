"""A server that runs already: what its endpoints tell, and what they leave open. Its gates have let it start."""

from avlab.vllm.doctor import examine
from avlab.vllm.doctor.findings import Finding, Machine, Traffic, ordered
from avlab.vllm.doctor.look import checkpoint_of
from avlab.vllm.metrics import Counters, MetricsError, Reading, read, total
from avlab.vllm.server import Server
from avlab.vllm.settings import from_server

INFO = "vllm/entrypoints/serve/dev/server_info/api_router.py"
METRICS = "vllm/v1/spec_decode/metrics.py"
OF_SETTINGS = (
    "draft length",
    "captured sizes",
    "drafter",
)  # gates that may warn of a server that has started


def examine_running(server: Server, traffic: Traffic | None = None) -> list[Finding]:
    """What a running server tells of itself. Raises ServerError where it cannot be asked."""
    text = server.metrics()
    version, info = server.version(), server.info()
    found = [_of_version(version)]
    try:
        found += _of_metrics(read(text))
    except MetricsError as error:
        found.append(Finding("statistics", "refuses", str(error), "Without --disable-log-stats.", METRICS))
    if info is None:
        reason = "Whether verification is adaptive, K's reason, graphs and attention: told in development mode only."
        remedy = "VLLM_SERVER_DEV_MODE=1 for the server, on a network that you trust; or check its command instead."
        return ordered([*found, Finding("settings", "unknown", reason, remedy, INFO)])
    settings = from_server(info["vllm_config"], info.get("vllm_env") or {}, version or "")
    checkpoint = checkpoint_of(settings.model, settings.draft_model)
    told = examine(settings, Machine(), checkpoint, traffic)
    found += [
        each
        for each in told
        if each.verdict == "warns" or (each.gate in OF_SETTINGS and each.verdict == "passes")
    ]
    return ordered(found)


def _of_version(version: str | None) -> Finding:
    if version is None:
        return Finding("version", "unknown", "The server does not say its version.", "", "GET /version")
    return Finding("version", "passes", f"vLLM {version} answers.", "", "GET /version")


def _of_metrics(reading: Reading) -> list[Finding]:
    """Engines and models; speculation, and what its counters say so far."""
    models = sorted({model for model, _ in reading.engines})
    engines = f"{len(reading.engines)} engine{'s' * (len(reading.engines) > 1)} of {', '.join(models)}"
    found = [Finding("statistics", "passes", f"/metrics tells of {engines}.", source=METRICS)]
    speaking = [each for each in reading.engines.values() if each.speculates]
    if not speaking:
        reason = "There are no counters of drafts: the server does not speculate."
        found.append(Finding("drafter", "warns", reason, "--speculative-config.", METRICS))
    else:
        found.append(_of_drafts(total(speaking)))
    return found


def _of_drafts(counters: Counters) -> Finding:
    if not counters.drafts:
        return Finding("drafts so far", "unknown", "Nothing was drafted yet.", "Send requests.", METRICS)
    share = counters.accepted / counters.draft_tokens if counters.draft_tokens else 0.0
    reason = (
        f"{counters.drafts:,.0f} drafts of {counters.draft_tokens / counters.drafts:.2f} tokens, {share:.1%} of "
        f"scheduled tokens accepted, {1 + counters.accepted / counters.drafts:.2f} tokens a draft and step."
    )
    if share < 0.02:  # chosen here: what broken drafters show
        remedy = "Check that drafter and target belong together; a broken pair accepts next to nothing."
        return Finding(
            "drafts so far", "warns", reason, remedy, "https://github.com/vllm-project/vllm/pull/45343"
        )
    return Finding("drafts so far", "passes", reason, source=METRICS)
