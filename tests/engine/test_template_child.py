"""A chat template in its own process: the same text, and an end to whatever a template does."""

import psutil
import pytest

from avlab.engine.chat_template import ChatTemplate
from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.template_child import GuardedTemplate

CHAT = [{"role": "user", "content": "half a character: \ud83d, é, \n"}]
GOOD = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}{{ tools | tojson }}{{ bos_token }}"
SPECIAL = {"bos_token": "<s>"}
NESTED = "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i %}{% endfor %}{% endfor %}"
CALLS = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
DOUBLED = "{% set ns = namespace(a='a') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}"
WIDE = "{{ 'a' | center(4000000000) }}"
FORMATTED = "{{ '{:4000000000}'.format(1) }}"
PERCENT = "{{ '%4000000000d' % 1 }}"


def guarded(folder, source):
    (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    return GuardedTemplate(folder, {}, SPECIAL)


def test_it_says_what_the_template_says(tmp_path):
    template = guarded(tmp_path, GOOD)
    given = {"tools": [{"name": "é"}]}
    plain = ChatTemplate(tmp_path, {}, SPECIAL)
    assert template.render(CHAT, given) == plain.render(CHAT, given)
    assert template.exists and template.reads("tools") and not template.reads("documents")
    assert not GuardedTemplate(tmp_path / "elsewhere", {}, {}).exists


def test_what_it_refuses_is_the_same_sentence(tmp_path):
    template = guarded(tmp_path, "{{ raise_exception('no system') }}")
    for _ in range(2):  # it goes on
        with pytest.raises(CheckpointError, match=r"refused the messages .no system"):
            template.render(CHAT, {})
    with pytest.raises(CheckpointError, match="cannot be read"):
        guarded(tmp_path, "{% for %}")


@pytest.mark.parametrize("source", [NESTED, CALLS])
def test_one_that_works_without_end_is_ended_and_the_next_prompt_is_served(tmp_path, source):
    template = guarded(tmp_path, "{% if messages | length > 1 %}" + source + "{% endif %}x")
    with pytest.raises(CheckpointError, match="does not come to an end"):
        template.render([*CHAT, *CHAT], {})
    assert template.render(CHAT, {}) == "x"


@pytest.mark.parametrize("source", [DOUBLED, WIDE, FORMATTED, PERCENT])
def test_one_that_takes_memory_without_end_is_refused(tmp_path, source):
    with pytest.raises(CheckpointError, match="does not come to an end"):
        guarded(tmp_path, source).render(CHAT, {})


def test_its_process_ends_with_it(tmp_path):
    template = guarded(tmp_path, GOOD)
    child = psutil.Process(template._process.pid)
    del template
    assert not child.is_running()
