"""What a watched server's counters cannot tell, in words: for the terminal, the Live page and the run's events."""

from collections.abc import Sequence


def cannot_know(adaptive: bool | None, speculates: bool, told: bool, unread: Sequence[str] = ()) -> list[str]:
    """Sentences. adaptive: whether verification is, None where nobody said. told: the server told its configuration.
    unread: why its worker extension tells nothing.
    """
    found = []
    if not speculates:
        found.append("The server has no counters of drafts: it does not speculate.")
    elif adaptive:
        found.append(
            "Verification is adaptive, and vLLM counts the drafts that were scheduled, not those that were verified: "
            "trimming looks like rejection here. Accepted of verified, conditional acceptance at a position and the "
            "budget cannot be known without the worker extension."
        )
    elif adaptive is None:
        found.append(
            "Whether verification is adaptive is not known: if it is, vLLM's counters take trimming for rejection. Say "
            "it with --verification adaptive or fixed, or start the server with VLLM_SERVER_DEV_MODE=1."
        )
    else:
        found.append(
            "Verification is fixed, so what was scheduled was verified. Positions behind an accepted end of text, or "
            "beyond a request's limit, count as accepted here, unlike in the lab's own runs."
        )
    if speculates:
        found.append(
            "Coefficients, calibration, costs and the parts of a step cannot be known from /metrics: they need the "
            "worker extension."
        )
        found += unread
    if not told:
        found.append(
            "The server's configuration is not told: K, drafter and verification are as its counters show them."
        )
    return found
