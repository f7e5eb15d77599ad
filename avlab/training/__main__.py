"""`python -m avlab.training`: make the shipped drafter again, stage by stage; a stopped run goes on where it was.

python -m avlab.training              everything: record, train, write
python -m avlab.training --smoke      the same in about two minutes, to see that every stage works
"""

import argparse
import time
from pathlib import Path

import torch

from avlab.config import RunConfig
from avlab.engine.build import SHIPPED_DRAFTER
from avlab.engine.fetch import DEFAULT_TARGET
from avlab.speculation.sampling import MODELS_OWN
from avlab.training.card import write_card
from avlab.training.pipeline import Plan, in_parallel, record, train, write


def main() -> None:
    """Parse the command line and run the stages."""
    parser = argparse.ArgumentParser(prog="python -m avlab.training", description=__doc__.splitlines()[0])
    parser.add_argument(
        "stage", nargs="?", default="all", choices=["all", "record", "train", "write", "card"]
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("build/drafter"), help="working files (about 10 GB)"
    )
    parser.add_argument("--out", type=Path, default=SHIPPED_DRAFTER, help="where the drafter is written")
    parser.add_argument("--target", default=DEFAULT_TARGET)
    parser.add_argument("--tokens", type=int, default=400_000, help="positions to record")
    parser.add_argument("--updates", type=int, default=2400)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--cost", default="", help="a sentence for the card on what the training took")
    parser.add_argument("--smoke", action="store_true", help="a few thousand tokens, a few updates")
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.smoke:
        a.tokens, a.updates, a.folder = 6_000, 6, a.folder.with_name(a.folder.name + "-smoke")
        a.out = a.folder / "drafter" if a.out == SHIPPED_DRAFTER else a.out
    a.folder.mkdir(parents=True, exist_ok=True)
    plan = Plan(a.folder, a.target, a.tokens, a.updates, a.workers)
    passed = ["--folder", str(a.folder), "--target", a.target, "--workers", str(a.workers)]
    passed += ["--tokens", str(a.tokens), "--updates", str(a.updates)]
    torch.set_num_threads(1)

    def say(text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, flush=True)

    if a.stage == "record":
        record(plan, a.part, say)
    elif a.stage == "train":
        train(plan, say)
    elif a.stage == "all":
        in_parallel(plan, "record", passed)
        in_parallel(plan, "train", passed)
    if a.stage in ("all", "write"):
        say(f"written to {write(plan, a.out, {})}")
    if a.stage in ("all", "card"):
        measure_and_write_card(a.out, a.target, a.smoke, a.cost)
        say(f"its card is {a.out / 'README.md'}")


def measure_and_write_card(out: Path, target: str, quick: bool, cost: str) -> None:
    """Serve with the drafter in `out`, as the benchmark does, and write what came of it beside it."""
    from avlab.bench.base import Context
    from avlab.bench.measures.drafter import measure

    config = RunConfig.make(MODELS_OWN._asdict(), target=target, drafter=str(out), max_new_tokens=1024)
    table = measure(Context(config, quick, out, out / "costs.json")).tables[0]
    (out / "costs.json").unlink(missing_ok=True)
    write_card(out, table.columns, table.rows, cost)


if __name__ == "__main__":
    main()
