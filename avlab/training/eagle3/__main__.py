"""`python -m avlab.training.eagle3`: make the EAGLE-3 head; a stopped run goes on where it was, and may be paused.

python -m avlab.training.eagle3 record    the target writes text, and its states are kept
python -m avlab.training.eagle3 train     over what is recorded so far
python -m avlab.training.eagle3 write     as a folder that vLLM and this engine read
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from avlab.engine.build import choose_dtype
from avlab.engine.checkpoint import read_weights
from avlab.engine.fetch import DEFAULT_TARGET, target_folder
from avlab.engine.model_config import read_config
from avlab.engine.target import Target
from avlab.engine.text import Text
from avlab.training.data import Recordings
from avlab.training.eagle3.export import export
from avlab.training.eagle3.network import Eagle3Network
from avlab.training.eagle3.train import Schedule, Trainer
from avlab.training.generate import LENGTH, ShardWriter, generate
from avlab.training.prompts import conversations, headers

DRAFT_VOCABULARY = 8192  # tokens; the file then holds less than 20 MB
VOCABULARY_ROWS = 40_000  # distributions looked at to choose them
STATE_LAYERS = (
    2,
    15,
    27,
)  # whose inputs are tapped: EAGLE-3's low, middle and high, as vLLM takes them by default
KEPT_KEYS = (29,)  # the recording keeps keys of at least one layer; nobody reads these


def say(text: str) -> None:
    """A line with the time."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


def record(folder: Path, target_name: str, tokens: int) -> None:
    """Record so many positions; what is there counts."""
    writer = ShardWriter(folder / "data")
    torch.manual_seed(77 + writer.number)
    path, told = target_folder(target_name), 0.0
    missing = tokens - recordings(folder, path).tokens
    if missing <= 0:
        return
    with torch.inference_mode():
        target = Target(path, choose_dtype("auto", torch.device("cpu")), length=LENGTH)
        text, end = Text(path), target.config.end_tokens[0]
        opening, answer = headers(text, end)

        def progress(done: int, rate: float) -> None:
            nonlocal told
            if time.monotonic() - told > 20:
                told = time.monotonic()
                say(f"{tokens - missing + done} of {tokens} tokens, {rate:.0f} a second")

        stream = conversations(text, opening, seed=900 + writer.number)
        kept = {"key_layers": KEPT_KEYS, "state_layers": STATE_LAYERS}
        generate(target, stream, answer, end, writer, missing, 64, progress, **kept)


def recordings(folder: Path, target: Path) -> Recordings:
    """What is recorded so far."""
    c = read_config(target)
    return Recordings([folder / "data"], c.hidden, c.kv_heads, c.head_dim, KEPT_KEYS)


def trainer(folder: Path, target_name: str, updates: int) -> Trainer:
    """A trainer over what is recorded, resumed from the folder's checkpoint if it holds one."""
    torch.manual_seed(0)
    path = target_folder(target_name)
    weights = read_weights(path, torch.float32, torch.device("cpu"))
    found, config = recordings(folder, path), read_config(path)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    vocabulary = chosen_vocabulary(folder, found, head)
    network = Eagle3Network(config, STATE_LAYERS, len(vocabulary))
    network.start_from(weights, vocabulary)
    made = Trainer(network, found, weights, vocabulary, Schedule(updates=updates), folder / "training")
    if made.load():
        say(f"resumed at update {made.update}")
    return made


def chosen_vocabulary(folder: Path, found: Recordings, head: torch.Tensor) -> torch.Tensor:
    """The tokens to which the target gives most mass on the recordings, rising; fixed at the first call."""
    path = folder / "vocabulary.json"
    if not path.exists():
        mass, rows_of = torch.zeros(len(head)), head.bfloat16()
        for states in found.final_states(every=max(1, found.tokens // VOCABULARY_ROWS)):
            for rows in states.bfloat16().split(256):
                mass += F.linear(rows, rows_of).float().softmax(-1).sum(0)
        ids = mass.argsort(descending=True, stable=True)[:DRAFT_VOCABULARY].sort().values
        say(f"the draft vocabulary holds {float(mass[ids].sum() / mass.sum()):.4f} of the target's mass")
        path.write_text(json.dumps(ids.tolist()))
    return torch.tensor(json.loads(path.read_text()))


def main() -> None:
    """Parse the command line and run one stage."""
    parser = argparse.ArgumentParser(
        prog="python -m avlab.training.eagle3", description=__doc__.splitlines()[0]
    )
    parser.add_argument("stage", choices=["record", "train", "write"])
    parser.add_argument(
        "--folder", type=Path, default=Path("build/eagle3"), help="working files (5 GB a million tokens)"
    )
    parser.add_argument("--out", type=Path, help="where `write` writes; else FOLDER/head")
    parser.add_argument("--target", default=DEFAULT_TARGET)
    parser.add_argument("--tokens", type=int, default=900_000, help="positions to record")
    parser.add_argument("--updates", type=int, default=3000)
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.stage == "record":
        record(a.folder, a.target, a.tokens)
    elif a.stage == "train":
        trainer(a.folder, a.target, a.updates).run(say)
    else:
        made = trainer(a.folder, a.target, a.updates)
        facts = {"updates": made.update, "recorded_tokens": made.recordings.tokens, **made.evaluate()}
        say(f"written to {export(made.network, made.vocabulary, a.out or a.folder / 'head', facts)}")


if __name__ == "__main__":
    main()
