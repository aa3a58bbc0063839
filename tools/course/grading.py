"""Compiles a student's file in place of the solution, runs its grader, and reads the lines "pass TEST" and
"fail TEST: feedback"."""
import functools
import json
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 120  # seconds that a grader may take
LINE = re.compile(r"^(pass|fail) ([^:\n]+)(?:: (.*))?$", re.M)


class Result(NamedTuple):
    test: str
    points: int
    passed: bool
    feedback: str = ""


class Failure(Exception):
    """One line: the file does not compile, or its program does not end as it should."""


@functools.cache
def build_folder(preset):
    """The folder of a preset's build."""
    presets = {one["name"]: one for one in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    folder = pathlib.Path(presets[preset]["binaryDir"].replace("${sourceDir}", str(ROOT)))
    if not (folder / "build.ninja").is_file():
        sys.exit(f"course.py: {folder} has no build; first: cmake --preset {preset}")
    return folder


def build(graded):
    """Builds the solutions of these assignments, with their graders. Says so where programs are missing: it takes time."""
    for preset in sorted({one.preset for one in graded}):
        names = [name for one in graded if one.preset == preset for name in one.programs]
        if not all((build_folder(preset) / "bin/course" / name).exists() for name in names):
            print("building the grader; the first time, with all libraries, this takes 10 to 20 minutes of a core",
                  file=sys.stderr, flush=True)
        targets = [f"course_{name}" for name in names]
        run = subprocess.run(["cmake", "--build", build_folder(preset), "--target", *targets], capture_output=True,
                             text=True, check=False)
        if run.returncode:
            sys.exit(f"{run.stdout[-2000:]}course.py: {' '.join(targets)} does not build in {build_folder(preset)}")


@functools.cache
def commands_of(preset, target, source):
    """The commands that compile the source and link the target."""
    folder = build_folder(preset)
    lines = subprocess.run(["ninja", "-C", folder, "-t", "commands", target], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    found = [line for line in lines if re.search(rf"/{re.escape(pathlib.PurePath(source).name)}\.o\b", line)]
    assert len(found) == 2, f"{target} compiles and links {source} by {len(found)} commands; expected two"
    return found


def compiled(one, file, program):
    """Compiles a file in place of the assignment's source, and links it with the grader of the program's name.

    Warnings stay warnings, whatever the build says: a student's unused variable is no error.
    """
    name = re.escape(pathlib.PurePath(one.source).name)
    for command in commands_of(one.preset, f"course_{program.name}", one.source):
        for old, new in ((rf"\S*/{name}\.o\b", shlex.quote(f"{program}.o")),
                         (rf"\S*/{name}(?=\s|$)", shlex.quote(str(file.resolve()))),
                         (r"-o \S*bin/\S+", f"-o {shlex.quote(str(program))}"),
                         (r" -Werror\b\S*", "")):
            command = re.sub(old, new.replace("\\", r"\\"), command)
        run = subprocess.run(command, shell=True, cwd=build_folder(one.preset), capture_output=True, text=True, check=False)
        if run.returncode:
            errors = [line for line in (run.stdout + run.stderr).splitlines() if "error" in line or "undefined" in line]
            raise Failure((errors or ["the compiler gives no message"])[0])


def output_of(program, arguments):
    """What a grader prints. Raises Failure if it does not end."""
    try:
        run = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False,
                             errors="replace")
    except subprocess.TimeoutExpired:
        raise Failure(f"the program did not end in {LIMIT} seconds: does it wait for something that never happens?") from None
    if run.returncode < 0:
        raise Failure(f"the program ended by {signal.Signals(-run.returncode).name}\n{run.stdout}{run.stderr}")
    return run.stdout + run.stderr


def reason_of(reason, printed, file):
    """Why tests were lost: more than `reason` where the output or the student's file tells it."""
    report = re.search(r"AddressSanitizer: (\S+)", printed)
    if report:
        place = re.search(rf"^ *#\d+ .*?({re.escape(file.name)}:\d+)", printed[report.start():], re.M)
        return f"an access outside of its tensors or arrays, at {place[1] if place else report[1]}"
    if "SIGSEGV" not in reason:
        return reason
    if file.is_file() and "[&]" in file.read_text(encoding="utf-8", errors="replace"):
        return reason + ": queued work runs after its function has returned; name what it keeps in the brackets, not [&]"
    return reason + ": it used an object that is not there; does a pointer, such as that of next(unit), have to be tested?"


def grade(one, file):
    """The results of all tests of an assignment that has been built."""
    output, lost = "", ""
    with tempfile.TemporaryDirectory() as folder:
        for name in one.programs:
            program = pathlib.Path(folder) / name
            try:
                compiled(one, file, program)
            except Failure as failure:
                return [Result(test, points, False, str(failure) if test == "compiles" else "the file does not compile")
                        for test, points in one.points.items()]
            try:
                reference = build_folder(one.preset) / "bin/course" / name
                printed = output_of(program, output_of(reference, ["--measure"]).split() if one.measured else [])
                reason = "the grader ended early: " + (printed.splitlines() or ["it prints nothing"])[-1]
            except Failure as failure:
                reason, _, printed = str(failure).partition("\n")
            lost = lost or reason_of(reason, printed, file)
            output += printed
    outcomes = {test: (word == "pass", feedback) for word, test, feedback in LINE.findall(output)}
    outcomes["compiles"] = (True, "")
    return [Result(test, points, *outcomes.get(test, (False, lost))) for test, points in one.points.items()]


def gradescope(one, results):
    """The results in Gradescope's form: https://gradescope-autograders.readthedocs.io/en/latest/specs/"""
    return {"output": f"Assignment {one.number}: {one.title}",
            "score": sum(result.points for result in results if result.passed),
            "tests": [{"name": result.test, "score": result.points if result.passed else 0, "max_score": result.points,
                       "status": "passed" if result.passed else "failed", "output": result.feedback}
                      for result in results]}
