"""Chat templates in the shapes that published models use, each written anew for these tests, and chats for them."""

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather <now> & later; \u00e4 place's",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string"},
                "days": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["place"],
        },
    },
}
CALL = {
    "id": "abcdef123",
    "type": "function",
    "function": {"name": "weather", "arguments": {"place": "K\u00f6ln", "days": [1, 2]}},
}
ASKED = {"role": "user", "content": "  How is it in K\u00f6ln? "}
SYSTEM = {"role": "system", "content": "Be short.\n"}
CHATS = {
    "one turn": [ASKED],
    "system": [SYSTEM, ASKED],
    "several turns": [ASKED, {"role": "assistant", "content": "Fine."}, {"role": "user", "content": "And?"}],
    "a call": [
        SYSTEM,
        ASKED,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "name": "weather", "tool_call_id": "abcdef123", "content": '{"sun": true}'},
    ],
    "reasoning": [
        ASKED,
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes.", "thinking": "hm"},
        {"role": "user", "content": "Sure?"},
    ],
    "parts": [
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
    ],
    "starts with an answer": [{"role": "assistant", "content": "Hello"}, ASKED],
}
GIVEN = {
    "nothing": {},
    "tools": {"tools": [TOOL]},
    "documents": {"documents": [{"title": "One", "text": "Rain."}, {"title": "Two", "text": "Sun."}]},
    "own words": {"enable_thinking": False, "date_string": "1 May 2026"},
}

