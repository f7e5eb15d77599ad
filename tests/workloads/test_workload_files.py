"""The reader's own prompts: the shapes that are understood, times, limits, and what is said of bad ones."""

import json

import pytest

from avlab.workloads import Moment, WorkloadError, open_workload, read_prompts

GOOD = '{"prompt": "Hello"}\n'


@pytest.fixture
def write(tmp_path):
    def write(content, name="traffic.jsonl"):
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(json.dumps(each) + "\n" for each in content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def messages_of(path):
    return [entry.prompt.messages for entry in read_prompts(path).entries]


def user(content):
    return {"role": "user", "content": content}


SYSTEM = {"role": "system", "content": "Be short."}
SHAREGPT = [
    {"from": "human", "value": "Hi"},
    {"from": "gpt", "value": "Yes?"},
    {"from": "human", "value": "And?"},
]
SPEED_BENCH = {
    "question_id": "q1",
    "category": "coding",
    "turns": ["Write it.", "Test it."],
    "multiturn": True,
}
SHAPES = {
    "prompt": ({"prompt": "Hi", "task_id": "HumanEval/0"}, [user("Hi")]),
    "messages": ({"messages": [SYSTEM, user("Hi")]}, [SYSTEM, user("Hi")]),
    "answered": ({"messages": [user("Hi"), {"role": "assistant", "content": "Hello"}]}, [user("Hi")]),
    "parts": ({"messages": [user([{"type": "text", "text": "Hi "}, {"text": "you"}])]}, [user("Hi you")]),
    "batch": ({"custom_id": "1", "body": {"messages": [user("Hi")]}}, [user("Hi")]),
    "sharegpt": ({"id": "QWJhYvA_0", "conversations": SHAREGPT}, [user("Hi")]),
    "sharegpt-system": (
        {"conversations": [{"from": "system", "value": "Be short."}, *SHAREGPT[1:]]},
        [SYSTEM, user("And?")],
    ),
    "gsm8k": ({"question": "How many?", "answer": "2 + 2 = 4\n#### 4"}, [user("How many?")]),
    "speed-bench": (SPEED_BENCH, [user("Write it.")]),
}


@pytest.mark.parametrize(("entry", "expected"), SHAPES.values(), ids=SHAPES)
def test_each_shape_is_understood(write, entry, expected):
    assert messages_of(write([entry])) == [expected]


def test_a_file_that_is_one_array_is_understood(write):
    entries = [{"conversations": [{"from": "human", "value": word}]} for word in ("one", "two")]
    assert messages_of(write(json.dumps(entries, indent=1))) == [[user("one")], [user("two")]]


def test_kind_source_licence_limit_and_arrival_are_read(write):
    path = write([
        {"prompt": "a", "kind": "mail", "arrival": 2, "max_new_tokens": 7},
        {"prompt": "b", "category": "code", "arrival_time": 1.5, "max_tokens": 9},
        {"prompt": "c", "arrival": 0},
    ])  # fmt: skip
    entries = read_prompts(path, max_new_tokens=33).entries
    assert [entry.prompt.kind for entry in entries] == ["mail", "code", "traffic"]
    assert [entry.prompt.max_new_tokens for entry in entries] == [7, 9, 33]
    assert [entry.arrival for entry in entries] == [2.0, 1.5, 0.0]
    assert all(entry.prompt.source == "traffic.jsonl" and entry.prompt.licence for entry in entries)


def test_an_entry_may_say_how_it_is_sampled(write):
    whole = {"temperature": 0, "top_k": 20, "top_p": 0.5, "seed": 3}
    path = write([
        {"prompt": "a", **whole},
        {"prompt": "b", "top_k": -1, "seed": None},
        {"body": {"messages": [user("c")], "temperature": 1.5}},
        {"prompt": "d"},
    ])  # fmt: skip
    first, second, third, last = (entry.prompt.sampling for entry in read_prompts(path).entries)
    settings = {"temperature": 0.7, "top_k": 5, "top_p": 1.0, "seed": 99}
    assert first.over(**settings) == whole
    assert second.over(**settings) == settings | {"top_k": 0}
    assert third.over(**settings) == settings | {"temperature": 1.5}
    assert last.over(**settings) == settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1}, {"temperature": 11}, {"temperature": "hot"}, {"temperature": True},
        {"temperature": float("nan")}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": 1.5}, {"top_k": -2}, {"seed": -1},
        {"seed": 2**63}, {"seed": 1.0},
    ],
)  # fmt: skip
def test_a_wrong_way_of_sampling_is_a_sentence_with_its_line(write, wrong):
    (name,) = wrong
    with pytest.raises(WorkloadError, match=f"line 2 of traffic.jsonl has a {name} of .*; it must be a "):
        read_prompts(write([{"prompt": "a"}, {"prompt": "b", **wrong}]), strict=True)


