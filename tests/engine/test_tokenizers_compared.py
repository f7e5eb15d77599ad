"""A draft model whose tokenizer differs at the same size is refused, with the tokens that differ."""

import json

import pytest
from tiny_models import write_llama, write_tokenizer
from tokenizers import AddedToken, Tokenizer, models

from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.drafters.base import kind_of
from avlab.engine.tokenizers_compared import tokenizer_differences

WORDS = ["[UNK]", "the", "a", "of", "to"]


def write(folder, words, special=()):
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_the_same_words_are_no_news(tmp_path):
    draft, target = write(tmp_path / "draft", WORDS, ["<s>"]), write(tmp_path / "target", WORDS, ["<s>"])
    assert tokenizer_differences(draft, target) == []


def test_other_words_at_the_same_size_are_refused_and_named(tmp_path):
    draft = write(tmp_path / "draft", ["[UNK]", "a", "the", "of", "to"], ["<s>"])
    target = write(tmp_path / "target", WORDS, ["<s>"])
    with pytest.raises(CheckpointError) as caught:
        tokenizer_differences(draft, target)
    said = str(caught.value)
    assert '2 of 6 tokens differ (token 1 is "a" there and "the" in the target; 2 is "the" there' in said


def test_a_word_more_is_a_difference(tmp_path):
    draft, target = write(tmp_path / "draft", [*WORDS, "and"]), write(tmp_path / "target", WORDS)
    with pytest.raises(CheckpointError, match='token 5 is "and" there and null in the target'):
        tokenizer_differences(draft, target)


def test_special_tokens_alone_are_named(tmp_path):
    draft, target = write(tmp_path / "draft", WORDS, ["<s>"]), write(tmp_path / "target", WORDS, ["<begin>"])
    (note,) = tokenizer_differences(draft, target)
    assert 'token 5 is "<s>" there and "<begin>" in the target' in note


def test_a_draft_model_without_a_tokenizer_is_said(tmp_path):
    draft = write_llama(tmp_path / "draft")
    (note,) = tokenizer_differences(draft, write(tmp_path / "target", WORDS))
    assert "came without its tokenizer" in note


def test_the_kind_of_a_small_llama_asks(tmp_path):
    target, draft = write_llama(tmp_path / "target"), write_llama(tmp_path / "draft", seed=1)
    write_tokenizer(target)
    write_tokenizer(draft)
    against = kind_of(draft).against
    assert against(draft, target) == []
    content = json.loads((draft / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    words["the"], words["a"] = words["a"], words["the"]
    (draft / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="another tokenizer"):
        against(draft, target)
