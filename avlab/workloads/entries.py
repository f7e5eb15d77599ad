"""One entry of a prompt file: the chat that it holds, and what it asks for.

What an object may look like (other fields are passed over):

    {"prompt": "..."}                                     plain, and HumanEval
    {"messages": [{"role": "user", "content": "..."}]}    chat, also inside the "body" of a batch request
    {"conversations": [{"from": "human", "value": "..."}]}    ShareGPT; up to the first human turn
    {"question": "...", "answer": "..."}                  GSM8K
    {"turns": ["...", "..."], "category": "..."}          SPEED-Bench and MT-Bench; the first turn

and with any of them `arrival` (seconds), a limit of output tokens under any of the names in `LIMITS`, `kind` or
`category`, how this request is to be sampled where the run's settings are not meant (`temperature`, `top_k`, `top_p`,
`seed`), and what the chat template is given: `tools`, `documents`, `chat_template_kwargs`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from avlab.formats import as_json

from .base import Prompt, Sampling, WorkloadError

LATEST, MOST_TOKENS = 1e11, 1_000_000  # beyond any clock, even one since 1970, and beyond any context
LICENCE = "as the file's owner says"
# the names of a request's limit, by those who use them; the first that an entry has counts
LIMITS = (
    "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens", "output_tokens", "output_len",
    "output_length", "max_tokens_to_sample", "num_predict", "n_predict",
)  # fmt: skip
ARRIVALS = ("arrival", "arrival_time")
ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
    "ipython": "tool",
}
# of one request: whether it is a whole number, what it may be (as a run's settings), and that in words
SAMPLING: dict[str, tuple[bool, Callable[[Any], bool], str]] = {
    "temperature": (False, lambda value: 0 <= value <= 10, "a number from 0 to 10"),
    "top_k": (True, lambda value: -1 <= value <= 10_000_000, "a whole number, 0 (or -1) for all"),
    "top_p": (False, lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    "seed": (True, lambda value: 0 <= value < 2**63, "a whole number from 0, below 2^63"),
}
SHAPES = ("prompt", "messages", "conversations", "question", "turns")
NESTED = ("extra_body", "parameters", "options", "sampling_params")  # where wishes may stand beside the body
# what a request may ask for and no engine here does, with the values that ask for nothing
UNSERVED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "stop": ([], ""),
    "stop_sequences": ([],),
    "stop_token_ids": ([],),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "repeat_penalty": (1,),
    "length_penalty": (1,),
    "logit_bias": ({}, []),
    "min_p": (0,),
    "typical_p": (1,),
    "top_a": (0,),
    "mirostat": (0,),
    "no_repeat_ngram_size": (0,),
    "bad_words": ([],),
    "allowed_token_ids": ([],),
    "min_tokens": (0,),
    "min_new_tokens": (0,),
    "ignore_eos": (),
    "use_beam_search": (),
    "num_beams": (1,),
    "response_format": ({"type": "text"},),
    "structured_outputs": ({},),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "json_schema": (),
    "regex": (),
    "grammar": (),
    "ebnf": (),
    "tool_choice": ("auto", "none"),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "echo": (),
    "suffix": ("",),
    "continue_final_message": (),
    "truncate_prompt_tokens": (),
    "reasoning_effort": (),
    "logits_processors": ([],),
    "lora_request": (),
}
TEMPLATE_LISTS = ("tools", "documents")
TURN_FIELDS = ("tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning", "thinking", "refusal")
SPEED_BENCH_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"


class Entry(NamedTuple):
    """A prompt of a file, and the second at which it arrives; None when the file does not say.

    unserved: what it asks for and does not get. cut: whether odd turns behind the one that is answered were left out.
    """

    prompt: Prompt
    arrival: float | None
    unserved: tuple[str, ...] = ()
    cut: bool = False


class Chat(NamedTuple):
    """Turns up to the one that is answered, and what each has beside role and content."""

    turns: tuple[tuple[str, str], ...]
    extras: tuple[Mapping[str, Any], ...]
    cut: bool = False


def entry(value: Any, place: str, name: str, kind: str, max_new_tokens: int) -> Entry:
    """The entry that a JSON value is. Raises WorkloadError, with its place.

    name: of the file. kind: of a prompt that does not say its own. max_new_tokens: where it has no limit of its own.
    """
    if not isinstance(value, dict):
        raise WorkloadError(f'{place} is {as_json(value)}, not a JSON object such as {{"prompt": "..."}}.')
    _check_text(value, place)
    body = value["body"] if isinstance(value.get("body"), dict) else {}
    fields = {**value, **body}
    for key in NESTED:
        if isinstance(fields.get(key), dict):
            wishes = {
                each: fields[key][each] for each in (*LIMITS, *SAMPLING, *UNSERVED) if each in fields[key]
            }
            fields = {**wishes, **fields}
    chat = _chat(fields, place)
    kind = next((fields[key] for key in ("kind", "category") if isinstance(fields.get(key), str)), kind)
    arrival = next((fields[key] for key in ARRIVALS if fields.get(key) is not None), None)
    if arrival is not None:
        number = isinstance(arrival, int | float) and not isinstance(arrival, bool)
        if not number or not (0 <= arrival < LATEST):
            raise WorkloadError(
                f"{place} arrives at {as_json(arrival)}; it must be a number of seconds, 0 or more."
            )
    prompt = Prompt(
        kind, chat.turns, name, LICENCE, _limit(fields, place, max_new_tokens), _sampling(fields, place),
        extras=chat.extras if any(chat.extras) else (), given=_given(fields, place),
    )  # fmt: skip
    unserved = tuple(
        each for each, nothing in UNSERVED.items() if fields.get(each) not in (None, False, *nothing)
    )
    return Entry(prompt, None if arrival is None else float(arrival), unserved, chat.cut)


def _limit(fields: dict[str, Any], place: str, otherwise: int) -> int:
    name = next((name for name in LIMITS if fields.get(name) is not None), None)
    if name is None:
        return otherwise
    limit = fields[name]
    if isinstance(limit, bool) or not isinstance(limit, int) or not (1 <= limit <= MOST_TOKENS):
        raise WorkloadError(
            f"{place} has a token limit of {as_json(limit)}; it must be a whole number, 1 to {MOST_TOKENS}."
        )
    return limit


def _sampling(fields: dict[str, Any], place: str) -> Sampling:
    """What an entry says of its sampling; null is as good as nothing, and vLLM's top_k of -1 means all."""
    found: dict[str, Any] = {}
    for name, (whole, allowed, words) in SAMPLING.items():
        value = fields.get(name)
        if value is None:
            continue
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not allowed(value):
            raise WorkloadError(f"{place} has a {name} of {as_json(value)}; it must be {words}.")
        found[name] = value
    if found.get("top_k") == -1:
        found["top_k"] = 0
    return Sampling(**found)


