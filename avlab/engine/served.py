"""What the serving loop asks of every engine beside its steps, answered for an engine with nothing to say. No torch."""


class ServedEngine:
    """Base of the engines that `avlab.workers.serving` can serve.

    uninterrupted: why no window and no generation may come between the workload's steps, as a sentence; "" where they
    may.
    """

    uninterrupted: str = ""

    def look(self) -> None:
        """Called while the loop waits. Raises an error of ours where the engine's own processes have died."""
