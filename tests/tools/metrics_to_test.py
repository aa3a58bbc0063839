#!/usr/bin/env python3
"""metrics_to.py sends each step once, with flat names, to either client. Stand-ins take the place of wandb and mlflow."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools/metrics_to.py"
WANDB = """
import json, sys
class Run:
    def log(self, numbers, step): print(json.dumps(["log", step, numbers]), file=sys.stderr, flush=True)
    def finish(self): print(json.dumps(["finish"]), file=sys.stderr)
def init(**options):
    print(json.dumps(["init", options]), file=sys.stderr, flush=True)
    return Run()
"""
MLFLOW = """
import json, sys
def said(*words): print(json.dumps(words), file=sys.stderr)
def set_experiment(name): said("experiment", name)
def start_run(run_name, run_id): said("init", {"name": run_name, "id": run_id})
def log_params(params): said("params", params)
def log_metrics(numbers, step): said("log", step, numbers)
def end_run(): said("finish")
"""
WATCH = ('{"event": "watch", "step": 2, "units": ["embedding", "h.0"], "gradient_norm": [0.5, 0.25],'
         ' "attention_logit": [null, 3.5]}')


class SendingTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.run_folder = Path(self.folder.name) / "mine"
        self.run_folder.mkdir()
        self.metrics = self.run_folder / "metrics.jsonl"
        self.environment = os.environ | {"PYTHONPATH": self.folder.name}

    def write_clients(self, wandb=WANDB, mlflow=MLFLOW):
        (Path(self.folder.name) / "wandb.py").write_text(wandb)
        (Path(self.folder.name) / "mlflow.py").write_text(mlflow)

    def send(self, *lines, client="wandb", **clients):
        self.metrics.write_text("\n".join(lines))
        self.write_clients(**clients)
        return subprocess.run([sys.executable, SCRIPT, client, self.run_folder], capture_output=True,
                              text=True, check=False, env=self.environment)

    def test_steps_are_sent_once_and_flat(self):
        for client in ("wandb", "mlflow"):
            with self.subTest(client):
                result = self.send(
                    '{"event": "start", "step": 0, "ranks": 2, "predicted": {"total": 9}}',
                    '{"step": 1, "loss": 2.5, "peak_bytes": {"total": 7}, "expert_load": [1.5]}',
                    '{"step": 2, "loss": 3, "mfu": null, "time": "now"}',
                    '{"event": "rollback", "step": 1}', WATCH, '{"step": 2, "loss": 4}',
                    client=client)
                self.assertEqual(result.returncode, 0, result.stderr)
                calls = [json.loads(line) for line in result.stderr.splitlines()]
                first = 1 if client == "wandb" else 3
                self.assertEqual(calls[first:], [
                    ["log", 1, {"step": 1, "loss": 2.5, "peak_bytes.total": 7, "expert_load.0": 1.5}],
                    ["log", 2, {"step": 2, "loss": 4, "watch.gradient_norm.embedding": 0.5,
                                "watch.gradient_norm.h.0": 0.25, "watch.attention_logit.h.0": 3.5}],
                    ["finish"]])
                self.assertIn("2 steps sent", result.stdout)
                if client == "wandb":
                    self.assertEqual(calls[0][1]["config"]["ranks"], 2)
                    self.assertEqual(calls[0][1]["name"], "mine")
                else:
                    self.assertEqual(calls[0], ["experiment", "tessera"])
                    self.assertEqual(calls[1][1]["name"], "mine")
                    self.assertEqual(calls[2][1], {"event": "start", "step": 0, "ranks": 2})

    def test_a_number_that_is_not_finite_is_no_metric_of_mlflow(self):
        result = self.send('{"step": 1, "loss": 2.5, "peak_bytes": {"total": null}}', client="mlflow")
        calls = [json.loads(line) for line in result.stderr.splitlines()]
        self.assertIn(["log", 1, {"step": 1, "loss": 2.5}], calls)

    def test_a_run_is_followed_until_it_ends(self):
        self.write_clients()
        self.metrics.write_text('{"event": "start", "step": 0, "ranks": 2}\n{"step": 1, "loss": 2.5}\n{"st')
        process = subprocess.Popen([sys.executable, SCRIPT, "wandb", self.run_folder, "--follow"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.environment)
        deadline = threading.Timer(60, process.kill)
        deadline.start()
        self.addCleanup(deadline.cancel)
        first = [json.loads(process.stderr.readline()) for _ in range(2)]
        self.assertEqual(first[0][1]["config"]["ranks"], 2)
        self.assertEqual(first[1], ["log", 1, {"step": 1, "loss": 2.5}])
        with self.metrics.open("a") as file:
            file.write('ep": 2, "loss": 2}\n{"event": "end", "step": 2}\n')
        out, err = process.communicate()
        self.assertEqual([json.loads(line) for line in err.splitlines()],
                         [["log", 2, {"step": 2, "loss": 2}], ["finish"]])
        self.assertIn("2 steps sent", out)

    def test_a_line_that_is_being_written_is_skipped(self):
        result = self.send('{"step": 1, "loss": 2.5}', '{"step": 2, "lo')
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("metrics.jsonl:2: skipped", result.stderr)
        self.assertIn("1 steps sent", result.stdout)

    def test_a_missing_file_or_library_is_one_line(self):
        for client in ("wandb", "mlflow"):
            result = self.send(client=client, **{client: "raise ImportError('none')"})
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"pip install {client}", result.stderr)
        self.metrics.unlink()
        result = subprocess.run([sys.executable, SCRIPT, "wandb", self.run_folder],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("name the folder of a run", result.stderr)


if __name__ == "__main__":
    unittest.main()