def _given(fields: dict[str, Any], place: str) -> dict[str, Any]:
    """What the chat template is given beside the messages."""
    own = fields.get("chat_template_kwargs") or {}
    if not isinstance(own, dict):
        raise WorkloadError(f"{place} has chat_template_kwargs of {as_json(own)}; they must be an object.")
    found: dict[str, Any] = {str(name): value for name, value in own.items()}
    for name in TEMPLATE_LISTS:
        value = fields.get(name)
        if not value:
            continue
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise WorkloadError(f"{place} has {name} of {as_json(value)}; they must be a list of objects.")
        found[name] = value
    return found


def _chat(fields: dict[str, Any], place: str) -> Chat:
    """The conversation up to the user's turn that is to be answered."""
    shape = next((name for name in SHAPES if fields.get(name) is not None), None)
    if shape is None:
        raise WorkloadError(f"{place} has none of the fields {', '.join(SHAPES)}.")
    value = fields[shape]
    if shape in ("prompt", "question"):
        return _asked(_text(value, f"the {shape} of {place}"))
    if not isinstance(value, list) or not value:
        raise WorkloadError(
            f"the {shape} of {place} are {as_json(value)}, not a list with at least one turn."
        )
    if shape == "turns":
        return _asked(_text(value[0], f"the first turn of {place}"))
    return _messages(value, place) if shape == "messages" else _conversation(value, place)


