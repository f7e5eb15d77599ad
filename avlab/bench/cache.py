"""Results kept between calls, so that a benchmark cut short goes on where it stopped."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil

from avlab.about import processor
from avlab.bench.base import Measure, Outcome
from avlab.installation import PROJECT

MEASURED = (
    "engine",
    "experiments",
    "speculation",
    "policies",
    "workloads",
    "workers",
    "wire",
    "lab",
    "store",
    "config.py",
    "bench",
)
SHARED = (
    "__init__",
    "base",
    "repeats",
    "rounds",
    "lab",
    "product",
    "recovery",
    "child",
    "vllm_serve",
)  # of avlab.bench; a measure's own file is added


def files_hash(paths: list[Path]) -> str:
    """SHA-256 of files by name and content, in hexadecimal."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def measured_files() -> list[Path]:
    """The code and drafter weights that figures depend on; of the benchmark itself, only what measures share."""
    roots = [PROJECT / "avlab" / name for name in MEASURED]
    found = [p for root in roots for p in ([root] if root.is_file() else root.rglob("*")) if p.is_file()]
    bench = PROJECT / "avlab" / "bench"
    return [
        path
        for path in found
        if path.suffix in (".py", ".cpp", ".h", ".json", ".safetensors")
        and (bench not in path.parents or (path.parent == bench and path.stem in SHARED))
    ]


def key_of(measure: Measure | None, config: dict[str, Any], environment: dict[str, str], quick: bool) -> str:
    """Names what a result depends on: machine, threads, code, configuration, form. None: what all measures share."""
    module = [] if measure is None else [Path(str(sys.modules[measure.run.__module__].__file__))]
    facts = {
        "machine": [processor(), psutil.cpu_count(), psutil.virtual_memory().total],
        "environment": {name: environment.get(name) for name in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT")},
        "config": config,
        "drafter": _weights(config["drafter"]),
        "code": files_hash(measured_files() + [path for path in module if PROJECT in path.parents]),
        "form": quick if measure else None,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _weights(drafter: str) -> list[float]:
    path = Path(drafter) / "drafter.safetensors"
    return [path.stat().st_size, path.stat().st_mtime] if path.is_file() else []


class Cache:
    """Outcomes by measure in a JSON file; one that cannot be read counts as empty."""

    def __init__(self, path: Path, fresh: bool = False):
        self.path, self.kept = path, {}
        if not fresh:
            try:
                self.kept = {
                    name: Outcome.from_dict(each) for name, each in json.loads(path.read_text()).items()
                }
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                self.kept = {}

    def get(self, measure: str, key: str) -> Outcome | None:
        """The outcome that was kept under this key."""
        outcome = self.kept.get(f"{measure}/{key}")
        if outcome is not None:
            outcome.cached = True
        return outcome

    def put(self, outcome: Outcome) -> None:
        """Keep an outcome that was measured, in place of earlier ones of the same form; writes the file."""
        self.kept[f"{outcome.measure}/{outcome.key}"] = outcome
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(f".{os.getpid()}.new")
        temporary.write_text(json.dumps({name: each.to_dict() for name, each in self.kept.items()}, indent=1))
        temporary.replace(self.path)
