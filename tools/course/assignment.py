"""What an assignment is made of (examples/course/NN_name/assignment.toml).

  title, chapter, minutes   for the list; the chapter is a page of docs/
  source                    the solution, from the root. It is also the file of the student, with some bodies emptied
  preset                    the build that has the grader: release, unless the assignment is about CUDA kernels
  counted                   whether a second program counts accesses to memory
  measured                  whether the grader compares with the output of the solution for --measure
  empty                     the functions whose bodies are left to the student, and a line that says what each does
  points                    the tests of the grader, and "compiles"
  hints                     from the idea to the place
  wrong                     wrong solutions, at least three: a title, text to find and replace in the solution, and a part of the
                            line that check prints
"""
import functools
import pathlib
import re
import sys
import tomllib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Assignment(NamedTuple):
    number: int
    folder: pathlib.Path
    title: str
    chapter: str
    minutes: int
    source: str
    empty: dict
    points: dict
    hints: list
    wrong: list
    preset: str = "release"
    measured: bool = False
    counted: bool = False

    @property
    def programs(self):
        """The graders: targets of the build are course_NAME, and programs are bin/course/NAME."""
        return [str(self.number)] + ([f"{self.number}_counted"] if self.counted else [])

    @property
    def file(self):
        """The name of the student's file."""
        return pathlib.PurePath(self.source).name

    def task(self):
        """The page for the student."""
        functions = "".join(f"- `{name}`: {todo}\n" for name, todo in self.empty.items())
        tests = "".join(f"| {test} | {points} |\n" for test, points in self.points.items())
        text = (self.folder / "task.md").read_text(encoding="utf-8")
        return (f"# Assignment {self.number}: {self.title}\n\n{text}\nComplete in `{self.file}`:\n\n{functions}\n"
                f"Chapter: docs/{self.chapter}.md. Time: about {self.minutes} minutes.\n\n"
                "    tools/course.py check DIR    # this folder\n"
                f"    tools/course.py hint {self.number}\n\n| test | points |\n|---|---|\n{tests}")

    def solution(self):
        return (ROOT / self.source).read_text(encoding="utf-8")

    def start(self):
        text = self.solution()
        for function, todo in self.empty.items():
            text = emptied(text, function, todo)
        return text

    def wrong_text(self, wrong):
        text = self.solution()
        if text.count(wrong["find"]) != 1:
            sys.exit(f"course.py: the wrong solution '{wrong['title']}' does not fit {self.source}")
        return text.replace(wrong["find"], wrong["replace"])


def emptied(text, function, todo):
    """The C++ text with a line of comment in place of the function's body, which returns a value of its type."""
    places = list(re.finditer(rf"^[^\n/]*\b{re.escape(function)}\([^;{{]*\{{", text, re.M))
    if len(places) != 1:
        sys.exit(f"course.py: there are {len(places)} functions {function} to empty; expected one")
    head = places[0]
    depth, end = 1, head.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    indent = re.match(" *", head[0])[0]
    value = "" if re.search(r"\bvoid\b.*\b" + re.escape(function), head[0], re.S) else f"{indent}  return {{}};\n"
    return f"{text[:head.end()]}\n{indent}  // TODO: {todo}\n{value}{indent}}}{text[end:]}"


@functools.cache
def assignments():
    found = []
    for path in sorted((ROOT / "examples/course").glob("*/assignment.toml")):
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        found.append(Assignment(number=int(path.parent.name.split("_")[0]), folder=path.parent, **values))
    return found
