"""Requests to be answered by a call of a tool, written as JSON: the most predictable output of the ladder."""

import json

from .base import Kind, Prompt, Turns, distinct, fill, generator, in_turn, own
from .tool_library import SLOTS, TOOLS, Tool

MAX_NEW_TOKENS = 96

INSTRUCTIONS = (
    "You can call these tools:\n{tools}\n"
    'Answer with one JSON object and nothing else: {{"name": <tool name>, "arguments": {{...}}}}',
    "You are an assistant that answers only with tool calls. The tools, as JSON schemas, one a line:\n{tools}\n"
    'Reply with JSON of the form {{"name": "...", "arguments": {{"parameter": value}}}}.',
    "Choose the right function for what the user wants and fill in its arguments.\nFunctions:\n{tools}\n"
    'Output format: {{"name": "<function>", "arguments": {{"<parameter>": <value>}}}}. Do not add any explanation.',
    "# Tools\n{tools}\n\n# Rules\nReturn a JSON list of calls, one for each thing the user asks for, each of the form\n"
    '{{"name": <tool>, "arguments": {{...}}}}. Leave out arguments that the user did not give.',
)
JOINERS = ("{first} Also: {second}", "{first} And then: {second}", "Two things. {first} {second}")


def build(seed: int) -> list[Prompt]:
    draw = generator("tool_calls", seed)
    next_request = in_turn([(tool, request) for tool in TOOLS for request in tool.requests], draw)

    def make(attempt: int) -> Turns:
        tool, template = next_request(attempt)
        request = fill(template, SLOTS, draw)
        offered: list[Tool] = [tool]
        if draw.random() < 0.2:
            second = draw.choice([other for other in TOOLS if other is not tool])
            offered.append(second)
            second_request = fill(draw.choice(second.requests), SLOTS, draw)
            request = draw.choice(JOINERS).format(first=request, second=second_request)
            instruction = INSTRUCTIONS[-1]
        else:
            others = [other for other in TOOLS if other is not tool]
            offered += draw.sample(others, draw.choice((0, 1, 1, 2)))
            instruction = draw.choice(INSTRUCTIONS)
        draw.shuffle(offered)
        tools = "\n".join(json.dumps(each.schema) for each in offered)
        return (("system", instruction.format(tools=tools)), ("user", request))

    return [own("tool_calls", MAX_NEW_TOKENS, turns) for turns in distinct(make)]


KIND = Kind("tool_calls", "calls of a tool, as JSON that fits a schema", 1, MAX_NEW_TOKENS, build)
