#!/usr/bin/env python3
"""lab.py: exercises that plant a fault in a copy of the sources, for the reader to find and repair.

  tools/lab.py list            the labs by topic
  tools/lab.py start rNUMBER   a lab on a rung of the ladder: copies the rung to build/rung_lab, plants the
                               fault, and shows what the program prints; it takes seconds
  tools/lab.py start NUMBER    copies the sources to build/lab (build-emulated/lab for faults of kernels),
                               plants the fault, builds one test program and shows it red
  tools/lab.py hint            one hint more, of three
  tools/lab.py check           builds the copy and says whether its test is green, or the rung's line right
  tools/lab.py solution        the fault, line by line
  tools/lab.py show rNUMBER    the lab as its chapter shows it
  tools/lab.py verify [NUMBER... | rungs]   for the authors: each lab's test is green, and red with the fault;
                               each rung with a fault prints what its lab tells

The faults of the numbered labs are in tests/*/planted_faults.py. The stories are in tools/labs/*.toml.
"""
import filecmp
import functools
import importlib.util
import json
import pathlib
import signal
import subprocess
import sys
import tomllib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "tools/labs"))
import planting  # noqa: E402: the path comes first
import rungs  # noqa: E402

STORIES = sorted((ROOT / "tools/labs").glob("[0-9]*.toml"))
STATE = ROOT / "build/lab.json"  # the lab that has been started, and the hints that have been shown
SHOWN_LINES = 40  # of a red test


class Lab(NamedTuple):
    number: int
    topic: str
    fault: str  # its name in a planted_faults.py
    test: str  # the test program without "test_"
    title: str
    symptom: str
    hints: list
    learnt: str
    trace: str = ""  # a strategy: start shows the trace of a step with the fault

    @property
    def name(self):
        return str(self.number)


def read_labs(paths):
    """The labs of the files, numbered from 1."""
    labs = []
    for path in paths:
        story = tomllib.loads(path.read_text(encoding="utf-8"))
        for lab in story["lab"]:
            labs.append(Lab(number=len(labs) + 1, topic=story["topic"], **lab))
    return labs


