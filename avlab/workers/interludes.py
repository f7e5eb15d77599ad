"""What comes between the workload's own steps: a window of full verification, and the playground."""

from typing import TYPE_CHECKING, Generic, cast

from avlab.engine.request import RequestError
from avlab.engine.served import InProcessEngine, OfEngine, Report
from avlab.policies.arm import PolicyError
from avlab.policies.wrappers import Frozen, FullVerification
from avlab.wire import commands, frames
from avlab.workers.playground import Generation, PlaygroundText

if TYPE_CHECKING:
    from avlab.workers.serving import Server


class Interludes(Generic[Report, OfEngine]):
    """A server's window or generation, at most one at a time, and how long generations have held its workload."""

    def __init__(self, server: "Server[Report, OfEngine]"):
        self.server = server
        self.window = 0  # steps left
        self.generation: Generation | None = None
        self._generations = 0
        self._later: list[commands.Command] = []  # came during a generation
        self._began, self._first_step, self._idle = 0.0, 0, 0.0

    def obey(self, command: commands.Command) -> bool:
        """Take a command that concerns interludes, or that has to wait for the end of one; whether it was one."""
        match command:
            case commands.Window(steps, teach) if self.generation is None:
                self._begin_window(steps, teach)
            case commands.Generate():
                self._generate(command)
            case commands.Advance() | commands.Leave() | commands.Attend():
                if self.generation is not None:  # else it has ended meanwhile
                    self.generation.obey(command)
            case _ if self.generation is not None:
                self._later.append(command)
            case _:
                return False
        return True

    def refusal(self) -> str:
        """Why nothing may come between the workload's steps now, as a sentence; "" when something may."""
        if sentence := self.server.engine.uninterrupted:
            return sentence
        if self.server.experimenting:
            return "An A/B is running, and nothing may come between its blocks: stop it first."
        if self.generation is not None:
            return "The playground is in use: wait for its end, or end it."
        if self.window:
            return f"A window of full verification is running: {self.window} steps are left."
        return ""

    def _engine(self) -> InProcessEngine:
        """The engine, where something may come between its steps. Raises RequestError where not."""
        engine = self.server.engine
        if not isinstance(engine, InProcessEngine):
            raise RequestError(engine.uninterrupted)
        return engine

    # ---- the window ----------------------------------------------------------------------------------------

    def _begin_window(self, steps: int, teach: bool) -> None:
        server = self.server
        problem = self.refusal()
        if not server.report.K:
            problem = "A window of full verification needs a drafter, and this run has none."
        elif not 1 <= steps <= commands.MOST_WINDOW_STEPS:
            problem = f"A window cannot be of {steps}: give 1 to {commands.MOST_WINDOW_STEPS:,} steps."
        if problem:
            server.order.event("warning", "window", problem)
            return
        server.begin_block(server.report.arm, "window", taught=teach)
        engine = self._engine()
        engine.policy = FullVerification(engine.policy if teach else Frozen(engine.policy), server.report.K)
        self.window = steps

    def count_step(self) -> None:
        """The workload took a step: a window may end with it."""
        if self.window:
            self.window -= 1
            if not self.window:
                self.server.begin_block(self.server.report.arm, "serve")

    # ---- the playground ------------------------------------------------------------------------------------

    def _generate(self, command: commands.Generate) -> None:
        server = self.server
        refused: tuple[type[Exception], ...] = (*server.intake.refusals, PolicyError)
        arm, text = server.report.arm, server.intake.text
        try:
            if problem := self.refusal():
                raise RequestError(problem)
            if not isinstance(text, PlaygroundText):
                raise RequestError("The playground needs a text that can be shown token by token.")
            put, number = server.order.outbox.put, self._generations
            self.generation = Generation(command, self._engine(), text, put, number, arm)
        except refused as error:
            server.order.event("warning", frames.PLAYGROUND, str(error))
            return
        self._generations += 1
        self._after = arm
        self._began, self._first_step = server.order.clock(), server.engine.step_number
        self._idle = server.order.clock()
        server.report.begin_block(
            server.engine.policy.arm,
            frames.PLAYGROUND,
            server.engine.step_number,
            server.intake.workload.name,
            taught=False,
        )
        server.order.state = frames.PLAYGROUND
        if server.config.keep_text:
            server.intake.prompts[self.generation.request.id] = self.generation.prompt

    def turn(self) -> bool:
        """Give the generation a step, or wait for its reader, or end it; whether there was one."""
        generation, server = self.generation, self.server
        if generation is None:
            return False
        if generation.over:
            self.end_generation()
        elif generation.waits:
            server.report.flush()
            server.order.outbox.wait(0.25)
        else:
            idle_ms = (server.order.clock() - self._idle) * 1e3
            report = generation.step()
            server.order.step = server.engine.step_number
            server.report.take(cast("Report", report), idle_ms)  # an InProcessEngine's report is its own
            self._idle = server.order.clock()
        return True

    def end_generation(self) -> None:
        """Report how the generation ended, if there is one, and let the workload go on."""
        generation, server = self.generation, self.server
        if generation is None:
            return
        finished = generation.close()
        if generation.reason == "forgotten":
            server.order.event(
                "warning", frames.PLAYGROUND, "The playground was left alone, so the workload goes on."
            )
        if finished is not None:
            server.intake.finish(finished)
        else:
            server.intake.end(generation.request, "cancelled")
        self.generation = None
        server.intake.held_seconds += server.order.clock() - self._began
        server.intake.held_steps += server.engine.step_number - self._first_step
        server.order.state = "paused" if server.paused else "serving"
        server.begin_block(self._after, "serve")
        later, self._later = self._later, []
        for command in later:
            server.obey(command)
