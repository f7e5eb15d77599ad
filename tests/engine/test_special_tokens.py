"""A text ends with any token that one of a checkpoint's files names, and begins with the one that they name."""

import json

import pytest
import torch
from tiny_models import make_engine, serve, write_llama, write_tokenizer

from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.model_config import read_config
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.engine.text import Text

SETTINGS, GENERATION, MAP = "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"


@pytest.fixture
def folder(tmp_path):
    target = write_llama(tmp_path / "target")
    write_tokenizer(target)
    return target


def write(folder, name, **values):
    path = folder / name
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | values))


def ends(folder):
    return set(read_config(folder).end_tokens)


def test_the_ends_are_the_union_of_all_files(folder):
    assert ends(folder) == set()
    write(folder, "config.json", eos_token_id=7)
    assert ends(folder) == {7}
    write(folder, GENERATION, eos_token_id=[3, 4, 7])
    assert ends(folder) == {7, 3, 4}
    write(folder, SETTINGS, eos_token="[END]")
    assert ends(folder) == {7, 3, 4, 1}
    write(folder, MAP, eos_token={"content": "the", "special": True})
    assert ends(folder) == {7, 3, 4, 1, 2}
    write(folder, "config.json", eos_token_id=None)
    write(folder, GENERATION, eos_token_id=None)
    assert ends(folder) == {1, 2}


@pytest.mark.parametrize("named", ["[END]", {"__type": "AddedToken", "content": "[END]", "special": True}])
def test_an_end_that_the_tokenizer_alone_names_ends_a_text(folder, named):
    write(folder, SETTINGS, eos_token=named)
    engine = make_engine(Target(folder, torch.float32))
    done, _ = serve(engine, [Request(i, [2, 3, 4], 400, seed=i) for i in range(8)])
    ended = [each for each in done.values() if each.reason == "end"]
    assert ended and all(each.sequence.tokens[-1] == 1 for each in ended)


def test_words_that_are_no_tokens_and_old_ways_to_say_none_do_no_harm(folder):
    write(folder, SETTINGS, eos_token="<never>", bos_token=None)
    write(folder, "config.json", eos_token_id=-1, bos_token_id=-1)
    assert ends(folder) == set()
    Text(folder)


@pytest.mark.parametrize("file", ["config.json", GENERATION])
@pytest.mark.parametrize("value", ["2", [2, "x"], 2.5, True, {"id": 2}, [[2]], [None]])
def test_an_end_that_is_no_token_is_one_sentence(folder, file, value):
    write(folder, file, eos_token_id=value)
    with pytest.raises(CheckpointError, match=f"{file} gives eos_token_id as .*not a number, nor a list"):
        read_config(folder)


@pytest.mark.parametrize("file", [SETTINGS, MAP])
@pytest.mark.parametrize("value", [2, ["[END]"], True, {"content": 3}])
def test_a_word_that_is_none_is_one_sentence(folder, file, value):
    write(folder, file, eos_token=value)
    with pytest.raises(CheckpointError, match=f"{file} gives eos_token as .*must be a token's text"):
        read_config(folder)


PLACES = {
    "settings": (SETTINGS, {"bos_token": "for"}),
    "as an object": (SETTINGS, {"bos_token": {"content": "for", "lstrip": False}}),
    "map": (MAP, {"bos_token": "for"}),
    "config": ("config.json", {"bos_token_id": 10}),
    "generation": (GENERATION, {"bos_token_id": 10}),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_start_is_found_wherever_it_stands(folder, place):
    name, values = PLACES[place]
    write(folder, SETTINGS, chat_template="{{ bos_token }} {{ messages[0].content }}")
    write(folder, name, **values)
    assert Text(folder).prompt([{"role": "user", "content": "it"}]) == "for it"


def test_a_text_without_a_template_begins_where_the_settings_say_so(folder):
    (folder / SETTINGS).write_text("{}")
    chat = [{"role": "user", "content": "the of"}]
    plain = Text(folder).encode(chat)
    write(folder, SETTINGS, bos_token="for", add_bos_token=True)
    assert Text(folder).encode(chat) == [10, *plain]
    write(folder, SETTINGS, add_bos_token=False)
    assert Text(folder).encode(chat) == plain