@functools.cache
def batches():
    """All batches of planted faults."""
    found = []
    for path in sorted((ROOT / "tests").glob("*/planted_faults.py")):
        spec = importlib.util.spec_from_file_location(f"faults_of_{path.parent.name}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += module.BATCHES
    return found


def batch_of(lab):
    """The batch that has the lab's fault."""
    matches = [batch for batch in batches() if lab.fault in batch.faults]
    if len(matches) != 1:
        sys.exit(f"lab.py: {len(matches)} tables of planted faults have '{lab.fault}'; expected one")
    return matches[0]


def copy_for(batch):
    """The reader's copy of the sources, as the batch builds them."""
    return planting.Copy(batch, batch.folder.replace("planted_faults", "lab"))


def plant(copy, fault):
    target = copy.source / fault.path
    target.write_text(target.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")


def run_test(copy, lab):
    """Runs the lab's test program in its copy: whether it is green, and its last lines."""
    program = copy.source / "build/bin" / f"test_{lab.test}"
    try:
        run = subprocess.run([*copy.emulator, program, *copy.selection, "--abort"], capture_output=True, text=True,
                             errors="replace", timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return False, ["The test did not end in 300 seconds."]
    return run.returncode == 0, (run.stdout + run.stderr).splitlines()[-SHOWN_LINES:]


def build(copy, *programs):
    """Builds programs in the copy; ends with the compiler's messages if that fails."""
    if not copy.build(programs):
        messages = copy.log.read_text(encoding="utf-8", errors="replace").splitlines()
        print(*messages[-SHOWN_LINES:], sep="\n")
        sys.exit(f"lab.py: {' '.join(programs)} does not build in {copy.source}")


def print_list(labs):
    topic = None
    for lab in labs:
        if lab.topic != topic:
            topic = lab.topic
            print(f"\n{topic}")
        print(f"  {lab.name:>3}  {lab.title}")
    print("\nRungs of the ladder")
    for lab in rungs.labs():
        print(f"  {lab.name:>3}  {lab.title}")


def print_trace(copy, lab):
    """Prints the marks of a step with the fault, and draws its timeline."""
    build(copy, "trace_step")
    program, trace, picture = (copy.source / name for name in ("build/bin/trace_step", "trace.json", "timeline.svg"))
    marks = subprocess.run([program, lab.trace], capture_output=True, text=True, timeout=60, check=False).stdout
    print(f"\nThe marks of one step of {lab.trace} on rank 0, with the fault:\n")
    print(*(f"    {mark}" for mark in marks.splitlines()), sep="\n")
    subprocess.run([program, lab.trace, trace], timeout=60, check=True)
    subprocess.run([sys.executable, ROOT / "docs/figures/timeline.py", trace, picture], timeout=60, check=True)
    print(f"\nThe timeline of another step: {picture}")


def start(lab):
    if isinstance(lab, rungs.Lab):
        rungs.start(lab)
    else:
        start_in_sources(lab)
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_text(json.dumps({"lab": lab.name, "hints": 0}), encoding="utf-8")


def start_in_sources(lab):
    batch = batch_of(lab)
    copy, fault = copy_for(batch), batch.faults[lab.fault]
    print(f"Lab {lab.number}: {lab.title}\n\n{lab.symptom}\n")
    print(f"Copying the sources to {copy.source} and building test_{lab.test} there ...", flush=True)
    copy.update()
    plant(copy, fault)
    if not copy.configure():
        sys.exit(f"lab.py: the copy cannot be configured; see {copy.log}")
    build(copy, f"test_{lab.test}")
    green, lines = run_test(copy, lab)
    if green:
        sys.exit(f"lab.py: test_{lab.test} does not see the fault of lab {lab.number} on this machine")
    print(*lines, sep="\n")
    if lab.trace:
        print_trace(copy, lab)
    print(f"\nFind the fault in {copy.source} and repair it there. Then: tools/lab.py check, or hint.")


def named(labs):
    """The labs by their names on the command line."""
    return {lab.name: lab for lab in [*labs, *rungs.labs()]}


def started(labs):
    """The lab that has been started, and the state."""
    if not STATE.exists():
        sys.exit("lab.py: no lab has been started; begin with: tools/lab.py start NUMBER")
    state = json.loads(STATE.read_text(encoding="utf-8"))
    return named(labs)[state["lab"]], state


def hint(labs):
    lab, state = started(labs)
    if state["hints"] == len(lab.hints):
        print("There are no more hints; tools/lab.py solution shows the fault.")
        return
    print(f"Hint {state['hints'] + 1} of {len(lab.hints)}: {lab.hints[state['hints']]}")
    STATE.write_text(json.dumps({**state, "hints": state["hints"] + 1}), encoding="utf-8")


def changed_tests(copy):
    """The files of the tests that differ from those of the sources."""
    files = [path for path in (ROOT / "tests").rglob("*") if path.suffix in {".cpp", ".h"}]
    return [path.relative_to(ROOT) for path in files
            if not filecmp.cmp(path, copy.source / path.relative_to(ROOT), shallow=False)]


def check(labs):
    lab, state = started(labs)
    if isinstance(lab, rungs.Lab):
        rungs.check(lab)
    else:
        check_sources(lab)
    print(f"Green, with {state['hints']} hint{'' if state['hints'] == 1 else 's'}.\n\n{lab.learnt}")


def check_sources(lab):
    copy = copy_for(batch_of(lab))
    tests = changed_tests(copy)
    if tests:
        sys.exit(f"lab.py: {tests[0]} is not the test that was red; repair the code, not the test")
    build(copy, f"test_{lab.test}")
    green, lines = run_test(copy, lab)
    if not green:
        print(*lines, sep="\n")
        sys.exit("lab.py: still red")


def solution(labs):
    lab, _ = started(labs)
    if isinstance(lab, rungs.Lab):
        rungs.solution(lab)
        return
    fault = batch_of(lab).faults[lab.fault]
    print(f"{fault.path}: {lab.fault}")
    print(*(f"  with the fault  {line}" for line in fault.new.splitlines()), sep="\n")
    print(*(f"  repaired        {line}" for line in fault.old.splitlines()), sep="\n")


def verify(labs):
    """Whether the labs' tests are green in the sources as they are, and red with each fault. 1 if one is not."""
    failed = sum(not rungs.verify(lab) for lab in labs if isinstance(lab, rungs.Lab))
    by_folder = {}
    for lab in labs:
        if isinstance(lab, rungs.Lab):
            continue
        by_folder.setdefault(batch_of(lab).folder, []).append(lab)
    for together in by_folder.values():
        batch = batch_of(together[0])
        copy = planting.Copy(batch)
        copy.update()
        if not copy.configure():
            sys.exit(f"lab.py: the copy cannot be configured; see {copy.log}")
        build(copy, *sorted({f"test_{lab.test}" for lab in together}))
        green = {lab.test: run_test(copy, lab)[0] for lab in together}
        for lab in together:
            plant(copy, batch_of(lab).faults[lab.fault])
            build(copy, f"test_{lab.test}")
            red = not run_test(copy, lab)[0]
            right = red and green[lab.test]
            failed += not right
            outcome = "red with the fault, green without" if right else f"WRONG: red {red}, green {green[lab.test]}"
            print(f"{lab.number:2}  {lab.title:<42} test_{lab.test}: {outcome}", flush=True)
            copy.update()
    return 1 if failed else 0


def main(arguments):
    labs = read_labs(STORIES)
    known = named(labs)
    names = [lab.name for lab in rungs.labs()] if arguments == ["verify", "rungs"] else arguments[1:]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"lab.py: there is no lab {unknown[0]}: labs are 1 to {len(labs)}, and r1 to r{len(rungs.labs())}; see: "
                 "tools/lab.py list")
    chosen = [known[name] for name in names]
    commands = {"hint": hint, "check": check, "solution": solution}
    match arguments[:1], len(chosen):
        case ["list"], 0:
            print_list(labs)
        case ["start"], 1:
            start(chosen[0])
        case [("hint" | "check" | "solution") as command], 0:
            commands[command](labs)
        case ["show"], 1 if isinstance(chosen[0], rungs.Lab):
            print(rungs.block(chosen[0]))
        case ["verify"], _:
            return verify(chosen or list(known.values()))
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    sys.exit(main(sys.argv[1:]))
