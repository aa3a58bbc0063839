#!/usr/bin/env python3
"""tools/course.py writes assignments, grades them, and says clearly what is wrong. Compiles a rung in build/.

`tools/course.py verify` grades every solution and every wrong one.
"""
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import course  # noqa: E402: the path comes first, and it adds its own
import assignment  # noqa: E402
import grading  # noqa: E402


def run(*arguments):
    """The status of course.py, and what it prints, with the message that it ends with."""
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(output):
        try:
            status = course.main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
    if isinstance(status, str):
        return 1, output.getvalue() + status
    return status, output.getvalue()


class AssignmentsTest(unittest.TestCase):
    def test_there_are_at_least_fourteen_with_their_own_numbers(self):
        numbers = [one.number for one in course.assignments()]
        self.assertGreaterEqual(len(numbers), 14)
        self.assertEqual(len(numbers), len(set(numbers)))

    def test_each_is_told_in_full(self):
        for one in course.assignments():
            with self.subTest(assignment=one.number):
                self.assertTrue((ROOT / f"docs/{one.chapter}.md").is_file())
                self.assertEqual(len(set(one.hints)), 3)
                self.assertGreaterEqual(len(one.wrong), 3)
                self.assertIn("compiles", one.points)
                self.assertTrue(one.task().strip())

    def test_the_students_file_lacks_what_it_asks_for(self):
        for one in course.assignments():
            with self.subTest(assignment=one.number):
                self.assertEqual(one.start().count("TODO: "), len(one.empty))
                self.assertLess(len(one.start()), len(one.solution()))

    def test_a_body_is_emptied_up_to_its_own_brace(self):
        text = "struct S {\n  int f(int x) const {\n    if (x) { return 1; }\n    return 2;\n  }\n  void g() { h(); }\n};\n"
        self.assertEqual(assignment.emptied(text, "f", "two"),
                         "struct S {\n  int f(int x) const {\n    // TODO: two\n    return {};\n  }\n  void g() { h(); }\n};\n")
        self.assertIn("void g() {\n    // TODO: three\n  }\n", assignment.emptied(text, "g", "three"))
        with self.assertRaisesRegex(SystemExit, "0 functions k"):
            assignment.emptied(text, "k", "none")


class CommandsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_list_has_one_line_an_assignment_its_number_first(self):
        status, output = run("list")
        self.assertEqual(status, 0)
        self.assertEqual([int(line.split()[0]) for line in output.splitlines()], [one.number for one in course.assignments()])

    def test_the_empty_file_fails_and_the_solution_passes(self):
        for command, expected in (("start", 1), ("solution", 0)):
            place, report = self.folder / command, self.folder / f"{command}.json"
            self.assertEqual(run(command, 7, "--into", place)[0], 0)
            self.assertIn("# Assignment 7: FSDP", (place / "task.md").read_text())
            status, output = run("check", place, "--json", report)
            self.assertEqual(status, expected, output)
            results = json.loads(report.read_text())
            self.assertEqual(sum(test["score"] for test in results["tests"]), results["score"])
            self.assertEqual(all(test["status"] == "passed" for test in results["tests"]), status == 0)
            self.assertEqual({test["name"]: test["max_score"] for test in results["tests"]}, course.numbered(7).points)
            self.assertIn(f"7 FSDP: {results['score']} of 14 points", output)

    def test_a_file_that_does_not_compile_says_where(self):
        place = self.folder / "seven"
        run("start", 7, "--into", place)
        (place / "7_fsdp.cpp").write_text("int x = y;\n")
        status, output = run("check", place)
        self.assertEqual(status, 1)
        self.assertIn("7_fsdp.cpp:1:9: error: ‘y’ was not declared in this scope", output)

    def test_a_warning_is_no_error(self):
        strict = [f"{command} -Wall -Werror" for command in grading.commands_of("release", "course_7", "7_fsdp.cpp")]
        file = self.folder / "7_fsdp.cpp"
        file.write_text("void f() { int unused; }\n" + course.numbered(7).solution())
        with mock.patch.object(grading, "commands_of", return_value=strict):
            grading.compiled(course.numbered(7), file, self.folder / "7")

    def test_bad_input_gets_one_line(self):
        (self.folder / "full").mkdir()
        (self.folder / "full/notes.txt").write_text("mine")
        (self.folder / "damaged").mkdir()
        (self.folder / "damaged/assignment.json").write_text("{")
        (self.folder / "empty").mkdir()
        (self.folder / "empty/assignment.json").write_text('{"assignment": 7}')
        for arguments, message in [(("start", 99, "--into", self.folder / "new"), "there is no assignment 99"),
                                   (("start", 7, "--into", self.folder / "full"), "is there already"),
                                   (("check", self.folder / "full"), "has no assignment.json"),
                                   (("check", self.folder / "damaged"), "is damaged"),
                                   (("check", self.folder / "empty"), "has no 7_fsdp.cpp"),
                                   (("hint", 7, 4), "has the hints 1 to 3")]:
            status, output = run(*arguments)
            self.assertEqual(status, 1)
            self.assertIn(message, output)
            self.assertEqual(output.count("\n"), 0)
        self.assertEqual((self.folder / "full/notes.txt").read_text(), "mine")

    def test_the_lines_for_gradescope_grade_a_submission(self):
        page = (ROOT / "docs/teaching.md").read_text(encoding="utf-8")
        lines = page.partition("<!-- tested: a submission is graded by these lines -->\n```sh\n")[2].partition("```")[0]
        self.assertIn("check", lines)
        for name, text in (("solved", course.numbered(7).solution()), ("none", None)):
            container = self.folder / name
            for part in ("submission", "results"):
                (container / part).mkdir(parents=True)
            (container / "tessera").symlink_to(ROOT)
            if text:
                (container / "submission/7_fsdp.cpp").write_text(text)
            subprocess.run(["bash", "-c", lines.replace("/autograder", str(container))], capture_output=True, check=False)
            results = json.loads((container / "results/results.json").read_text())
            self.assertEqual(results["score"] == sum(course.numbered(7).points.values()), text is not None, results)

    def test_headers_of_an_assignment_are_copied_to_read(self):
        run("start", 12, "--into", self.folder / "clock")
        self.assertIn("struct Interval", (self.folder / "clock/clock.h").read_text())

    def test_hints_come_one_by_one(self):
        self.assertIn("Hint 1 of 3", run("hint", 7)[1])
        self.assertIn("Hint 3 of 3", run("hint", 7, 3)[1])

    def test_without_a_build_it_says_what_to_do(self):
        with mock.patch.object(grading, "ROOT", self.folder):
            (self.folder / "CMakePresets.json").write_text(
                json.dumps({"configurePresets": [{"name": "release", "binaryDir": "${sourceDir}/build"}]}))
            with self.assertRaisesRegex(SystemExit, "has no build; first: cmake --preset release"):
                grading.build_folder.__wrapped__("release")


