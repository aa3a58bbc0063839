#!/usr/bin/env python3
"""A lab on a rung is wrong until the rung is repaired, and verify sees a story that is not true.

Compiles a rung in build/. `tools/lab.py verify rungs` compiles all of them.
"""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import lab  # noqa: E402: the path comes first

rungs = lab.rungs


class RungLabsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for module, name, value in [(rungs, "FOLDER", self.folder), (lab, "STATE", self.folder / "lab.json")]:
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_lab(self, *arguments):
        """What lab.py prints, and the message that it ends with or None."""
        with contextlib.redirect_stdout(io.StringIO()) as output:
            try:
                message = lab.main(list(arguments)) or None
            except SystemExit as end:
                message = end.code
        return output.getvalue(), message

    def test_verify_compares_the_line_with_the_story(self):
        story = rungs.labs()[10]
        right = {ranks: rungs.Outcome("5.6 -> 5.1", "abc", 100 * ranks, 7) for ranks in (2, 4)}
        more = {ranks: line._replace(sent=line.sent * 2) for ranks, line in right.items()}
        for found, prints, wrong in [(more, "sent      800", None), (more, "sent      801", 1), (right, "", 1)]:
            with mock.patch.multiple(rungs, labs=lambda prints=prints: [story._replace(prints=prints)],
                                     sound=lambda rung: right, compiled=lambda rung, source: source,
                                     outcomes=lambda program, found=found: found):
                output, failed = self.run_lab("verify", "rungs")
                self.assertEqual(failed, wrong)
                self.assertIn("WRONG" if wrong else "as told", output)

    def test_a_lab_is_wrong_until_it_is_repaired(self):
        story = rungs.labs()[10]  # all its runs print the same
        output, _ = self.run_lab("start", story.name)
        self.assertIn(story.question, output)
        self.assertEqual(self.run_lab("check")[1], "lab.py: still wrong")
        self.assertIn(story.hints[0], self.run_lab("hint")[0])
        self.assertIn(story.find.strip(), self.run_lab("solution")[0])
        file = self.folder / f"{story.rung}.cpp"
        file.write_text("no program")
        self.assertIn("does not compile", self.run_lab("check")[1])
        file.write_text(story.sound_text())
        output, failed = self.run_lab("check")
        self.assertIsNone(failed)
        self.assertIn("Green, with 1 hint.", output)


if __name__ == "__main__":
    unittest.main()
