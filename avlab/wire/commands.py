"""Commands: what a lab says to its worker."""

from avlab.wire.message import Message, snake


class Acknowledge(Message, frozen=True, tag=snake):
    """Every frame up to and including `sequence` is committed."""

    sequence: int


class Resend(Message, frozen=True, tag=snake):
    """Send every frame after `sequence` again: one was lost on the way."""

    sequence: int


class Stop(Message, frozen=True, tag=snake):
    """Finish the step, say goodbye, exit. `drain` serves the running requests to their end first."""

    drain: bool = False


class Pause(Message, frozen=True, tag=snake):
    """Hold before the next step."""


class Resume(Message, frozen=True, tag=snake):
    """Go on after a pause."""


class SetPolicy(Message, frozen=True, tag=snake):
    """Serve under this arm from the next step on, in a new block."""

    arm: str
    kind: str = "serve"
    round: int | None = None


class SetWorkload(Message, frozen=True, tag=snake):
    """Take new requests from this workload, arriving so. Running requests finish."""

    workload: str
    arrival: str


MOST_WINDOW_STEPS = 100_000


class Window(Message, frozen=True, tag=snake):
    """Verify everything for a number of steps, at most MOST_WINDOW_STEPS: untrimmed labels.

    It scores; it teaches only if asked to.
    """

    steps: int
    teach: bool = False


class Experiment(Message, frozen=True, tag=snake):
    """Serve these arms in rounds, each arm once a round in random order, until `rounds` are kept; then the run ends.

    "switchback" lets the same requests run on through every block; "isolated" begins every block without requests,
    and gives every arm of a round the same prompts with the same seeds.
    """

    arms: list[str]  # labels, see `avlab.policies.arm.labels`; "fixed:5@16" has a load of its own
    baseline: str  # one of them
    rounds: int
    concurrency: int  # requests under way
    design: str = "switchback"  # or "isolated"
    length: float = 40.0  # of a counted block, in `unit`
    unit: str = "steps"  # or "seconds"
    washout: int = 4  # steps after a switch that are not counted
    learn: int = 200  # steps that an arm with an estimator serves before the first round
    seed: int = 0  # of the order of arms, and with the run's seed of the prompts of isolated blocks


class Generate(Message, frozen=True, tag=snake):
    """Serve this one prompt in a block of its own while the workload waits; each step is reported as Tokens.

    step_by_step takes the first step and waits for Advance. Without an Advance or Attend for some time it is ended.
    What is wrong with it comes back as an Event of kind "playground".
    """

    messages: list[dict]
    max_tokens: int
    arm: str = ""  # "": the one in force
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    step_by_step: bool = False


class Advance(Message, frozen=True, tag=snake):
    """One more step of a step-by-step generation, or all that are left."""

    to_the_end: bool = False


class Attend(Message, frozen=True, tag=snake):
    """Somebody still looks at the generation; see Generate."""


class Leave(Message, frozen=True, tag=snake):
    """End the generation where it is; the workload goes on."""


Command = (
    Acknowledge
    | Resend
    | Stop
    | Pause
    | Resume
    | SetPolicy
    | SetWorkload
    | Window
    | Experiment
    | Generate
    | Advance
    | Attend
    | Leave
)