SHAPES = {
    "marked turns, with a default system": """\
{% if messages[0]['role'] != 'system' %}<|begin|>system
You help.<|end|>
{% endif %}
{% for message in messages %}
<|begin|>{{ message['role'] }}
{{ message['content'] }}<|end|>
{% endfor %}
{% if add_generation_prompt %}<|begin|>assistant
{% endif %}""",
    "instruction brackets, alternating": """\
{%- if messages[0].role == 'system' -%}
{%- set rest = messages[1:] -%}{%- set system = '<<S>>\\n' + messages[0].content + '\\n<</S>>\\n\\n' -%}
{%- else -%}{%- set rest = messages -%}{%- set system = '' -%}{%- endif -%}
{%- for message in rest -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Turns must alternate: user, assistant, user, ...') }}
{%- endif -%}
{%- if message.role == 'user' -%}
{{ bos_token + '[I] ' + (system if loop.index0 == 0 else '') + message.content | trim + ' [/I]' }}
{%- elif message.role == 'assistant' -%}{{ ' ' + message.content | trim + ' ' + eos_token }}
{%- endif -%}{%- endfor -%}""",
    "headers": """\
{% set found = messages %}{% for message in found %}{% set content = '<|h|>' + message['role'] + '<|/h|>\n\n' \
+ message['content'] | trim + '<|t|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}\
{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|h|>assistant<|/h|>\n\n' }}{% endif %}""",
    "headers, tools in the system turn": """\
{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|h|>system<|/h|>\\n\\nToday: " + date_string + "\\n" }}
{%- if tools is not none %}
    {{- "You have these functions:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message + "<|t|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|h|>' + message['role'] + '<|/h|>\\n\\n' + message['content'] | trim + '<|t|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("One call at a time!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' + tool_call.arguments | tojson + '}<|t|>' }}
    {%- elif message.content is mapping or message.content is iterable %}
        {{- '<|h|>ipython<|/h|>\\n\\n' + message.content | tojson + '<|t|>' }}
    {%- endif %}
{%- endfor %}""",
    "tools in brackets, calls with an id": """\
{{ bos_token }}{% for message in messages %}
{%- if message.role == 'user' %}
{%- if loop.last and tools %}[TOOLS] [{% for tool in tools %}{% set tool = tool.function %}
{{- '{"name": ' + tool.name | tojson }}{% for key, value in tool.items() if key != 'name' %}
{{- ', "' + key + '": ' + (value | tojson) }}{% endfor %}{{ '}' }}
{%- if not loop.last %}, {% endif %}{% endfor %}][/TOOLS]{% endif %}
{{- '[I] ' + message.content + '[/I]' }}
{%- elif message.tool_calls is defined and message.tool_calls is not none %}[CALLS] [
{%- for call in message.tool_calls %}
{%- if not call.id is defined or call.id | length != 9 %}{{ raise_exception('ids have 9 letters') }}{% endif %}
{{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}{% endfor %}]{{ eos_token }}
{%- elif message.role == 'tool' %}[RESULT] {{ message.content | string }}[/RESULT]
{%- elif message.role == 'assistant' %}{{ ' ' + message.content + eos_token }}
{%- endif %}{% endfor %}""",
    "a model's turns, and no system": """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system turn') }}{% endif %}\
{% for message in messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}\
{% set role = message['role'] %}{% endif %}{{ '<turn>' + role + '\n' + message['content'] | trim + '</turn>\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}""",
    "words before each turn": """\
{% for m in messages %}\
{{ {'system': '', 'user': 'USER: ', 'assistant': 'ASSISTANT: '}.get(m.role, m.role ~ '? ') }}\
{{ m.content }}{{ eos_token if m.role == 'assistant' else '' }}{{ ' ' if not loop.last }}{% endfor %}\
{{ ' ASSISTANT:' if add_generation_prompt }}""",
    "an instruction and its response": """\
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{%- for message in messages %}
{% if message.role == 'user' %}
### Instruction:
{{ message.content | trim }}

{% elif message.role == 'assistant' %}
### Response:
{{ message.content }}{{ eos_token }}

{% endif %}
{% endfor %}
{% if add_generation_prompt and messages[-1].role != 'assistant' %}
### Response:
{% endif %}""",
    "signatures between marks": """\
{%- if tools %}
    {{- '<|b|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|e|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|b|>system\\n' + messages[0].content + '<|e|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|b|>' + message.role + '\\n' + message.content + '<|e|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|b|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}{{- '}\\n</call>' }}
        {%- endfor %}
        {{- '<|e|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem is not defined or loop.previtem.role != "tool" %}{{- '<|b|>user' }}{%- endif %}
        {{- '\\n<answer>\\n' }}{{- message.content }}{{- '\\n</answer>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|e|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|b|>assistant\\n' }}{%- endif %}""",
    "thoughts of earlier turns left out": """\
{%- set ns = namespace(multi=true, last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and message.content is string and \
not(message.content.startswith('<a>')) %}
        {%- set ns.multi = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- set thought = '' %}
    {%- if message.reasoning_content is string %}{%- set thought = message.reasoning_content %}
    {%- elif '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|b|>' + message.role + '\\n' }}
    {%- if loop.index0 > ns.last or thought %}{{- '<think>' + thought.strip('\\n') + '</think>' }}{%- endif %}
    {{- content.lstrip('\\n') + '<|e|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|b|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}\
{%- endif %}
{%- endif %}""",
    "state in a namespace": """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\
{% set ns = namespace(is_first=false, is_tool=false, system='') %}\
{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system = message['content'] %}\
{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}\
{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}\
{{ '<U>' + message['content'] }}{%- endif %}\
{%- if message['role'] == 'assistant' and message['content'] is not none and message['content'] is defined %}\
{% set content = message['content'] %}{% if '</think>' in content %}\
{% set content = content.split('</think>')[-1] %}\
{% endif %}{{ '<A>' + content + eos_token }}{%- endif %}\
{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{{ '<O>' + message['content'] + '</O>' }}\
{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{ '<A>' }}{% endif %}""",
    "documents to be cited": """\
{{ bos_token }}{% if documents %}<S>Documents:
{% for document in documents %}
{{ loop.index0 }}: {{ document.title | upper }}
{% for key, value in document.items() %}
  {{ key }} = {{ value }}
{% endfor %}
{% endfor %}
{% endif %}
{%- for message in messages if message.role in ('user', 'assistant') %}
<{{ message.role[0] | upper }}>{{ message.content }}
{% endfor %}""",
    "documents and today": """\
{%- set today = strftime_now('%B %d, %Y') %}
{%- if documents %}{% set mode = 'documents' %}{% elif tools %}{% set mode = 'tools' %}{% else %}\
{% set mode = 'plain' %}{% endif %}
{{- '<|r|>system<|/r|>' + mode + ' ' + today + '<|e|>\\n' }}
{%- if documents %}{{- '<|r|>documents<|/r|>' }}
{%- for d in documents %}{{- '\\nDocument ' + (loop.index | string) + '\\n' + d['text'] }}{%- endfor %}{%- endif %}
{%- for m in messages %}{{- '<|r|>' + m['role'] + '<|/r|>' + m['content'] + '<|e|>\\n' }}{%- endfor %}""",
    "what the assistant said is marked": """\
{% for message in messages %}
{% if message.role == 'assistant' %}
<|b|>assistant
{% generation %}{{ message.content }}<|e|>
{% endgeneration %}
{% else %}
<|b|>{{ message.role }}
{{ message.content }}<|e|>
{% endif %}
{% endfor %}""",
    "marks that cut spaces, and what is set inside": """\
{%- set seen = 'no' -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {%- generation -%}
      {%- set seen = 'yes' -%}
      {%- for call in message.tool_calls or [] -%}({{ call.function.name }}){%- endfor -%}
      {{- message.content or '-' -}}
    {%- endgeneration -%}
  {%- else -%} {{ message.content }} {%- endif -%}
  |{{ seen }}|
{%- endfor -%}""",
    "loops that are left": """\
{% for message in messages %}{% if message.role == 'system' %}{% continue %}{% endif %}\
{% for part in (message.content or '').split(' ') %}{% if part == 'in' %}{% break %}{% endif %}[{{ part }}]\
{% endfor %}\
{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}""",
    "types written by a macro": """\
{%- macro kind(spec) -%}
{%- if spec.type == 'array' -%}List[{{ kind(spec['items']) }}]
{%- elif spec.type == 'object' -%}Dict{{ '{' }}
{%- for name, inner in spec.properties | dictsort -%}{{ name }}: {{ kind(inner) }}{{ ', ' if not loop.last }}\
{%- endfor -%}}
{%- else -%}{{ {'string': 'str', 'integer': 'int'}[spec.type] }}{%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] -%}def {{ tool.function.name }}({{ kind(tool.function.parameters) }}){{ '\\n' }}\
{%- endfor -%}
{%- for m in messages -%}{{ m.role | title }}: {{ (m.content or '') | replace('\\n', ' ') | trim }}{{ '\\n' }}\
{%- endfor -%}""",
    "special tokens by every name": """\
{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}{{ sep_token }}
{%- if cls_token is defined %}{{ cls_token }}{% else %}no cls{% endif %}
{%- if mask_token is defined %}mask{% endif %}
{%- for m in messages %}{{ pad_token }}{{ m.content }}{{ eos_token if loop.last else sep_token }}{% endfor %}""",
    "json in every spelling": """\
{{ (tools or [{}])[0] | tojson(indent=2, sort_keys=true) }}
{{ messages[0] | tojson(ensure_ascii=true) }}{{ messages[0] | tojson(separators=(',', ':')) }}
{{ messages | map(attribute='role') | list | tojson }}{{ "<a & 'b'>" | tojson }}{{ none | tojson }}\
{{ 1.5 | tojson }}""",
    "content in parts": """\
{% for message in messages %}<{{ message.role }}>{% if message.content is string %}{{ message.content }}\
{% elif message.content is iterable %}{% for part in message.content %}{% if part.type == 'image' %}<image>\
{% elif part.type == 'text' %}{{ part['text'] | trim }} {% endif %}{% endfor %}{% endif %}{% endfor %}""",
    "filters and tests": """\
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | select('string') | join(' / ') }}
{{ messages | length }}{{ (messages | first).role }}{{ (messages | last).role }}\
{{ messages | rejectattr('content') | list | length }}
{%- set a = dict(one=1, two=2) %}{{ a.items() | list }}{{ a | length }}{{ range(3) | list }}{{ 7 // 2 }}\
{{ 'x' * 3 }}{{ 2 ** 5 }}
{{ 'a,b' .split(',') }}{{ 'abc'[1:] }}{{ messages[0].content | default('none') | capitalize }}{{ [1, 2] + [3] }}""",
    "channels": """\
{%- for message in messages %}
{%- if message.thinking %}<|s|>assistant<|c|>analysis<|m|>{{ message.thinking }}<|e|>{% endif %}
{%- if message.tool_calls %}
{%- for call in message.tool_calls %}<|s|>assistant to={{ call.function.name }}<|c|>commentary<|m|>\
{{ call.function.arguments | tojson }}{% endfor %}
{%- else %}<|s|>{{ message.role }}<|c|>final<|m|>{{ message.content }}<|e|>{% endif %}
{%- endfor %}{% if add_generation_prompt %}<|s|>assistant{% endif %}""",
    "an attribute that is not there": "{{ messages[0].nothing }}{{ messages[0].nothing.more }}",
    "a call of what is none": "{{ messages[0].content() }}",
    "an addition of what cannot be added": "{{ 'x' + messages }}",
    "an index beyond the end": "{{ messages[17].content }}",
}
