"""Chat messages become the tokens the target was trained on, and tokens become text again."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.text import Text

TEMPLATE = (
    "{% for m in messages %}<|s|>{{ m['role'] }}\n{{ m['content'] }}<|e|>\n{% endfor %}"
    "{% if messages[-1]['role'] == 'assistant' %}{{ raise_exception('ends with an answer') }}{% endif %}"
    "{% if add_generation_prompt %}<|s|>assistant\n{% endif %}"
)


@pytest.fixture
def folder(tmp_path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["the user and the assistant"], trainer)
    tokenizer.add_special_tokens([AddedToken("<|s|>", special=True), AddedToken("<|e|>", special=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return tmp_path


def test_messages_follow_the_template(folder):
    text = Text(folder)
    messages = [{"role": "user", "content": "Grüße 😀"}]
    assert text.prompt(messages) == "<|s|>user\nGrüße 😀<|e|>\n<|s|>assistant\n"
    tokens = text.encode(messages)
    assert tokens[0] == text.tokenizer.token_to_id("<|s|>")
    assert text.decode(tokens) == "user\nGrüße 😀\nassistant\n"


def test_a_template_file_goes_before_the_settings(folder):
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] | tojson }}")
    assert Text(folder).prompt([{"role": "user", "content": 'a "b"'}]) == '"a \\"b\\""'


def test_incremental_text_adds_up_and_never_shows_half_a_character(folder):
    text = Text(folder)
    whole = "the naïve 😀 user"
    stream = text.stream()
    pieces = [stream.add(token) for token in text.tokenizer.encode(whole).ids]
    assert "".join(pieces) == whole
    assert "" in pieces and not any("\ufffd" in piece for piece in pieces)


def test_a_base_model_continues_the_words(folder):
    (folder / "tokenizer_config.json").unlink()
    assert Text(folder).prompt([{"role": "user", "content": "Once"}]) == "Once\n"


def test_what_is_wrong_is_said(folder):
    with pytest.raises(CheckpointError, match="ends with an answer"):
        Text(folder).prompt([{"role": "assistant", "content": "x"}])
    (folder / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(CheckpointError, match="chat template"):
        Text(folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        Text(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="does not exist"):
        Text(folder)


def test_a_template_cannot_reach_the_machine(folder):
    (folder / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}")
    with pytest.raises(CheckpointError):
        Text(folder).prompt([{"role": "user", "content": "x"}])


def llama2(folder):
    """A tokenizer that writes spaces as Llama 2's: a mark before a word, stripped where a text begins."""
    words = ["<unk>", "a", "▁", "▁the", "▁user", "s", "<0xE2>", "<0x0A>", "</s>"]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [], byte_fallback=True))
    strip = decoders.Strip(content=" ", left=1)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    )
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return Text(folder)


def test_a_token_alone_keeps_its_space(tmp_path):
    text = llama2(tmp_path)
    assert [text.piece(token) for token in range(9)] == [
        "<unk>", "a", " ", " the", " user", "s", "\ufffd", "\n", "</s>",
    ]  # fmt: skip
    assert text.decode([3, 4, 5]) == "the users"
    assert "".join(text.piece(token) for token in (3, 4, 5)) == " the users"


def test_a_byte_tokenizers_pieces_are_as_they_were(folder):
    text = Text(folder)
    for word in ("the", " user", "\n", "<|s|>"):
        (token,) = text.tokenizer.encode(word, add_special_tokens=False).ids[:1]
        assert text.piece(token) == text.tokenizer.decode([token], skip_special_tokens=False)


OTHER_TOKENIZERS = {
    "tokenizer.model": "SentencePiece.*AutoTokenizer",
    "vocab.json": "older files.*AutoTokenizer",
    "cl100k.tiktoken": "tiktoken",
    "config.json": "came without its tokenizer",
}


@pytest.mark.parametrize("file", OTHER_TOKENIZERS)
def test_a_folder_without_a_tokenizer_is_told_what_it_holds(folder, file):
    (folder / "tokenizer.json").unlink()
    (folder / file).write_text("")
    with pytest.raises(CheckpointError, match=OTHER_TOKENIZERS[file]):
        Text(folder)


def test_a_tokenizer_that_git_lfs_has_not_fetched(folder):
    (folder / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        Text(folder)
