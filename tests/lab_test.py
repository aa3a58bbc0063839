#!/usr/bin/env python3
"""The labs of tools/labs fit the planted faults and the tests, and tools/lab.py runs one from start to check.

Nothing is compiled here: `tools/lab.py verify` builds every lab with its fault and without it.
"""
import contextlib
import importlib.util
import io
import json
import pathlib
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("lab", ROOT / "tools/lab.py")
lab = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(lab)

LABS = lab.read_labs(lab.STORIES)
PROGRAMS = {f"{path.parent.name}_{path.name.removesuffix('_test.cpp')}" for path in (ROOT / "tests").glob("*/*_test.cpp")}


class StoriesTest(unittest.TestCase):
    def test_there_are_at_least_forty_of_at_least_eight_topics(self):
        self.assertGreaterEqual(len(LABS), 40)
        self.assertGreaterEqual(len({one.topic for one in LABS}), 8)
        self.assertEqual(len({one.fault for one in LABS}), len(LABS))

    def test_each_has_one_planted_fault_that_fits_the_sources(self):
        for one in LABS:
            with self.subTest(lab=one.title):
                fault = lab.batch_of(one).faults[one.fault]
                self.assertEqual(lab.planting.misfits({one.fault: fault}), [])

    def test_each_has_a_test_program_that_may_notice_its_fault(self):
        for one in LABS:
            with self.subTest(lab=one.title):
                tests = [test.split()[0] for test in lab.batch_of(one).faults[one.fault].tests]
                self.assertIn(f"test_{one.test}", tests)
                self.assertIn(one.test, PROGRAMS)

    def test_each_is_told_in_full(self):
        for one in LABS:
            with self.subTest(lab=one.title):
                self.assertEqual(len(set(one.hints)), 3)
                for text in (one.title, one.symptom, one.learnt, *one.hints):
                    self.assertTrue(text.strip())

    def test_the_file_is_named_by_the_second_hint_and_not_before(self):
        for one in LABS:
            with self.subTest(lab=one.title):
                name = pathlib.Path(lab.batch_of(one).faults[one.fault].path).name
                self.assertIn(name, one.hints[1])
                for text in (one.title, one.symptom, one.hints[0]):
                    self.assertNotIn(name, text)

    def test_the_page_has_the_topics_and_their_labs(self):
        page = (ROOT / "docs/labs.md").read_text(encoding="utf-8")
        for topic in {one.topic for one in LABS}:
            numbers = [one.number for one in LABS if one.topic == topic]
            self.assertIn(f"| {topic} | {numbers[0]} to {numbers[-1]} |", page)


class RungStoriesTest(unittest.TestCase):
    def test_there_are_at_least_twelve_each_with_a_fault_that_fits_its_rung(self):
        self.assertGreaterEqual(len(lab.rungs.labs()), 12)
        for one in lab.rungs.labs():
            with self.subTest(lab=one.name):
                self.assertNotEqual(one.text(), one.sound_text())

    def test_each_is_told_in_full(self):
        for one in lab.rungs.labs():
            with self.subTest(lab=one.name):
                self.assertEqual(len(set(one.hints)), 2)
                for text in (one.title, one.symptom, one.question, one.answer, one.learnt, *one.hints):
                    self.assertTrue(text.strip())

    def test_each_stands_in_its_chapter(self):
        for one in lab.rungs.labs():
            with self.subTest(lab=one.name):
                page = (ROOT / f"docs/{one.chapter}.md").read_text(encoding="utf-8")
                self.assertTrue(f"<!-- printed by tools/lab.py show {one.name} -->" in page)


