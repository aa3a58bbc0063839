#!/usr/bin/env python3
"""Plants faults in the sharding layer, one at a time, and sees the tests turn red.

  tests/sharding/planted_faults.py           builds a copy of the sources below build/planted_faults,
                                             plants each fault there and runs the sharding tests
  tests/sharding/planted_faults.py NAME...   only these
  tests/sharding/planted_faults.py --check   only sees that every fault still fits the sources

A fault is a file, a piece of text that occurs in it exactly once, and what replaces it. A fault that
no test notices is a gap in the tests: the program ends with 1 and names it.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "planted_faults"
TESTS = ["strategy", "order", "delay", "schedule", "partition", "unit", "gradient_norm", "comm"]

FAULTS = {
    "skip a reduction": (
        "sharding/gradient_buckets.cpp",
        "  close(b);\n  reduce(b);",
        "  close(b);\n  if (b != 1) reduce(b);"),
    "let weights go too early": (
        "sharding/gathered_parameters.cpp",
        "if (slot.open || holds(slot, bucket)) return;",
        "if (holds(slot, bucket)) return;\n    const_cast<Slot&>(slot).open = false;"),
    "use weights before they have arrived": (
        "sharding/gathered_parameters.cpp",
        "wait_for_communication(slot.ready);",
        ""),
    "write gradients while they are being reduced": (
        "sharding/gradient_buckets.cpp",
        "wait_for_communication(buffer.released);",
        ""),
    "update from gradients that have not landed": (
        "sharding/gradient_buckets.cpp",
        "if (last && (resources_.exchange != nullptr || offloads(resources_.options))) {",
        "if (false) {"),
    "average where gradients are to be added": (
        "kernels/tree_reduce/cpu.cpp",
        "const auto add = [](float a, float b) { return a + b; };",
        "const auto add = [](float a, float b) { return 0.5f * (a + b); };"),
    "stale weights after a step": (
        "sharding/gathered_parameters.cpp",
        "++generation_;",
        ""),
    "forget to gather updated slices": (
        "sharding/resident_parameters.cpp",
        "const bool slices = resources_.partition.layout() != Layout::whole;",
        "const bool slices = resources_.partition.layout() == Layout::rows;"),
    "drop an empty shard's collective": (
        "sharding/exchange/slices.cpp",
        "ranks_->all_gather(",
        "const Range mine = part_of(bucket.segments.back(), ranks_->size(), ranks_->rank());\n"
        "    if (mine.first >= bucket.offsets.back() + bucket.parameters.back().numel()) return;\n"
        "    ranks_->all_gather("),
    "hsdp without the sum across replicas": (
        "sharding/exchange/slices.cpp",
        "replicas_->all_reduce(",
        "if (false) replicas_->all_reduce("),
    "count the norm once per rank where gradients are whole": (
        "sharding/sharded_strategy.cpp",
        "disjoint ? groups_.shards.get() : nullptr",
        "groups_.replicas.get()"),
    "the norm of this rank's part only": (
        "sharding/gradient_norm.cpp",
        "reduce_over(group, norm.words(), Reduction::sum);",
        ""),
    "tied weights reduced after their first use": (
        "sharding/unit.cpp",
        "if (--unit_.pending_runs_ > 0) return;",
        "--unit_.pending_runs_;"),
    "later micro-batches overwrite the first": (
        "sharding/gradient_buckets.cpp",
        "const bool first = !states_[b].landed;",
        "const bool first = true;"),
    "gradients of unused parameters are left as they were": (
        "sharding/gradient_buckets.cpp",
        "if (parameter.trainable() && !parameter.has_gradient()) parameter.gradient().zero();",
        ""),
    "reduce what is frozen": (
        "sharding/partition.cpp",
        "result.trainable_elements = result.elements;\n"
        "  result.trainable_segments = static_cast<int>(result.segments.size());\n"
        "  append(result, trained, bucket.parameters.size(), layout, shards, owners);",
        "append(result, trained, bucket.parameters.size(), layout, shards, owners);\n"
        "  result.trainable_elements = result.elements;\n"
        "  result.trainable_segments = static_cast<int>(result.segments.size());"),
    "reduce before letting the weights go": (
        "sharding/sharded_strategy.cpp",
        "    parameters_->close(bucket, /*again_in_backward=*/false);\n"
        "    gradients_->complete(bucket);",
        "    gradients_->complete(bucket);\n"
        "    parameters_->close(bucket, /*again_in_backward=*/false);"),
    "prefetch what has just been used": (
        "sharding/sharded_strategy.cpp",
        "const int next = position + direction * ahead;",
        "const int next = position - direction * ahead;"),
    "gather again what a slot still holds": (
        "sharding/gathered_parameters.cpp",
        "if (!holds(slot, b)) gather(b, pass);",
        "if (!slot.open) gather(b, pass);"),
    "sums over ranks in another order": (
        "kernels/tree_reduce/cpu.cpp",
        "std::bit_floor(count - 1)",
        "count - 1"),
    "ceil division that loses the last rows": (
        "sharding/partition.cpp",
        "return (a + b - 1) / b;",
        "return a / b;"),
}


def sources():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def check():
    """Every fault's text occurs exactly once."""
    wrong = []
    for name, (path, old, _) in FAULTS.items():
        occurrences = (ROOT / path).read_text().count(old)
        if occurrences != 1:
            wrong.append(f"{name}: its text occurs {occurrences} times in {path}")
    return wrong


def copy_sources():
    for name in sources():
        target = COPY / "source" / name
        content = (ROOT / name).read_bytes()
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def run(command):
    return subprocess.run(command, cwd=COPY, capture_output=True, text=True)


def build():
    targets = [f"test_sharding_{test}" for test in TESTS]
    return run(["cmake", "--build", "build", "--target", *targets])


def first_red():
    """The first test program that fails, or None."""
    for test in TESTS:
        try:
            outcome = subprocess.run([COPY / "build" / "bin" / f"test_sharding_{test}", "--abort"],
                                     capture_output=True, timeout=300)
        except subprocess.TimeoutExpired:
            return f"{test} (hangs)"
        if outcome.returncode != 0:
            return test
    return None


def noticed(path, old, new):
    """Plants a fault; how it was noticed, or None."""
    target = COPY / "source" / path
    original = target.read_text()
    target.write_text(original.replace(old, new))
    try:
        if build().returncode != 0:
            return "THE COMPILER, so it is no fault"
        return first_red()
    finally:
        target.write_text(original)


def main(arguments):
    wrong = check()
    if wrong or arguments == ["--check"]:
        print("\n".join(wrong) or f"{len(FAULTS)} faults fit the sources")
        return 1 if wrong else 0
    copy_sources()
    configured = run(["cmake", "-S", "source", "-B", "build", "-G", "Ninja",
                      "-DCMAKE_BUILD_TYPE=Release", "-DTESSERA_TESTS=ON"])
    if configured.returncode != 0 or build().returncode != 0 or first_red() is not None:
        print("the tests are red, or do not build, without any fault")
        return 1
    missed = 0
    for name in arguments or FAULTS:
        red = noticed(*FAULTS[name])
        print(f"{name:<58} {'noticed by ' + red if red else 'NOT NOTICED'}", flush=True)
        missed += red is None or red.startswith("THE")
    print(f"{missed} not noticed" if missed else "all noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
