#!/usr/bin/env python3
"""Plants faults in the programs, one at a time, and sees their tests turn red.

  tests/tools/planted_faults.py           builds a copy of the sources below build/planted_faults,
                                          plants each fault there and runs tests that may see it
  tests/tools/planted_faults.py NAME...   only these
  tests/tools/planted_faults.py --check   only sees that every fault still fits the sources

A fault that no test notices is a gap in the tests: the program ends with 1 and names it.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planting

# A file, text that occurs in it exactly once, what replaces it, and the tests that are run.
FAULTS = {
    "evaluation records a graph": (
        "tools/train/session.cpp",
        "  const NoGradient no_gradient;\n",
        "",
        ["session"]),
    "a skipped step advances Adam's bias correction": (
        "tools/train/session.cpp",
        "if (!finite) optimizer_->step_was_skipped();",
        "",
        ["session"]),
    "the clipping threshold grows with the loss scale": (
        "tools/train/session.cpp",
        "{.max_norm = run_.config.optimizer.clip_norm,",
        "{.max_norm = run_.config.optimizer.clip_norm * loss_scale,",
        ["session"]),
    "the learning rate of step s is that of step s + 1": (
        "tools/train/session.cpp",
        "learning_rate_at(run_.schedule, step - 1)",
        "learning_rate_at(run_.schedule, step)",
        ["session"]),
    "the loss is divided by all targets, valid or not": (
        "tools/train/session.cpp",
        "const std::int64_t targets = source.valid_targets(step, 0, run_.config.data.batch_size);",
        "const std::int64_t targets = run_.config.data.batch_size * run_.config.data.sequence_length;",
        ["session"]),
    "the evaluation weights batches by rows": (
        "tools/train/session.cpp",
        "loss.data().item<float>() * static_cast<double>(targets);",
        "loss.data().item<float>() * static_cast<double>(count) * all_targets / rows;",
        ["session"]),
    "plan shows the rank with the least": (
        "tools/plan/plan.cpp",
        "unit.text(static_cast<double>(spread->most))",
        "unit.text(static_cast<double>(spread->least))",
        ["plan"]),
    "plan's total leaves out the slots": (
        "tools/plan/prediction.cpp",
        "one.optimizer + one.communication);",
        "one.optimizer);",
        ["plan"]),
    "export fills files beyond their most bytes": (
        "tools/export/export.cpp",
        "bytes + more > options.file_bytes",
        "bytes > options.file_bytes",
        ["export"]),
    "export drops the tokenizer's token ids": (
        "tools/export/export.cpp",
        "if (original.contains(key)) config[key] = original[key];",
        "if (original.contains(key)) config[key] = nullptr;",
        ["export"]),
    "export writes over a model": (
        "tools/export/export.cpp",
        "  check_empty(options.out);\n",
        "  check_empty(options.out / \"model\");\n",
        ["export"]),
    "overrides of kv_heads are ignored": (
        "tools/train/resolve.cpp",
        "set(\"model.kv_heads\", sizes.kv_heads, config.kv_heads);",
        "",
        ["resolve"]),
    "the optimizer does not learn where a shard begins": (
        "optim/shards.h",
        ".first = shard.first",
        ".first = 0",
        ["optimizer"]),
}

if __name__ == "__main__":
    sys.exit(planting.main(
        sys.argv[1:],
        {name: planting.Fault(path, old, new, [f"test_tools_{test}" for test in tests])
         for name, (path, old, new, tests) in FAULTS.items()},
        folder="build/planted_faults", preset="release"))
