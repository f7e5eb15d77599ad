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
    return [entry.prompt.messages for entry in read_prompts(path)]


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
    entries = read_prompts(path, max_new_tokens=33)
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
    first, second, third, last = (entry.prompt.sampling for entry in read_prompts(path))
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
        read_prompts(write([{"prompt": "a"}, {"prompt": "b", **wrong}]))


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
        ('{"messages": [{"role": "narrator", "content": "a"}]}', "has the unknown role 'narrator'"),
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
        (
            '{"prompt": "a", "arrival": 1}',
            "line 1 of traffic.jsonl has no arrival time while others have one",
        ),
        ("[" * 100_000, "is not usable JSON"),
        (b'{"prompt": "\xff"}', "is not UTF-8 text (byte 13)"),
    ],
)
def test_a_malformed_line_is_answered_with_one_sentence_and_its_number(write, line, complaint):
    path = write(GOOD.encode() + (line.encode() if isinstance(line, str) else line) + b"\n")
    with pytest.raises(WorkloadError) as caught:
        read_prompts(path)
    message = str(caught.value)
    assert complaint in message and "of traffic.jsonl" in message
    assert ("line 2" in message) != ("no arrival time" in message)
    assert message.endswith(".") and "\n" not in message and len(message) < 250


def test_line_numbers_count_empty_lines(write):
    with pytest.raises(WorkloadError, match=r"^line 4 of"):
        read_prompts(write(GOOD + "\n\n{}\n"))


def test_a_malformed_entry_of_an_array_is_named_by_its_number(write):
    with pytest.raises(WorkloadError, match=r"^entry 2 of chats.json has none"):
        read_prompts(write('[{"prompt": "a"}, {"value": 1}]', "chats.json"))
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
