"""Writes tests/golden/eval/: a small model with a tokenizer, and the scores of lm-eval on the questions there.

The files *.jsonl are a few questions in the formats of the published data sets, written for this project. expected.json
has lm-eval's results: versions, and for each run the task, the number of shots, the metrics of every task and
group, and for every question its prompt, the log-likelihoods of its choices or the generated text, and its scores.

Usage: python tests/golden/eval.py   (README.md says what to install)
"""

import json
import pathlib
import tempfile

import lm_eval
import torch
import transformers
import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).parent / "eval"
TASKS = pathlib.Path(lm_eval.__file__).parent / "tasks"

# The strings that end a generated text, and the most tokens, of the runs that generate.
UNTIL = ["e", "Question:"]
MOST_TOKENS = 24


# A generated text, the right answer, the expression that finds an answer, and options of exact_match.
GSM8K = {"ignore_case": True, "regexes_to_ignore": [",", "\\$", "(?s).*#### ", "\\.$"]}
MATCHES = [
    ("60 * 20\n#### 1,200.", "so\nmany\n#### 1200", "#### (\\-?[0-9\\.\\,]+)", GSM8K),
    ("#### -3 and #### 4", "#### -3", "#### (\\-?[0-9\\.\\,]+)", GSM8K),
    ("the answer is 7", "#### 7", "#### (\\-?[0-9\\.\\,]+)", GSM8K),
    ("It costs $18.", "$18", "(-?[$0-9.,]{2,})|(-?[0-9]+)", GSM8K),
    ("it is 5", "5", "(-?[$0-9.,]{2,})|(-?[0-9]+)", {}),
    ("  Paris ", "Paris", None, {}),
    ("  Paris ", "Paris", "P.*", {}),
    ("ÉLAN", "élan", None, {"ignore_case": True}),
    ("ÉLAN", "élan", None, {}),
    ("It's a [dog]!", "Its a dog", None, {"ignore_punctuation": True}),
    ("room 101", "room 7", None, {"ignore_numbers": True}),
    ("room 101", "room 7", None, {"ignore_punctuation": True, "ignore_case": True}),
    ("x = 2a", "2", "x = ([0-9]*)([a-z]*)", {}),
    ("aaab", "b", None, {"regexes_to_ignore": ["a*"]}),
]


def matches():
    found = []
    for text, right, extract, options in MATCHES:
        answer = text if extract is None else RegexFilter(regex_pattern=extract).apply([[text]], [{}])[0][0]
        score = exact_match_hf_evaluate(predictions=[answer], references=[right], **options)["exact_match"]
        found.append({"text": text, "right": right, "extract": extract or "", "options": options, "answer": answer,
                      "exact_match": float(score)})
    return found


def make_model():
    texts = [path.read_text() for path in sorted(ROOT.glob("*.jsonl")) if not path.stem.startswith("winogrande")]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=400, n_positions=144, n_embd=16, n_layer=2, n_head=2, initializer_range=0.4,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    model.save_pretrained(ROOT / "model")
    fast.save_pretrained(ROOT / "model")
    return model, fast


def local_task(folder, base, name, source, **changes):
    """A task that reads our questions, and is lm-eval's in all else."""
    examples = ROOT / f"{source}_examples.jsonl"
    files = {split: str(ROOT / f"{source}.jsonl") for split in ("test", "validation")}
    files["train"] = str(examples if examples.exists() else ROOT / f"{source}.jsonl")
    task = {"include": str(TASKS / base), "task": name, "dataset_path": "json", "dataset_name": None,
            "dataset_kwargs": {"data_files": files}, "fewshot_split": "train",
            "fewshot_config": {"sampler": "first_n"}, **changes}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(task, sort_keys=False))
    return name