class GradingTest(unittest.TestCase):
    def program(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name) / "program"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return program

    def graded(self, text):
        """The results of an assignment whose program is this shell script."""
        one = course.numbered(7)._replace(measured=False, points={"compiles": 1, "first": 2, "second": 3})
        def fake(assignment_, file, program):
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
        with mock.patch.object(grading, "compiled", fake):
            return {result.test: (result.passed, result.feedback) for result in grading.grade(one, pathlib.Path("x.cpp"))}

    def test_lines_become_results(self):
        results = self.graded("echo 'pass first'; echo 'fail second: it is: too small'")
        self.assertEqual(results, {"compiles": (True, ""), "first": (True, ""), "second": (False, "it is: too small")})

    def test_a_crash_fails_the_tests_that_were_left(self):
        results = self.graded("echo 'pass first'; kill -SEGV $$")
        self.assertEqual(results["first"], (True, ""))
        self.assertEqual(results["second"], (False, "the program ended by SIGSEGV: it used an object that is not there; "
                                                    "does a pointer, such as that of next(unit), have to be tested?"))

    def test_a_crash_in_queued_work_names_its_brackets(self):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.write("stream.enqueue([&] { sum.copy_from(part); });\n")
            file.flush()
            self.assertIn("name what it keeps", grading.reason_of("the program ended by SIGSEGV", "", pathlib.Path(file.name)))

    def test_an_access_outside_has_the_line_of_the_students_file(self):
        report = "==1==ERROR: AddressSanitizer: use-after-poison\n  #0 0x1 in load /e/device.h:7\n  #1 0x2 in k /s/tile.cu:21:9\n"
        self.assertEqual(grading.reason_of("", report, pathlib.Path("/s/tile.cu")),
                         "an access outside of its tensors or arrays, at tile.cu:21")

    def test_a_grader_that_ends_early_fails_the_tests_that_were_left(self):
        self.assertEqual(self.graded("echo 'no memory' >&2")["second"], (False, "the grader ended early: no memory"))

    def test_a_program_that_does_not_end_is_stopped(self):
        with mock.patch.object(grading, "LIMIT", 0.1):
            with self.assertRaisesRegex(grading.Failure, "did not end in 0.1 seconds"):
                grading.output_of(self.program("exec sleep 100"), [])

    def test_verify_wants_the_expected_line(self):
        one = course.numbered(7)
        answers = {one.solution(): [grading.Result("bytes", 1, True)]}
        def fake(assignment_, file):
            return answers.get(file.read_text(), [grading.Result("bytes", 1, False, "another line")])
        with mock.patch.object(course, "grade", fake), mock.patch.object(course, "build"):
            status, output = run("verify", 7)
        self.assertEqual(status, 1)
        self.assertEqual(output.count("as it should"), 2)
        self.assertEqual(output.count("WRONG"), len(one.wrong))


if __name__ == "__main__":
    unittest.main()
