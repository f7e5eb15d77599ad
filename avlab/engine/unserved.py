"""What a checkpoint says that is read and not served: named once in a run's record. No torch here."""

from pathlib import Path
from typing import Any

from avlab.engine.checkpoint_files import CONFIG, read_json
from avlab.engine.model_config import unknown_keys
from avlab.engine.special_tokens import GENERATION
from avlab.formats import as_json

# what a generation_config.json may ask for beside temperature, top-k and top-p, and the values that ask for nothing
WISHES: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "length_penalty": (1,),
    "exponential_decay_length_penalty": (),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "bad_words_ids": ([],),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ({},),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "min_p": (0,),
    "top_h": (0,),
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "penalty_alpha": (0,),
    "dola_layers": (),
    "guidance_scale": (1,),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "stop_strings": ([], ""),
    "watermarking_config": ({},),
}


def read_and_unserved(folder: Path) -> list[str]:
    """Sentences about the checkpoint in a folder. Raises CheckpointError for files that cannot be read."""
    found = []
    if unknown := unknown_keys(folder):
        found.append(
            f"{CONFIG} has settings that the engine does not know, and serves as if they were not there: "
            f"{', '.join(unknown[:10])}{', …' if len(unknown) > 10 else ''}."
        )
    path = folder / GENERATION
    values = read_json(path) if path.is_file() else {}
    wishes = [
        f"{name} {as_json(values[name])}"
        for name, nothing in WISHES.items()
        if values.get(name) not in (None, False, *nothing)
    ]
    if wishes:
        found.append(
            f"{GENERATION} recommends what the engine does not do: {', '.join(wishes)}. Texts are sampled without it."
        )
    return found
