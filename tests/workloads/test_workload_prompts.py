"""The ladder of prompts: enough of them, really different, with a source, and split once and for all."""

import ast
import re
import subprocess
import sys

import pytest

from avlab.workloads import Prompt, WorkloadError, kinds, prompts, split
from avlab.workloads.base import fill, generator
from avlab.workloads.installed_text import functions, reference_passages
from avlab.workloads.tool_library import TOOLS

LADDER = ("tool_calls", "code", "arithmetic", "reference", "essays", "verse", "chat")


def asked(prompt):
    return "\n".join(content for role, content in prompt.turns if role == "user")


def test_the_ladder_is_found_by_name_in_its_order():
    assert tuple(kinds()) == LADDER
    assert [kind.rung for kind in kinds().values()] == sorted(kind.rung for kind in kinds().values())


@pytest.mark.parametrize("kind", LADDER)
def test_a_kind_has_many_distinct_prompts_with_source_and_licence(kind):
    collection = prompts(kind)
    assert len({prompt.text for prompt in collection}) == len(collection) >= 200
    assert len({asked(prompt) for prompt in collection}) >= 400
    assert len({prompt.id for prompt in collection}) == len(collection)
    for prompt in collection:
        assert prompt.kind == kind and prompt.source and prompt.licence
        assert 16 <= prompt.max_new_tokens <= 512
        assert prompt.messages[-1] == {"role": "user", "content": prompt.turns[-1][1]}
        assert {message["role"] for message in prompt.messages} <= {"system", "user", "assistant"}
        assert all(message["content"].strip() == message["content"] != "" for message in prompt.messages)
        assert 20 <= len(prompt.text) <= 2000


@pytest.mark.parametrize("kind", LADDER)
def test_no_way_to_begin_a_question_dominates_a_kind(kind):
    questions = [prompt.turns[-1][1] for prompt in prompts(kind)]
    beginnings = [" ".join(question.split()[:5]) for question in questions]
    most_common = max(beginnings.count(beginning) for beginning in set(beginnings))
    assert most_common <= len(questions) * 0.15


@pytest.mark.parametrize("kind", LADDER)
def test_every_slot_of_our_own_templates_is_filled(kind):
    for prompt in prompts(kind):
        if prompt.source == "templates written for avlab":
            assert not re.search(r"\{\w+(:\d+\.\.\d+(/\d+)?)?\}", prompt.turns[-1][1]), prompt.text


@pytest.mark.parametrize("kind", LADDER)
def test_the_split_is_disjoint_complete_and_about_four_to_one(kind):
    training, held_out = prompts(kind, split="training"), prompts(kind, split="held-out")
    assert {prompt.id for prompt in training} | {prompt.id for prompt in held_out} == {
        prompt.id for prompt in prompts(kind)
    }
    assert not {asked(prompt) for prompt in training} & {asked(prompt) for prompt in held_out}
    assert 0.14 <= len(held_out) / (len(held_out) + len(training)) <= 0.26
    assert all(split(prompt) == "held-out" for prompt in held_out)


def test_the_split_does_not_move_with_the_seed():
    training = {asked(prompt) for kind in LADDER for prompt in prompts(kind, split="training", seed=0)}
    held_out = {asked(prompt) for kind in LADDER for prompt in prompts(kind, split="held-out", seed=1)}
    assert len(held_out) > 300 and not training & held_out


def test_the_split_of_known_words_is_what_it_was():
    sides = [split(Prompt("k", (("user", f"question {number}"),), "s", "l", 8)) for number in range(12)]
    assert [number for number, side in enumerate(sides) if side == "held-out"] == [1, 4, 5, 7, 8, 11]
    under_a_system_message = Prompt("k", (("system", "Be short."), ("user", "question 1")), "s", "l", 8)
    assert split(under_a_system_message) == "held-out"


@pytest.mark.parametrize("kind", LADDER)
def test_the_same_seed_gives_the_same_prompts_and_another_seed_others(kind):
    code = f"from avlab.workloads import prompts; print(*(p.id for p in prompts({kind!r}, seed=7)))"
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = [prompt.id for prompt in prompts(kind, seed=7)]
    assert elsewhere.stdout.split() == here
    assert here != [prompt.id for prompt in prompts(kind, seed=8)]


def test_prompts_need_neither_torch_nor_pandas():
    code = (
        "import sys; from avlab.workloads import kinds, prompts; [prompts(kind) for kind in kinds()];"
        "print({'torch', 'pandas', 'transformers'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_a_caller_cannot_spoil_the_list_for_the_next_one():
    prompts("verse").clear()
    assert len(prompts("verse")) >= 200


def test_unknown_kinds_and_splits_are_answered_with_the_known_ones():
    with pytest.raises(WorkloadError, match=r"no kind of prompts named 'poetry'.*verse"):
        prompts("poetry")
    with pytest.raises(WorkloadError, match=r"no split named 'test'.*training, held-out"):
        prompts("verse", split="test")


def test_a_tool_offers_a_schema_whose_required_parameters_exist():
    assert len({tool.name for tool in TOOLS}) == len(TOOLS) >= 25
    for tool in TOOLS:
        parameters = tool.schema["parameters"]
        assert parameters["required"] and set(parameters["required"]) <= set(parameters["properties"])
        for described in parameters["properties"].values():
            assert described["type"] in {"string", "integer", "number", "array"} and described["description"]


def test_every_tool_is_asked_for_among_the_tools_it_is_offered_with():
    offered = " ".join(prompt.turns[0][1] for prompt in prompts("tool_calls"))
    assert all(f'"name": "{tool.name}"' in offered for tool in TOOLS)


def test_functions_of_the_library_can_be_put_together_again():
    for function in functions():
        (definition,) = ast.parse(function.source).body
        assert ast.get_docstring(definition) and len(definition.body) > 1


def test_passages_are_prose_of_the_asked_length():
    passages = reference_passages()
    assert len(passages) >= 300
    assert all(260 <= len(passage) <= 1000 and "::=" not in passage for _, passage in passages)


def test_a_template_repeats_a_slot_and_never_draws_a_second_one_alike():
    for seed in range(50):
        filled = fill("{city} {city_b} {city} {n:4..10/3}", {"city": ["Oslo", "Lima"]}, generator(seed))
        first, second, again, number = filled.split()
        assert first == again != second and number in {"4", "7", "10"}
