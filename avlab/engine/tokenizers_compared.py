"""Whether a draft model's tokens are the target's: two vocabularies of the same size may hold different words."""

from pathlib import Path

from avlab.engine.checkpoint_files import TOKENIZER, CheckpointError
from avlab.engine.special_tokens import read_tokenizer
from avlab.formats import as_json

NAMED = 3  # differing tokens that a sentence names


def tokenizer_differences(draft: Path, target: Path) -> list[str]:
    """What a reader must know of a draft model's tokenizer beside the target's, as sentences.

    Both are model folders. Raises CheckpointError where tokens of text differ: every draft would be of other words.
    Special tokens may: they are drafted wrong, and verified as ever.
    """
    if not (target / TOKENIZER).is_file():
        return []  # said when the target's texts are opened
    if not (draft / TOKENIZER).is_file():
        return [
            f"The draft model in {draft} came without its tokenizer, so nobody has checked that it is the target's."
        ]
    theirs, ours = read_tokenizer(draft), read_tokenizer(target)
    special = {*theirs.get_added_tokens_decoder(), *ours.get_added_tokens_decoder()}
    words, due = (
        {number: word for word, number in each.get_vocab(with_added_tokens=True).items()}
        for each in (theirs, ours)
    )
    differing = sorted(number for number in words.keys() | due.keys() if words.get(number) != due.get(number))
    if not differing:
        return []
    text = [number for number in differing if number not in special]
    named = "; ".join(
        f"{number} is {as_json(words.get(number))} there and {as_json(due.get(number))} in the target"
        for number in (text or differing)[:NAMED]
    )
    if text:
        raise CheckpointError(
            f"The draft model in {draft} has another tokenizer than the target, though it may have the same size: "
            f"{len(text):,} of {len(due):,} tokens differ (token {named}). A draft model must share the target's "
            "tokenizer: choose another one."
        )
    return [
        f"The draft model's special tokens differ from the target's in {len(differing)} of them (token {named}): those "
        "are drafted wrong, and everything is verified as ever."
    ]