def mmlu(folder):
    names = []
    subjects = dict.fromkeys(json.loads(line)["subject"] for line in (ROOT / "mmlu.jsonl").open())
    for subject in subjects:
        name = local_task(folder, "mmlu/default/_default_template_yaml", f"local_mmlu_{subject}", "mmlu",
                          description="The following are multiple choice questions (with answers) about "
                                      f"{subject.replace('_', ' ')}.\n\n")
        # Only this subject's questions and examples.
        (folder / f"only_{subject}.py").write_text(
            f"def only(dataset):\n    return dataset.filter(lambda row: row['subject'] == '{subject}')\n")
        with (folder / f"{name}.yaml").open("a") as file:
            file.write(f"process_docs: !function only_{subject}.only\n")
        names.append(name)
    group = {"group": "local_mmlu", "task": names, "aggregate_metric_list": [{"metric": "acc", "weight_by_size": True}]}
    (folder / "local_mmlu.yaml").write_text(yaml.safe_dump(group))
    return "local_mmlu"


def number(value):
    return value if value != "N/A" else None


def entry_of(sample):
    entry = {"prompt": sample["arguments"][0][0], "target": str(sample["target"])}
    if isinstance(sample["filtered_resps"][0], str):
        return entry | {"text": sample["resps"][0][0], "extracted": sample["filtered_resps"][0],
                        "exact_match": sample["exact_match"]}
    entry["continuations"] = [continuation for _, continuation in sample["arguments"]]
    if len({context for context, _ in sample["arguments"]}) > 1:  # choices in the context
        entry["contexts"] = [context for context, _ in sample["arguments"]]
    entry["log_likelihoods"] = [value for value, _ in sample["filtered_resps"]]
    return entry | {key: sample[key] for key in ("acc", "acc_norm") if key in sample}


def run(model, tokenizer, folder, task, name, shots):
    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1, device="cpu")
    results = lm_eval.simple_evaluate(model=lm, tasks=[name], num_fewshot=shots, log_samples=True,
                                      task_manager=TaskManager(include_path=str(folder)))
    metrics = {}
    for task_name, values in (results["results"] | results.get("groups", {})).items():
        metrics[task_name.removeprefix("local_")] = {
            key.replace(",none", "").replace(",strict-match", ""): number(value) for key, value in values.items()
            if key.startswith(("acc", "exact")) and "flexible" not in key}
    samples = [entry_of(sample) for of_task in results["samples"].values()
               for sample in sorted(of_task, key=lambda one: one["doc_id"])
               if sample["filter"] in ("none", "strict-match")]
    return {"task": task, "shots": shots, "metrics": metrics, "samples": samples}


def main():
    model, tokenizer = make_model()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        generation = {"until": UNTIL, "max_gen_toks": MOST_TOKENS, "do_sample": False, "temperature": 0.0}
        tasks = {
            "hellaswag": local_task(folder, "hellaswag/hellaswag.yaml", "local_hellaswag", "hellaswag"),
            "arc": local_task(folder, "arc/arc_easy.yaml", "local_arc", "arc"),
            "openbookqa": local_task(folder, "openbookqa/openbookqa.yaml", "local_openbookqa", "openbookqa"),
            "piqa": local_task(folder, "piqa/piqa.yaml", "local_piqa", "piqa"),
            "mmlu": mmlu(folder),
            "winogrande": local_task(folder, "winogrande/default.yaml", "local_winogrande", "winogrande"),
            "gsm8k": local_task(folder, "gsm8k/gsm8k.yaml", "local_gsm8k", "gsm8k", generation_kwargs=generation),
        }
        runs = [("hellaswag", 0), ("arc", 0), ("arc", 2), ("openbookqa", 0), ("piqa", 0), ("mmlu", 0), ("mmlu", 2),
                ("winogrande", 0), ("winogrande", 2), ("gsm8k", 0), ("gsm8k", 1)]
        found = [run(model, tokenizer, folder, task, tasks[task], shots) for task, shots in runs]
    versions = {"lm_eval": lm_eval.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
    (ROOT / "expected.json").write_text(json.dumps({"versions": versions, "matches": matches(), "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