def _asked(text: str) -> Chat:
    return Chat((("user", text),), ({},))


def _messages(value: list[Any], place: str) -> Chat:
    """All turns up to the last that asks for an answer; where an odd one follows a question, the turns before it."""
    turns: list[tuple[str, str]] = []
    extras: list[Mapping[str, Any]] = []
    cut = False
    for number, turn in enumerate(value, 1):
        try:
            role, text, extra = _turn(turn, "role", "content", f"turn {number} of {place}")
        except WorkloadError:
            if not any(role == "user" for role, _ in turns):
                raise
            cut = True
            break
        turns.append((role, text))
        extras.append(extra)
    _require_question(turns, "messages", place)
    last = max(number for number, (role, _) in enumerate(turns) if role != "assistant") + 1
    return Chat(tuple(turns[:last]), tuple(extras[:last]), cut)


def _conversation(value: list[Any], place: str) -> Chat:
    """System turns and the first human one; what follows is not asked here, whatever it is."""
    turns: list[tuple[str, str]] = []
    for number, turn in enumerate(value, 1):
        if isinstance(turn, dict) and ROLES.get(turn.get("from", ""), turn.get("from")) == "assistant":
            continue
        role, text, _ = _turn(turn, "from", "value", f"turn {number} of {place}")
        turns.append((role, text))
        if role == "user":
            break
    _require_question(turns, "conversations", place)
    return Chat(tuple(turns), tuple({} for _ in turns))


def _require_question(turns: list[tuple[str, str]], shape: str, place: str) -> None:
    if not any(role == "user" for role, _ in turns):
        raise WorkloadError(
            f"the {shape} of {place} hold no turn of the user, so there is nothing to answer."
        )


def _turn(turn: Any, role_key: str, text_key: str, place: str) -> tuple[str, str, dict[str, Any]]:
    """Role, text and further fields of a turn. One that calls tools, or answers a call, may have no text."""
    if not isinstance(turn, dict) or not isinstance(turn.get(role_key), str):
        raise WorkloadError(f"{place} is not an object with {role_key!r} and {text_key!r}.")
    role = ROLES.get(turn[role_key], turn[role_key])
    if role not in ("system", "user", "assistant", "tool"):
        raise WorkloadError(f"{place} has the unknown role {as_json(turn[role_key])}.")
    extra = {name: turn[name] for name in TURN_FIELDS if turn.get(name) not in (None, [], "")}
    calls = extra.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(each, dict) for each in calls)):
        raise WorkloadError(f"{place} has tool_calls of {as_json(calls)}; they must be a list of objects.")
    if turn.get(text_key) in (None, "") and (calls or role == "tool"):
        return role, "", extra | ({} if turn.get(text_key) == "" else {text_key: None})
    return role, _text(turn.get(text_key), place), extra


def _text(value: Any, place: str) -> str:
    if isinstance(value, list):  # a message in parts, as the OpenAI interface has them
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        value = "".join(texts) if len(texts) == len(value) else value
    if not isinstance(value, str) or not value.strip():
        raise WorkloadError(f"{place} is {as_json(value)}, where a text that is not empty is needed.")
    if SPEED_BENCH_PLACEHOLDER in value:
        raise WorkloadError(
            f"{place} is a placeholder; fill SPEED-Bench in with its own preparation script first."
        )
    return value


def _check_text(value: Any, place: str) -> None:
    """Raise WorkloadError where a text or name anywhere in a value holds half of a surrogate pair."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            try:
                each.encode("utf-8")
            except UnicodeEncodeError:
                raise WorkloadError(
                    f"{place} holds half of a surrogate pair, which no tokenizer takes."
                ) from None
        elif isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, list):
            waiting += each