def test_byte_order_marks_windows_line_ends_and_empty_lines_do_no_harm(write):
    path = write(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n   \n{"prompt": "\xc3\xa9"}')
    assert messages_of(path) == [[user("a")], [user("é")]]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"prompt": "a"', "is not JSON: Expecting ',' delimiter at column 15"),
        ("hello", "is not JSON: Expecting value at column 1"),
        ('"hello"', 'is "hello", not a JSON object'),
        ("{}", "has none of the fields prompt, messages, conversations, question, turns"),
        ('{"text": "a"}', "has none of the fields"),
        ('{"prompt": ""}', 'the prompt of line 2 of traffic.jsonl is ""'),
        ('{"prompt": "  "}', "where a text that is not empty is needed"),
        ('{"prompt": 7}', "is 7, where a text"),
        ('{"prompt": "\\ud800"}', "half of a surrogate pair"),
        ('{"question": ["a"]}', "the question of line 2"),
        ('{"messages": []}', "not a list with at least one turn"),
        ('{"messages": "a"}', "not a list with at least one turn"),
        (
            '{"messages": ["a"]}',
            "turn 1 of line 2 of traffic.jsonl is not an object with 'role' and 'content'",
        ),
        ('{"messages": [{"role": "user"}]}', "turn 1 of line 2 of traffic.jsonl is null"),
        ('{"messages": [{"role": "narrator", "content": "a"}]}', 'has the unknown role "narrator"'),
        ('{"messages": [{"role": "system", "content": "a"}]}', "hold no turn of the user"),
        ('{"conversations": [{"from": "gpt", "value": "a"}]}', "hold no turn of the user"),
        ('{"turns": []}', "not a list with at least one turn"),
        ('{"turns": [""]}', "the first turn of line 2"),
        ('{"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING X"]}', "is a placeholder"),
        ('{"prompt": "a", "max_new_tokens": 0}', "has a token limit of 0"),
        ('{"prompt": "a", "max_new_tokens": 2.5}', "has a token limit of 2.5"),
        ('{"prompt": "a", "max_tokens": true}', "has a token limit of true"),
        ('{"prompt": "a", "max_tokens": 1' + "0" * 99 + "}", "has a token limit of 1000"),
        ('{"prompt": "a", "arrival": -1}', "arrives at -1; it must be a number of seconds, 0 or more"),
        ('{"prompt": "a", "arrival": "noon"}', 'arrives at "noon"'),
        ('{"prompt": "a", "arrival": NaN}', "arrives at NaN"),
        ('{"prompt": "a", "arrival": 1e999}', "arrives at Infinity"),
        ('{"prompt": "a", "arrival": 1' + "0" * 400 + "}", "arrives at 1000"),
        ("[" * 100_000, "is not usable JSON"),
        (b'{"prompt": "\xff"}', "is not UTF-8 text (byte 13)"),
    ],
)
def test_a_malformed_line_is_answered_with_one_sentence_and_its_number(write, line, complaint):
    path = write(GOOD.encode() + (line.encode() if isinstance(line, str) else line) + b"\n")
    with pytest.raises(WorkloadError) as caught:
        read_prompts(path, strict=True)
    message = str(caught.value)
    assert complaint in message and "of traffic.jsonl" in message
    assert "line 2" in message
    assert message.endswith(".") and "\n" not in message and len(message) < 250
    found = read_prompts(path)
    assert [entry.prompt.turns for entry in found.entries][:1] == [(("user", "Hello"),)]
    assert found.passed_over == 1 and found.first == message
    (note,) = found.notes
    assert note == (
        f"traffic.jsonl: 1 prompt to serve, passed over 1; first: {message[:-1]} (--strict ends the run instead)."
    )