class CopyTest(unittest.TestCase):
    def test_each_lab_has_a_copy_apart_from_that_of_the_planted_faults(self):
        for one in LABS:
            with self.subTest(lab=one.title):
                batch = lab.batch_of(one)
                copy, faults = lab.copy_for(batch), lab.planting.Copy(batch)
                self.assertNotEqual(copy.source, faults.source)
                self.assertEqual(copy.configuration, faults.configuration)

    def test_verify_wants_red_with_the_fault_and_green_without(self):
        for code, outcome in [("wait(); read();", 0), ("wait(); ", 1)]:  # the second is red in any case
            with tempfile.TemporaryDirectory() as folder:
                batch = lab.planting.Batch({"no wait": RunTest.FAULT}, folder, "release")
                file = pathlib.Path(folder) / "code.cpp"
                fakes = {"update": lambda copy, code=code: file.write_text(code), "configure": lambda copy: True,
                         "build": lambda copy, tests: True}
                run = lambda copy, one: (file.read_text() == "wait(); read();", [])
                with mock.patch.multiple(lab.planting.Copy, **fakes), mock.patch.object(lab, "run_test", run), \
                        mock.patch.object(lab, "batches", lambda: [batch]), contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(lab.verify([RunTest.LAB]), outcome)

    def test_a_test_program_runs_in_its_emulator_with_its_selection(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "build/bin/test_code"
            program.parent.mkdir(parents=True)
            program.write_text("exit 3")
            batch = lab.planting.Batch({}, folder, "release", selection=("[cpu]",), emulator=("echo", "by"))
            green, lines = lab.run_test(lab.planting.Copy(batch), RunTest.LAB)
            self.assertTrue(green)
            self.assertEqual(lines, [f"by {program} [cpu] --abort"])


class FakeCopy:
    """A copy of one file, whose test is green if the file has no fault."""

    def __init__(self, folder):
        self.source, self.selection, self.log = folder, (), folder / "build.log"
        self.built = []

    def update(self):
        (self.source / "code.cpp").write_text("wait(); read();")

    def configure(self):
        return True

    def build(self, programs):
        self.built += programs
        return True


class RunTest(unittest.TestCase):
    LAB = lab.Lab(1, "Waits", "no wait", "code", "Too early", "It is wrong sometimes.", ["a", "b", "c"], "Wait.")
    FAULT = lab.planting.Fault("code.cpp", "wait(); ", "", ["test_code"])

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.copy = FakeCopy(pathlib.Path(folder.name))
        batch = lab.planting.Batch({"no wait": self.FAULT}, "build/planted_faults", "release")
        for name, value in [("STATE", self.copy.source / "lab.json"), ("batches", lambda: [batch]),
                            ("copy_for", lambda batch: self.copy), ("changed_tests", lambda copy: []),
                            ("run_test", lambda copy, one: (self.code() == "wait(); read();", ["a red line"]))]:
            patch = mock.patch.object(lab, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def code(self):
        return (self.copy.source / "code.cpp").read_text()

    def output_of(self, function, *arguments):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            function(*arguments)
        return output.getvalue()

    def test_start_plants_the_fault_and_shows_the_red_test(self):
        output = self.output_of(lab.start, self.LAB)
        self.assertEqual(self.code(), "read();")
        self.assertIn("a red line", output)
        self.assertIn("It is wrong sometimes.", output)
        self.assertNotIn("no wait", output)

    def test_hints_come_one_by_one_and_end(self):
        self.output_of(lab.start, self.LAB)
        hints = [self.output_of(lab.hint, [self.LAB]) for _ in range(4)]
        self.assertEqual([text[:9] for text in hints[:3]], ["Hint 1 of", "Hint 2 of", "Hint 3 of"])
        self.assertIn("no more hints", hints[3])

    def test_check_is_red_before_the_repair_and_green_after_it(self):
        self.output_of(lab.start, self.LAB)
        with self.assertRaises(SystemExit):
            self.output_of(lab.check, [self.LAB])
        self.output_of(lab.hint, [self.LAB])
        self.copy.update()
        self.assertIn("Green, with 1 hint.\n\nWait.", self.output_of(lab.check, [self.LAB]))

    def test_a_changed_test_is_no_repair(self):
        self.output_of(lab.start, self.LAB)
        self.copy.update()
        with mock.patch.object(lab, "changed_tests", lambda copy: ["tests/a_test.cpp"]):
            with self.assertRaises(SystemExit):
                self.output_of(lab.check, [self.LAB])

    def test_a_fault_that_the_test_does_not_see_is_no_lab(self):
        with mock.patch.object(lab, "run_test", lambda copy, one: (True, [])):
            with self.assertRaises(SystemExit):
                self.output_of(lab.start, self.LAB)
        self.assertFalse(lab.STATE.exists())

    def test_hint_check_and_solution_need_a_lab(self):
        for command in (lab.hint, lab.check, lab.solution):
            with self.assertRaises(SystemExit):
                command([self.LAB])

    def test_the_solution_has_both_lines(self):
        self.output_of(lab.start, self.LAB)
        output = self.output_of(lab.solution, [self.LAB])
        self.assertIn("repaired        wait(); ", output)
        self.assertEqual(json.loads(lab.STATE.read_text())["lab"], "1")

    def test_arguments_are_checked(self):
        for arguments in (["start", "0"], ["start", "99999"], ["start", "x"]):
            with self.assertRaises(SystemExit):
                lab.main(arguments)
        self.assertIn("tools/lab.py list", self.output_of(lab.main, []))


if __name__ == "__main__":
    unittest.main()
