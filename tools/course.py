#!/usr/bin/env python3
"""course.py: assignments that are written by the reader and graded by a program.

  tools/course.py list                    one line an assignment, its number first
  tools/course.py start N --into DIR      writes the task and the file to complete
  tools/course.py check DIR [--json FILE] compiles the file, runs its grader, and prints one line per test; the
                                          status is 0 if all pass. FILE gets the results for Gradescope
  tools/course.py hint N [WHICH]          one hint: the first, or another one
  tools/course.py solution N --into DIR   writes the reference solution
  tools/course.py verify [--sample] [N...]
                                          for the authors: the solution passes, the empty file fails, and each wrong
                                          solution fails with the line that it should. A sample has the solution and
                                          one wrong solution

An assignment is a folder of examples/course/ with assignment.toml, task.md and, unless it is a rung of the ladder, its
solution (tools/course/assignment.py).
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/course"))
from assignment import assignments  # noqa: E402: the path comes first
from grading import build, grade, gradescope  # noqa: E402

RECORD = "assignment.json"  # in the student's folder: which assignment it is


def numbered(number):
    found = [one for one in assignments() if one.number == number]
    if not found:
        sys.exit(f"course.py: there is no assignment {number}; see: tools/course.py list")
    return found[0]


def write(one, text, folder):
    """Writes an assignment with this text of its file to a folder, which is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        sys.exit(f"course.py: {folder} is there already; choose a new folder for --into")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.md").write_text(one.task(), encoding="utf-8")
    (folder / one.file).write_text(text, encoding="utf-8")
    for header in one.folder.glob("*.h"):  # to read: the build has its own
        (folder / header.name).write_text(header.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / RECORD).write_text(json.dumps({"assignment": one.number}) + "\n", encoding="utf-8")


def started(folder):
    """The assignment in a student's folder."""
    record = folder / RECORD
    if not record.is_file():
        sys.exit(f"course.py: {folder} has no {RECORD}; begin with: tools/course.py start N --into {folder}")
    try:
        one = numbered(json.loads(record.read_text(encoding="utf-8"))["assignment"])
    except (ValueError, KeyError, TypeError):
        sys.exit(f"course.py: {record} is damaged; it should be like {{\"assignment\": 7}}")
    if not (folder / one.file).is_file():
        sys.exit(f"course.py: {folder} has no {one.file}, which assignment {one.number} is about")
    return one


def shown(one, results):
    """The results as lines of text."""
    width = max(len(result.test) for result in results)
    lines = []
    for result in results:
        points = f"{result.points if result.passed else 0} of {result.points}"
        lines.append(f"  {'pass' if result.passed else 'fail'}  {result.test:{width}}  {points:>7}\n")
        if not result.passed:
            lines.append(f"        {result.feedback}\n")
    reached = sum(result.points for result in results if result.passed)
    lines.append(f"{one.number} {one.title}: {reached} of {sum(result.points for result in results)} points\n")
    return "".join(lines)


def check(folder, report):
    one = started(folder)
    build([one])
    results = grade(one, folder / one.file)
    print(shown(one, results), end="")
    if report:
        report.write_text(json.dumps(gradescope(one, results), indent=2) + "\n", encoding="utf-8")
    return 0 if all(result.passed for result in results) else 1


def hint(one, which):
    if not 1 <= which <= len(one.hints):
        sys.exit(f"course.py: assignment {one.number} has the hints 1 to {len(one.hints)}")
    print(f"Hint {which} of {len(one.hints)}: {one.hints[which - 1]}")
    if which < len(one.hints):
        print(f"The next one: tools/course.py hint {one.number} {which + 1}")


def verify(one, sample):
    """What the grader says of the solution, the empty file and the wrong solutions: text, and whether it is right.
    A sample has the solution and one of the wrong ones."""
    def results_of(text):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / one.file
            file.write_text(text, encoding="utf-8")
            return grade(one, file)
    def failures(results):
        return [f"{result.test}: {result.feedback}" for result in results if not result.passed]
    cases = [("the solution passes", one.solution(), lambda lines: not lines),
             ("the empty file fails", one.start(), bool)]
    cases += [(wrong["title"], one.wrong_text(wrong), lambda lines, wrong=wrong: any(wrong["expect"] in line for line in lines))
              for wrong in one.wrong]
    if sample:
        cases = [cases[0], cases[2 + one.number % len(one.wrong)]]
    text, right = "", True
    for name, source, accepts in cases:
        results = results_of(source)
        accepted = accepts(failures(results))
        text += f"{one.number:2} {one.title}: {name}: {'as it should' if accepted else 'WRONG'}\n"
        if not accepted:
            text, right = text + shown(one, results), False
    return text, right


def verify_all(chosen, sample):
    """Verifies assignments, one on each core. The status of the program."""
    build(chosen)
    status = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text, right in pool.map(lambda one: verify(one, sample), chosen):
            print(text, end="", flush=True)
            status |= not right
    return status


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="course.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list")
    for name in ("start", "solution"):
        command = commands.add_parser(name)
        command.add_argument("number", type=int, metavar="N")
        command.add_argument("--into", type=pathlib.Path, required=True, metavar="DIR")
    command = commands.add_parser("check")
    command.add_argument("folder", type=pathlib.Path, metavar="DIR")
    command.add_argument("--json", type=pathlib.Path, metavar="FILE")
    command = commands.add_parser("hint")
    command.add_argument("number", type=int, metavar="N")
    command.add_argument("which", type=int, nargs="?", default=1, metavar="WHICH")
    command = commands.add_parser("verify")
    command.add_argument("numbers", type=int, nargs="*", metavar="N")
    command.add_argument("--sample", action="store_true")
    return parser.parse_args(arguments)


def main(arguments):
    asked = parsed(arguments)
    match asked.command:
        case "list":
            for one in assignments():
                print(f"{one.number:2}  {one.title:<40} {one.minutes:3} min  docs/{one.chapter}.md")
        case "start" | "solution":
            one = numbered(asked.number)
            write(one, one.start() if asked.command == "start" else one.solution(), asked.into)
            print(f"{asked.into}: read task.md, complete {one.file}, then: tools/course.py check {asked.into}"
                  if asked.command == "start" else f"{asked.into}/{one.file} has the solution")
        case "check":
            return check(asked.folder, asked.json)
        case "hint":
            hint(numbered(asked.number), asked.which)
        case "verify":
            chosen = [numbered(number) for number in asked.numbers] or assignments()
            return verify_all(chosen, asked.sample)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    sys.exit(main(sys.argv[1:]))