def test_line_numbers_count_empty_lines(write):
    with pytest.raises(WorkloadError, match=r"^line 4 of"):
        read_prompts(write(GOOD + "\n\n{}\n"), strict=True)


def test_a_malformed_entry_of_an_array_is_named_by_its_number(write):
    with pytest.raises(WorkloadError, match=r"^entry 2 of chats.json has none"):
        read_prompts(write('[{"prompt": "a"}, {"value": 1}]', "chats.json"), strict=True)
    with pytest.raises(WorkloadError, match=r"is not JSON: .* at line 2, column 2"):
        read_prompts(write('[{"prompt": "a"},\n ?]', "chats.json"))


@pytest.mark.parametrize("content", ["", "\n \n", "[]"])
def test_a_file_without_prompts_is_refused(write, content):
    with pytest.raises(WorkloadError, match="holds no prompt"):
        read_prompts(write(content))


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(WorkloadError, match=r"none.jsonl' cannot be read: No such file"):
        read_prompts(tmp_path / "none.jsonl")
    with pytest.raises(WorkloadError, match="cannot be read"):
        open_workload(f"file:{tmp_path}")


def test_a_file_with_times_is_replayed_in_the_order_of_its_times(write):
    path = write(
        [{"prompt": word, "arrival": 1_700_000_000 + time} for word, time in (("b", 3), ("a", 1), ("c", 3.5))]
    )
    workload = open_workload(f"file:{path}")
    first = workload.due(Moment(seconds=0.0))
    assert [(request.prompt.turns[0][1], request.arrival) for request in first] == [("a", 0.0)]
    assert workload.wait(Moment(seconds=0.5)) == 1.5
    later = workload.due(Moment(seconds=9.0, running=99))
    assert [(request.prompt.turns[0][1], request.arrival) for request in later] == [("b", 2.0), ("c", 2.5)]
    assert [request.index for request in first + later] == [0, 1, 2]
    assert workload.exhausted and workload.wait(Moment(9.0)) is None and workload.due(Moment(99.0)) == []


def test_a_file_without_times_is_served_in_its_order_and_ends(write):
    workload = open_workload(f"file:{write([{'prompt': str(number)} for number in range(10)])}", "closed:4")
    first = workload.due(Moment(0.0))
    last = workload.due(Moment(1.0, running=1)) + workload.due(Moment(2.0)) + workload.due(Moment(3.0))
    assert [request.prompt.turns[0][1] for request in first + last] == [str(number) for number in range(10)]
    assert workload.exhausted


def test_a_repeated_file_begins_again(write):
    workload = open_workload(f"file:{write([{'prompt': 'a'}, {'prompt': 'b'}])}", "closed:5", repeat=True)
    assert [request.prompt.turns[0][1] for request in workload.due(Moment(0.0))] == list("ababa")
    assert not workload.exhausted


def test_a_limit_fills_in_where_a_file_has_none_of_its_own(write):
    path = write([{"prompt": "a", "max_new_tokens": 5}, {"prompt": "b"}])
    limits = [
        request.max_new_tokens
        for request in open_workload(f"file:{path}", max_new_tokens=50).due(Moment(0.0))
    ]
    assert limits == [5, 50]


def test_replaying_a_file_without_times_is_refused(write):
    with pytest.raises(WorkloadError, match="arrival time"):
        open_workload(f"file:{write(GOOD)}", "replay")


# ---- what is asked for, and what is passed over ----------------------------------------------------------------

CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    "name",
    ["max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens", "output_tokens", "output_len",
     "output_length", "max_tokens_to_sample", "num_predict", "n_predict"],
)  # fmt: skip
@pytest.mark.parametrize("where", ["entry", "body", "sampling_params", "options", "parameters", "extra_body"])
def test_a_limit_is_read_under_every_usual_name(write, name, where):
    entry = {"messages": [user("Hi")]}
    entry |= {name: 7} if where == "entry" else {where: {name: 7, "messages": [user("Hi")]}}
    (found,) = read_prompts(write([entry])).entries
    assert found.prompt.max_new_tokens == 7


def test_the_newer_name_of_a_limit_goes_before_the_older(write):
    path = write([{"prompt": "a", "max_tokens": 5, "max_completion_tokens": 9}])
    assert read_prompts(path).entries[0].prompt.max_new_tokens == 9


def test_tools_documents_and_settings_reach_the_template(write):
    documents = [{"title": "One", "text": "Rain."}]
    given = {"tools": [TOOL], "documents": documents, "chat_template_kwargs": {"enable_thinking": False}}
    (found,) = read_prompts(write([{"body": {"messages": [user("Hi")], **given}}])).entries
    assert found.prompt.given == {"enable_thinking": False, "tools": [TOOL], "documents": documents}
    (plain,) = read_prompts(write([{"messages": [user("Hi")]}])).entries
    assert plain.prompt.given == {} and plain.prompt.id != found.prompt.id


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}])
def test_a_call_without_words_is_a_turn(write, content):
    answer = {"role": "tool", "tool_call_id": "1", "content": "sun"}
    chat = [user("Hi"), {"role": "assistant", "tool_calls": [CALL], **content}, answer]
    (found,) = messages_of(write([{"messages": chat}]))
    assert found[1]["tool_calls"] == [CALL] and not found[1]["content"]
    assert found[2] == {"role": "tool", "content": "sun", "tool_call_id": "1"}


WISHES = {
    "n": 4, "best_of": 2, "stop": ["\n"], "stop_token_ids": [2], "presence_penalty": 0.5, "frequency_penalty": -1,
    "repetition_penalty": 1.1, "logit_bias": {"3": 5}, "min_p": 0.1, "min_tokens": 5, "ignore_eos": True,
    "bad_words": ["x"], "response_format": {"type": "json_object"}, "guided_regex": "a*", "tool_choice": "required",
    "functions": [TOOL], "use_beam_search": True, "suffix": "end", "structured_outputs": {"choice": ["a"]},
}  # fmt: skip


@pytest.mark.parametrize("name", WISHES)
def test_what_is_asked_for_and_not_done_is_named_and_counted(write, name):
    path = write([{"prompt": "a"}, {"prompt": "b", name: WISHES[name]}, {"prompt": "c", name: WISHES[name]}])
    found = read_prompts(path)
    assert found.notes == [
        "traffic.jsonl: entries ask for what is not done here, and are served without it: "
        f"{name} (2, first line 2 of traffic.jsonl)."
    ]
    with pytest.raises(
        WorkloadError, match=f"line 2 of traffic.jsonl asks for what is not done here: {name};"
    ):
        read_prompts(path, strict=True)


def test_a_wish_for_nothing_is_none(write):
    nothing = {
        "n": 1, "stop": None, "presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
        "stream": True,
        "logit_bias": {}, "ignore_eos": False, "response_format": {"type": "text"}, "tool_choice": "auto", "min_p": 0.0,
        "model": "some", "logprobs": True, "user": "me",
    }  # fmt: skip
    assert read_prompts(write([{"prompt": "a", **nothing}]), strict=True).notes == []


