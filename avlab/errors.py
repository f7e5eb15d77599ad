"""Errors at the edge: which ones are sentences for the user, and which are faults."""


def is_ours(error: BaseException) -> bool:
    """Whether an error is one of this project's own classes, whose message is a sentence for the user."""
    return type(error).__module__.partition(".")[0] in ("avlab", "store")
