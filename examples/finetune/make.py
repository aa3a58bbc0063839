#!/usr/bin/env python3
"""Writes the files next to it: questions.jsonl, and tokenizer/ with a chat template.

The conversations ask for sums of two digits. The tokenizer is a byte-level BPE of Hugging Face's
library (pip install tokenizers), trained on them, with the special tokens and the template of Llama 3.
"""
import json
import pathlib

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
           "<|eot_id|>"]
WORDS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen " \
        "fifteen sixteen seventeen eighteen".split()
TEMPLATE = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + "
    "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}")


def conversations():
    for a in range(10):
        for b in range(10):
            yield [{"role": "user", "content": f"What is {a} + {b}?"},
                   {"role": "assistant", "content": f"{WORDS[a]} and {WORDS[b]} are {WORDS[a + b]}."}]


def main():
    lines = [json.dumps({"messages": messages}) for messages in conversations()]
    (HERE / "questions.jsonl").write_text("\n".join(lines) + "\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|\s*[\r\n]+|\s+|[^\s\p{L}\p{N}]+"),
                             behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    texts = [message["content"] for messages in conversations() for message in messages]
    texts += ["user assistant system\n\n"] * 20
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    folder = HERE / "tokenizer"
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIAL[0],
         "eos_token": SPECIAL[1], "chat_template": TEMPLATE}, indent=2) + "\n")


if __name__ == "__main__":
    main()
