"""Writes tests/golden/chat/cases.json: conversations as Transformers renders them.

A list with an object for each chat template:

  name       the template's name in Tessera; null: one that Tessera does not know
  template   its text, as it stands in a tokenizer_config.json
  bos, eos   the tokens that it names
  date       the date that it was given, where it names one
  cases      a list of {messages, rendered, whole, answers}. rendered: apply_chat_template(messages,
             tokenize=False, add_generation_prompt=True), or null where the template raises an error.
             whole: the same without the opening of another answer. answers: the bytes in it of the
             assistant's messages, from the opening to the end of the token that ends the turn

The templates are the text parts of the published ones, without tools. Those of the files in shared/ can
be passed on the command line and are compared with ours on the same conversations.

Usage: python tests/golden/chat.py [TOKENIZER_CONFIG.json...]   (README.md says what to install)
"""

import json
import pathlib
import sys

import jinja2
import transformers
from tokenizers import Tokenizer, models

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("
    "'Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}"
    "{% endif %}{% endfor %}")

LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + "
    "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}")

LLAMA3_1 = r"""{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

LLAMA3_2 = LLAMA3_1.replace(
    """    {%- set date_string = "26 Jul 2024" %}
""",
    """    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
""")

LLAMA4 = r"""{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
    {%- set user_supplied_system_message = true %}
{%- else %}
    {%- set system_message = "" %}
    {%- set user_supplied_system_message = false %}
{%- endif %}
{%- if user_supplied_system_message %}
    {{- "<|header_start|>system<|header_end|>\n\n" }}
    {{- system_message }}
    {{- "<|eot|>" }}
{%- endif %}
{%- for message in messages %}
    {{- '<|header_start|>' + message['role'] + '<|header_end|>\n\n' }}
    {{- message['content'] }}
    {{- "<|eot|>" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|header_start|>assistant<|header_end|>\n\n' }}
{%- endif %}
"""

QWEN2_5 = r"""{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- else %}
    {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

QWEN3 = r"""{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
            {%- set reasoning_content = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")

HEADERS = ("<|begin_of_text|>", "<|end_of_text|>")
TEMPLATES = [
    ("llama2", LLAMA2, "<s>", "</s>", None),
    ("llama3", LLAMA3, *HEADERS, None),
    ("llama3.1", LLAMA3_1, *HEADERS, None),
    ("llama3.2", LLAMA3_2, *HEADERS, "05 Nov 2025"),
    ("llama4", LLAMA4, "<|begin_of_text|>", "<|eot|>", None),
    ("qwen2.5", QWEN2_5, None, "<|im_end|>", None),
    ("qwen3", QWEN3, None, "<|im_end|>", None),
    (None, CHATML, None, "<|im_end|>", None),
]

CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "You are terse."), ("user", "What is 2 + 2?")],
    [("system", "  spaces \n"), ("user", "\n\n around \t"), ("assistant", " 4 \n"),
     ("user", "\u3000and \u00a0here\u2003\x1f")],
    [("user", ""), ("assistant", ""), ("user", "x\n\ny")],
    [("user", "a"), ("assistant", "<think>\nlet me see\n</think>\n\n4"), ("user", "why?")],
    [("user", "a"), ("assistant", "<think>\n\nlet me see\n\n</think>\n\n4")],
    [("user", "a"), ("assistant", "no thoughts")],
    [("user", "a"), ("assistant", "<think>x</think>y"), ("assistant", "one</think>two</think>three")],
    [("user", "<tool_response>5</tool_response>"), ("assistant", "five"),
     ("user", "<tool_response>6</tool_response>"), ("assistant", "<think>7</think>six")],
    [("user", "first"), ("assistant", "one"), ("user", "<tool_response>6</tool_response>"),
     ("assistant", "two")],
    [("system", "only the system speaks")],
    [("user", "na\u00efve \u4f60\u597d \U0001f600"), ("assistant", "caf\u00e9"), ("user", "ok")],
    [("assistant", "I begin.")],
    [("user", "one"), ("user", "two")],
    [("user", "one"), ("system", "late"), ("user", "two")],
]


def tokenizer_of(template, bos, eos):
    special = {name: text for name, text in (("bos_token", bos), ("eos_token", eos)) if text}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE({}, [])), **special)
    tokenizer.chat_template = template
    return tokenizer


# The token that ends a turn.
ENDS = {"llama2": "</s>", "llama3": "<|eot_id|>", "llama3.1": "<|eot_id|>",
        "llama3.2": "<|eot_id|>", "llama4": "<|eot|>", "qwen2.5": "<|im_end|>",
        "qwen3": "<|im_end|>", None: "<|im_end|>"}


def answers_of(tokenizer, name, conversation, date):
    """The text without an opening at its end, and the answers' spans in bytes."""
    rendered = render(tokenizer, conversation, date)
    opening = render(tokenizer, [("user", "x")], date)
    opening = opening[opening.rindex("x") + 1:].split(ENDS[name])[-1].removeprefix(
        "\n" if ENDS[name] == "<|im_end|>" else "")
    whole = rendered if name == "llama2" else rendered.removesuffix(opening)
    spans, place = [], 0
    for i, (role, _) in enumerate(conversation):
        if role != "assistant":
            continue
        begin = whole.index(opening, place) + len(opening)
        place = whole.index(ENDS[name], begin) + len(ENDS[name])
        prefix = render(tokenizer, conversation[:i], date) if i else None
        if prefix and whole.startswith(prefix):
            assert name == "llama2" or begin == len(prefix), (name, conversation)
            begin = len(prefix)
        spans.append([len(whole[:begin].encode()), len(whole[:place].encode())])
    return whole, spans


def render(tokenizer, conversation, date):
    messages = [{"role": role, "content": content} for role, content in conversation]
    more = {"date_string": date} if date else {}
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True,
                                             **more)
    except jinja2.exceptions.TemplateError:
        return None


def main(published):
    for path in published:
        config = json.loads(pathlib.Path(path).read_text())
        bos, eos, theirs = config.get("bos_token"), config.get("eos_token"), config["chat_template"]
        names = []
        for name, ours, *_ in TEMPLATES:
            if all(render(tokenizer_of(theirs, bos, eos), c, None) ==
                   render(tokenizer_of(ours, bos, eos), c, None) for c in CONVERSATIONS):
                names.append(name)
        print(f"{path}: renders as {', '.join(names) or 'none of ours'}")
    result = []
    for name, template, bos, eos, date in TEMPLATES:
        tokenizer = tokenizer_of(template, bos, eos)
        cases = []
        for c in CONVERSATIONS:
            messages = [{"role": role, "content": content} for role, content in c]
            cases.append({"messages": messages, "rendered": render(tokenizer, c, date)})
            if cases[-1]["rendered"] is not None:
                cases[-1]["whole"], cases[-1]["answers"] = answers_of(tokenizer, name, c, date)
        result.append({"name": name, "template": template, "bos": bos, "eos": eos, "date": date,
                       "cases": cases})
    folder = pathlib.Path(__file__).parent / "chat"
    folder.mkdir(exist_ok=True)
    content = {"versions": {"transformers": transformers.__version__, "jinja2": jinja2.__version__},
               "templates": result}
    (folder / "cases.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