ODD = [
    {"messages": [{"role": "assistant", "content": None}, user("Hi")]},
    {"messages": [user(None)]},
    {"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]},
    {"messages": [user("Hi")], "tools": "weather"},
    {"messages": [user("Hi")], "documents": ["one"]},
    {"messages": [user("Hi")], "chat_template_kwargs": [1]},
    {"messages": [{"role": "assistant", "tool_calls": "x"}, user("Hi")]},
    {"prompt": "a", "category": "\ud800"},
    {"prompt": "a", "tools": [{"name": "\udfff"}]},
    {"prompt": "a", "temperature": float("inf")},
    {"conversations": [{"from": "narrator", "value": "x"}, {"from": "human", "value": "y"}]},
    {"conversations": []},
    [],
    None,
    3,
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("array", [False, True])
def test_an_odd_entry_is_passed_over_and_counted(write, odd, array):
    entries = [{"prompt": "a"}, odd, odd, {"prompt": "b"}]
    path = write(json.dumps(entries)) if array else write(entries)
    found = read_prompts(path)
    assert [entry.prompt.turns[0][1] for entry in found.entries] == ["a", "b"] and found.passed_over == 2
    place = "entry 2" if array else "line 2"
    assert "2 prompts to serve, passed over 2; first: " in found.notes[0] and place in found.notes[0]
    with pytest.raises(WorkloadError, match=place):
        read_prompts(path, strict=True)


def test_a_file_of_odd_entries_alone_is_refused(write):
    with pytest.raises(WorkloadError, match=r"^line 1 of .* None of its 3 entries can be served\.$"):
        read_prompts(write(["a", "b", "c"]))


@pytest.mark.parametrize(
    "odd", [{"role": "narrator", "content": "x"}, {"role": "user", "content": ""}, {"role": "user"}, "x", None,
            {"role": "assistant", "content": None}]
)  # fmt: skip
def test_odd_later_turns_are_left_out_and_counted(write, odd):
    chat = [SYSTEM, user("Hi"), {"role": "assistant", "content": "Yes?"}, odd, user("More")]
    found = read_prompts(write([{"prompt": "a"}, {"messages": chat}]))
    assert found.entries[1].prompt.messages == [SYSTEM, user("Hi")] and found.passed_over == 0
    assert found.notes == [
        "traffic.jsonl: of 1 prompts the turns from an odd one on were left out; first: line 2 of traffic.jsonl."
    ]


def test_later_turns_of_a_recorded_talk_are_not_looked_at(write):
    talk = [
        {"from": "gpt", "value": ""},
        {"from": "human", "value": "Hi"},
        {"from": "gpt", "value": None},
        "x",
    ]
    found = read_prompts(write([{"conversations": talk}]), strict=True)
    assert found.entries[0].prompt.messages == [user("Hi")]


def test_times_of_some_entries(write):
    some = [{"prompt": str(i), "arrival": i} for i in range(3)] + [{"prompt": "x"}]
    found = read_prompts(write(some))
    assert len(found.entries) == 3 and "prompt 4 of traffic.jsonl has no arrival time" in found.notes[0]
    most = [{"prompt": str(i)} for i in range(3)] + [{"prompt": "x", "arrival": 1}]
    found = read_prompts(write(most))
    assert len(found.entries) == 3 and "has an arrival time while most have none" in found.notes[0]
    with pytest.raises(WorkloadError, match="give every entry one, or none"):
        read_prompts(write(most), strict=True)


def test_a_line_without_end_is_passed_over_alone(write):
    path = write(
        b'{"prompt": "a"}\n{"prompt": "' + b"x" * (9 << 20) + b'"}\n{"prompt": "b"}\n' + b"[" * 300_000
    )
    found = read_prompts(path)
    assert [entry.prompt.turns[0][1] for entry in found.entries] == ["a", "b"] and found.passed_over == 2
    assert found.first == "line 2 of traffic.jsonl has more than 8 MB."


def test_a_large_array_is_read_with_one_odd_entry(write):
    talk = {"conversations": [{"from": "human", "value": "word " * 40}, {"from": "gpt", "value": "x"}]}
    found = read_prompts(write(json.dumps([*[talk] * 20_000, {"id": 1, "conversations": []}])))
    assert len(found.entries) == 20_000 and "entry 20001 of" in found.notes[0]
    assert "20,000 prompts to serve, passed over 1; first: the conversations of entry 20001" in found.notes[0]
