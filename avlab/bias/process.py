"""What is asked of the engine's step apart from serving: an audit, texts, rows. Each in a process of its own."""

import contextlib
import json
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from avlab import temporary
from avlab.config import RunConfig
from avlab.errors import is_ours, not_written
from avlab.processes import end_tree, start_child, tail, worker_environment
from avlab.speculation.sampling import MODELS_OWN

PROMPT = "What is the capital of France?"
SOUND_RULES = ("adaptive", "adaptive:raw", "fixed:2", "maximum:0.2", "budget:earlier")
UNSOUND_RULES = ("drawn:0.2", "budget:same-step", "noise:correction")
TEXT_RULES = ("maximum:0.1", "drawn:0.1")
TEXT_POSITIONS = 4
# Not 0, whose first 48 requests' uniforms happen to be low by three standard errors (of 400 seeds one or two are), and
# low uniforms draw frequent tokens.
TEXT_SEED = 1
FORM = 2  # of kept results: the first had audits in which adaptive rules did not trim before the first token
# glibc hands large blocks back and asks for them again at every step; kept, a step takes a fifth less (measured)
KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "2000000000"}
# AUC of three scores on labelled slots, as an earlier version of the change says that then scored the drawn token
PUBLISHED_AUC = {"drawn": 0.847, "head": 0.823, "margin": 0.805}
PUBLISHED_IN = (
    "vLLM pull request 52228 (an earlier version), held out on DeepSeek-V4-Flash with DSpark at temperature 1"
)


class AuditFailed(RuntimeError):
    """An audit that could not be made. The message is one sentence."""


class AskedProcess:
    """A process that answers an order with rows; `rows` keeps the newest of each key."""

    key: tuple[str, ...] = ("rule",)  # what tells rows apart

    def __init__(self, task: str, config: RunConfig, **order: Any):
        self.progress: tuple[str, int, int] = ("starting", 0, 0)
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.error = ""
        self.done = threading.Event()
        self._log = temporary.file("avlab-audit-")
        environment = worker_environment(config.threads, config.spin) | KEEPS_MEMORY
        self._process = start_child("avlab.bias.audit", environment, self._log)
        order |= {"task": task, "config": config.model_dump(mode="json")}
        assert self._process.stdin
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            self._hear()
        except Exception as error:
            traceback.print_exc()
            self.error = (
                str(error) if is_ours(error) else f"The audit failed ({type(error).__name__}: {error})."
            )
            end_tree(self._process.pid)
        finally:
            self._process.wait()
            self._log.unlink(missing_ok=True)
            self.done.set()

    def _hear(self) -> None:
        """Take what the process says, to its end."""
        assert self._process.stdout
        finished = False
        for line in self._process.stdout:
            said = json.loads(line)
            if "progress" in said:
                self.progress = tuple(said["progress"])
            elif "found" in said:
                self._take(said["found"])
            else:
                self.error, finished = said.get("error", ""), True
        if not finished and not self.error:
            last = tail(self._log)
            self.error = f"The audit's process ended ({last[-1].strip() if last else 'without a word'})."

    def _take(self, row: dict[str, Any]) -> None:
        self.rows[tuple(row[name] for name in self.key)] = row

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if not self.done.is_set():
            self.error = "The audit was stopped."
            end_tree(self._process.pid)
            self.done.wait(10)


class AuditProcess(AskedProcess):
    """An audit of every rule with every seed.

    results: a file of JSON lines. Audits that it holds are not made again, and each one made is added to it, so that a
    long audit can be stopped and taken up again. Raises AuditFailed for a file that cannot be read and written.
    """

    key = ("rule", "seed")

    def __init__(
        self,
        rules: Sequence[str],
        seeds: Sequence[int],
        continuations: int,
        prompt: str = PROMPT,
        config: RunConfig | None = None,
        K: int = 2,
        results: Path | None = None,
    ):
        config = config or RunConfig.make(MODELS_OWN._asdict())
        self.rules = rules = list(dict.fromkeys(rule.strip() for rule in rules))
        self.case = {
            "form": FORM, "prompt": prompt, "continuations": continuations, "K": K, "temperature": config.temperature,
            "target": config.target, "drafter": config.drafter,
        }  # fmt: skip
        self.results, tests = results, 2 * len(rules) * len(seeds)
        wanted = [(rule, seed) for rule in rules for seed in seeds]
        known = {key: row for key, row in self._kept().items() if key in wanted}
        super().__init__(
            "audit", config, K=K, prompt=prompt, continuations=continuations, tests=tests,
            audits=[each for each in wanted if each not in known],
        )  # fmt: skip
        for row in known.values():
            corrected = [min(1.0, row[part]["p_value"] * tests) for part in ("one", "two")]
            super()._take(row | {"tests": tests, "rejected": min(corrected) < 0.01})

    def _kept(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Audits of the same case that the file of results holds."""
        if self.results is None:
            return {}
        try:
            self.results.touch()
            lines = self.results.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            raise AuditFailed(f"{self.results} holds no results of audits: name another file.") from None
        except OSError as error:
            raise AuditFailed(not_written(self.results, error)) from None
        kept = {}
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a line cut short by a crash
                row = json.loads(line)
                if row["case"] == self.case:
                    kept[row["rule"], row["seed"]] = row
        return kept

    def _take(self, row: dict[str, Any]) -> None:
        super()._take(row)
        if row["done"] and self.results is not None:
            try:
                with self.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row | {"case": self.case}) + "\n")
            except OSError as error:
                raise AuditFailed(not_written(self.results, error)) from None


class TextProcess(AskedProcess):
    """Answers to the same requests under several rules, each after the first compared with it."""

    def __init__(
        self,
        rules: Sequence[str] = TEXT_RULES,
        requests: int = 64,
        max_new_tokens: int = 96,
        config: RunConfig | None = None,
        K: int = TEXT_POSITIONS,
    ):
        super().__init__(
            "texts", config or RunConfig.make(MODELS_OWN._asdict(), seed=TEXT_SEED),
            rules=list(dict.fromkeys(rule.strip() for rule in rules)),
            requests=requests, max_new_tokens=max_new_tokens, K=K,
        )  # fmt: skip


class RowsProcess(AskedProcess):
    """Target and draft row behind a prompt, at the configuration's temperature."""

    key = ("prompt",)

    def __init__(self, prompt: str, config: RunConfig | None = None):
        super().__init__("rows", config or RunConfig.make(MODELS_OWN._asdict()), prompts=[prompt])
