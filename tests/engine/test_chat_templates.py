"""A chat template gives the prompt that transformers gives; what goes wrong in it is one sentence."""

import json
import re

import jinja2
import pytest
from chat_shapes import CHATS, GIVEN, SHAPES, TOOL
from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

from avlab.engine.chat_template import ChatTemplate
from avlab.engine.checkpoint_files import CheckpointError

SPECIAL = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "sep_token": "<sep>",
}
CHAT = [{"role": "user", "content": "Hi"}]


def theirs(source, chat, given):
    """The prompt as transformers renders it, or the class of the error that it raises."""
    try:
        rendered, _ = render_jinja_template(
            [_normalize_chat_messages(chat)], given.get("tools"), given.get("documents"), source,
            add_generation_prompt=True, **{**SPECIAL, **{k: v for k, v in given.items() if k not in GIVEN}},
        )  # fmt: skip
        return rendered[0]
    except (jinja2.TemplateError, TypeError, KeyError, ValueError, AttributeError) as error:
        return type(error)


def ours(folder, source, chat, given):
    (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    try:
        return ChatTemplate(folder, {}, SPECIAL).render(chat, given)
    except CheckpointError as error:
        assert re.fullmatch(r"The checkpoint's chat template refused the messages \([^\n]+\)\.", str(error))
        return "refused"


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_renders_as_transformers_renders_it(tmp_path, name):
    refused = 0
    for chat in CHATS.values():
        for given in GIVEN.values():
            expected, found = theirs(SHAPES[name], chat, given), ours(tmp_path, SHAPES[name], chat, given)
            refused += found == "refused"
            assert found == (expected if isinstance(expected, str) else "refused")
    assert refused < len(CHATS) * len(GIVEN) or name.startswith(("an ", "a call"))


def test_tools_and_documents_are_in_the_prompt(tmp_path):
    shape = SHAPES["headers, tools in the system turn"]
    assert '"name": "weather"' in ours(tmp_path, shape, CHAT, {"tools": [TOOL]})
    assert "Rain." in ours(tmp_path, SHAPES["documents to be cited"], CHAT, GIVEN["documents"])


def test_a_message_without_content_writes_none_of_it(tmp_path):
    called = CHATS["a call"]
    found = ours(tmp_path, SHAPES["signatures between marks"], called, {})
    assert "None" not in found and '<call>\n{"name": "weather"' in found


def settings(tmp_path, template, given=None, **files):
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/").replace("_jinja", ".jinja").replace("_json", ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return ChatTemplate(tmp_path, {"chat_template": template}, SPECIAL).render(CHAT, given or {})


NAMED = [
    {"name": "default", "template": "plain"},
    {"name": "tool_use", "template": "{{ tools | length }} tool"},
]


def test_a_template_is_found_wherever_it_stands(tmp_path):
    assert settings(tmp_path, NAMED) == "plain"
    assert settings(tmp_path, NAMED, {"tools": [TOOL]}) == "1 tool"
    assert settings(tmp_path, {"default": "d", "tool_use": "t"}, {"tools": [TOOL]}) == "t"
    assert settings(tmp_path, None, chat_template_json=json.dumps({"chat_template": "old"})) == "old"
    assert settings(tmp_path, None) == "old"
    assert settings(tmp_path, "settings") == "settings"
    assert settings(tmp_path, "settings", chat_template_jinja="file") == "file"
    more = {"additional_chat_templates__tool_use_jinja": "with tools"}
    assert settings(tmp_path, None, {"tools": [TOOL]}, **more) == "with tools"
    assert settings(tmp_path, None) == "file"


def test_several_templates_without_a_default_are_not_guessed_at(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"several chat templates \(rag, short\) and none is the default"
    ):
        settings(tmp_path, [{"name": "rag", "template": "r"}, {"name": "short", "template": "s"}])


@pytest.mark.parametrize(
    "template", [3, True, {"default": "{% for %}"}, "{% generation %}never closed", "{{"]
)
def test_a_template_that_cannot_be_read_is_one_sentence(tmp_path, template):
    with pytest.raises(CheckpointError, match="chat template") as caught:
        settings(tmp_path, template)
    assert "\n" not in str(caught.value)


HOSTILE = {
    "classes": "{{ messages.__class__.__mro__ }}",
    "a namespace's class": "{% set n = namespace() %}{% set n.__class__ = 3 %}",
    "a changed list": "{{ messages.append(1) }}",
    "a text without end": "{{ 'x' * 10 ** 12 }}",
    "a list without end": "{% set a = [1] * 1000000000000 %}",
    "a number without end": "{{ 10 ** 10 ** 10 }}",
    "output without end": "{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
    "a range without end": "{% for i in range(10 ** 9) %}{% endfor %}",
    "a macro without end": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "division by zero": "{{ 1 // 0 }}",
    "a long message": "{{ raise_exception('x' * 100000) }}",
    "several lines": "{{ raise_exception('one\\ntwo') }}",
    "no file": "{% include 'other' %}",
    "a filter that is not there": "{{ messages | shout }}",
    "json of what has none": "{{ range(2) | tojson }}",
    "a time that is none": "{{ strftime_now(3) }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_goes_wrong_in_a_template_is_one_sentence(tmp_path, name):
    with pytest.raises(CheckpointError) as caught:
        settings(tmp_path, HOSTILE[name])
    said = str(caught.value)
    assert "\n" not in said and len(said) < 400 and "chat template" in said
