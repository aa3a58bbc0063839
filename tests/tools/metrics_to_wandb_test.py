#!/usr/bin/env python3
"""metrics_to_wandb.py sends each step once, with flat names. A stand-in takes the place of wandb."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools/metrics_to_wandb.py"
STAND_IN = """
import json, sys
class Run:
    def log(self, numbers, step): print(json.dumps(["log", step, numbers]), file=sys.stderr)
    def finish(self): print(json.dumps(["finish"]), file=sys.stderr)
def init(**options):
    print(json.dumps(["init", options]), file=sys.stderr)
    return Run()
"""


class SendingTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.run_folder = Path(self.folder.name) / "mine"
        self.run_folder.mkdir()

    def send(self, *lines, wandb=STAND_IN):
        (self.run_folder / "metrics.jsonl").write_text("\n".join(lines))
        (Path(self.folder.name) / "wandb.py").write_text(wandb)
        return subprocess.run([sys.executable, SCRIPT, self.run_folder], capture_output=True, text=True,
                              check=False, env=os.environ | {"PYTHONPATH": self.folder.name})

    def test_steps_are_sent_once_and_flat(self):
        result = self.send('{"event": "start", "step": 0, "ranks": 2}',
                           '{"step": 1, "loss": 2.5, "peak_bytes": {"total": 7}, "expert_load": [1.5]}',
                           '{"step": 2, "loss": 3, "mfu": null, "time": "now"}',
                           '{"event": "rollback", "step": 1}', '{"step": 2, "loss": 4}')
        self.assertEqual(result.returncode, 0, result.stderr)
        calls = [json.loads(line) for line in result.stderr.splitlines()]
        self.assertEqual(calls[0][1]["config"]["ranks"], 2)
        self.assertEqual(calls[0][1]["name"], "mine")
        self.assertEqual(calls[1:], [
            ["log", 1, {"step": 1, "loss": 2.5, "peak_bytes.total": 7, "expert_load.0": 1.5}],
            ["log", 2, {"step": 2, "loss": 4}], ["finish"]])
        self.assertIn("2 steps sent", result.stdout)

    def test_a_line_that_is_being_written_is_skipped(self):
        result = self.send('{"step": 1, "loss": 2.5}', '{"step": 2, "lo')
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("metrics.jsonl:2: skipped", result.stderr)
        self.assertIn("1 steps sent", result.stdout)

    def test_a_missing_file_or_library_is_one_line(self):
        result = self.send(wandb="raise ImportError('none')")
        self.assertEqual(result.returncode, 1)
        self.assertIn("pip install wandb", result.stderr)
        (self.run_folder / "metrics.jsonl").unlink()
        result = subprocess.run([sys.executable, SCRIPT, self.run_folder], capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("name the folder of a run", result.stderr)


if __name__ == "__main__":
    unittest.main()
