#!/usr/bin/env python3
"""python_module_test.py [TESSERA]: the module tessera trains, predicts and computes as the program does.

Without an argument it tests the installed module and program.
"""
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

SOURCES = Path(__file__).resolve().parents[2] / "tools/python"
if len(sys.argv) > 1:
    sys.path.insert(0, str(SOURCES))
import tessera  # noqa: E402

if len(sys.argv) > 1:
    tessera.program = os.path.abspath(sys.argv.pop(1))

SIZES = {"model": {"preset": "gpt2-mini", "layers": 1, "width": 16, "heads": 2, "vocab_size": 32, "context": 16},
         "data": {"train": "synthetic:copy", "sequence_length": 16, "batch_size": 4},
         "optimizer": {"schedule": "constant"}, "runtime": {"threads": 1},
         "train": {"steps": 3, "log_every": 1}}
# A run that ends only when it is stopped.
FOREVER = {"steps": 10**9, "checkpoint_every": 0}
# Trains forever below the folder sys.argv[1], and says how that ended.
CHILD = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test in the background of a shell ignores it
sys.path[:0] = {sys.path[:1]!r}
import tessera
tessera.program = {tessera.program!r}
try:
    tessera.train({SIZES!r}, train={FOREVER | {"log_every": 100}!r}, progress=False, **{{"train.dir": sys.argv[1]}})
except KeyboardInterrupt:
    print("KeyboardInterrupt")
"""


def wait_for(condition):
    """The deadline only ends a test that would never end."""
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("the awaited state did not come in two minutes")
        time.sleep(0.02)


def run_program(*arguments):
    words = [tessera._find_program(), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


class ModuleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def train(self, name, **sections):
        keys = {"train.dir": self.folder / name} | sections
        return tessera.train(SIZES, progress=False, **keys)

    def text_model(self):
        """A run whose tokens are characters."""
        (self.folder / "text.txt").write_text("What is a tensor? A tensor is an array. " * 50)
        run_program("prepare", "--input", self.folder / "text.txt", "--tokenizer", "chars", "--out",
                    self.folder / "data")
        return self.train("text", data={"train": self.folder / "data/train.bin"}, model={"vocab_size": 0})["dir"]

    # ---- train

    def test_a_run_has_the_losses_of_the_program(self):
        run = self.train("module", train={"steps": 4})
        settings = [f"{key}={value}" for key, value in tessera._flat(SIZES).items()]
        run_program("train", os.devnull, *settings, "train.steps=4", f"train.dir={self.folder / 'program'}")
        expected = map(json.loads, (self.folder / "program/metrics.jsonl").read_text().splitlines())
        expected = [line["loss"] for line in expected if "event" not in line]
        self.assertEqual(run["metrics"]["loss"].tolist(), expected)
        self.assertEqual(run["metrics"]["step"].tolist(), [1, 2, 3, 4])
        self.assertEqual(run["dir"], str(self.folder / "module"))
        self.assertEqual(run["model"], str(self.folder / "module/model"))
        self.assertTrue(os.path.isfile(self.folder / "module/model/model.safetensors"))

    def test_sections_come_after_overrides_and_overrides_after_the_file(self):
        file = self.folder / "run.yaml"
        file.write_text(json.dumps(SIZES))
        run = tessera.train(file, {"train.steps": 5, "optimizer": {"learning_rate": 0.25, "beta1": 0.5}},
                            optimizer={"learning_rate": 0.125}, progress=False,
                            train={"dir": self.folder / "run", "measure_matmul_rate": False})
        self.assertEqual(len(run["metrics"]["step"]), 5)
        self.assertEqual(run["metrics"]["learning_rate"].tolist(), [0.125] * 5)
        config = (self.folder / "run/config.yaml").read_text()
        self.assertIn("beta1: 0.5", config)
        self.assertIn("width: 16", config)

    def test_an_error_is_the_one_line_of_the_program(self):
        with self.assertRaises(tessera.Error) as raised:
            self.train("bad", train={"stepz": 4})
        self.assertEqual(str(raised.exception),
                         "command line: unknown key 'train.stepz'; did you mean 'train.steps'?")
        with self.assertRaisesRegex(tessera.Error, "^.*none.yaml: there is no such file"):
            tessera.train(self.folder / "none.yaml")
        with self.assertRaisesRegex(tessera.Error, "nodes"):
            tessera.plan("gpt2", nodes=-1)

    def test_a_complete_run_is_returned_again(self):
        first = self.train("run", train={"checkpoint_every": 1})
        self.assertEqual(self.train("run", train={"checkpoint_every": 1})["metrics"]["loss"].tolist(),
                         first["metrics"]["loss"].tolist())

    # ---- Progress

    def printed(self, is_terminal):
        output = io.StringIO()
        output.isatty = lambda: is_terminal
        with contextlib.redirect_stdout(output):
            tessera.train(SIZES, train={"dir": self.folder / f"run{is_terminal}"})
        return output.getvalue()

    def test_on_a_terminal_a_line_of_a_step_replaces_the_one_before(self):
        output = self.printed(True)
        self.assertEqual(output.count("\r"), 2)
        steps = [line for line in output.split("\n") if "/3 " in line]
        self.assertEqual(len(steps), 1)
        self.assertRegex(steps[0], r" 1/3 .*\r.* 2/3 .*\r.* 3/3 ")
        self.assertRegex(output, r"(?m)^\d\d:\d\d:\d\d  3 steps in ")

    def test_in_a_file_every_line_stays(self):
        output = self.printed(False)
        self.assertNotIn("\r", output)
        self.assertEqual(len([line for line in output.split("\n") if "/3 " in line]), 3)

    # ---- Stopping

    def start_child(self):
        """A Python that trains forever, after the first line of its metrics."""
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(self.folder / "run")], stdout=subprocess.PIPE,
                                 text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        metrics = self.folder / "run/metrics.jsonl"
        wait_for(lambda: metrics.exists() and '"loss"' in metrics.read_text())
        return child

    def check_run_continues(self):
        """The stopped run goes on for two steps, with the bits of a run that was not stopped."""
        checkpoint, = (self.folder / "run").glob("step-*")
        step = int(checkpoint.name.split("-")[1])
        longer = {"steps": step + 2, "log_every": 1, "checkpoint_every": 0}
        continued = self.train("run", train=longer)["metrics"]
        whole = self.train("whole", train=longer | {"log_every": step + 2})["metrics"]
        self.assertEqual(continued["step"][-2:].tolist(), [step + 1, step + 2])
        self.assertEqual(continued["loss"][-1], whole["loss"][-1])

    def test_ctrl_c_stops_the_run_with_a_checkpoint(self):
        child = self.start_child()
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.communicate(timeout=120)[0], "KeyboardInterrupt\n")
        self.assertEqual(child.returncode, 0)
        self.check_run_continues()

    def test_a_terminal_does_not_send_ctrl_c_to_the_program_a_second_time(self):
        """A second one would end it without a checkpoint. Terminals send to processes of their session."""
        script = self.folder / "program"
        script.write_text("#!/bin/sh\necho {\\\"session\\\": $(ps -o sid= -p $$)}\n")
        script.chmod(0o755)
        with mock.patch("tessera.program", script):
            self.assertNotEqual(tessera.plan("gpt2")["session"], os.getsid(0))

    def test_a_killed_python_stops_the_run_with_a_checkpoint(self):
        child = self.start_child()
        child.kill()
        child.wait()
        wait_for(lambda: any(self.folder.glob("run/step-*/manifest.json")))
        wait_for(lambda: not subprocess.run(["pgrep", "--full", str(self.folder / "run")],
                                            stdout=subprocess.DEVNULL, check=False).returncode == 0)
        self.check_run_continues()

    # ---- plan

    def test_plan_is_what_the_program_prints(self):
        self.assertEqual(tessera.plan("gpt2", {"data.batch_size": 16}, ranks=8, machine="h100"),
                         json.loads(run_program("plan", "gpt2", "data.batch_size=16", "--ranks", "8", "--machine",
                                                "h100", "--json")))
        plans = tessera.plan(SIZES, ranks=[1, 4], sharding={"strategy": "zero3"})["plans"]
        self.assertEqual([one["ranks"] for one in plans], [1, 4])

    # ---- generate and score

    def test_generate_continues_texts_and_ids(self):
        model = self.text_model()
        texts = tessera.generate(model, ["What is", "A tensor"], tokens=6, temperature=0.5, seed=3)
        printed = run_program("generate", "--model", model, "--prompt", "What is", "--tokens", 6, "--temperature",
                              0.5, "--seed", 3)
        self.assertEqual(texts[0]["text"] + "\n", printed)
        self.assertTrue(texts[1]["text"].startswith("A tensor"))
        self.assertEqual(texts[0]["ids"].dtype, np.int32)
        self.assertEqual(len(texts[0]["ids"]), len("What is") + 6)
        again = tessera.generate(model, [texts[0]["ids"][:7]], tokens=6, temperature=0.5, seed=3)
        self.assertEqual(again[0]["ids"].tolist(), texts[0]["ids"].tolist())
        self.assertNotIn("text", again[0])
        self.assertEqual(tessera.generate(model, "What is", tokens=6, temperature=0.5, seed=3)[0]["text"],
                         texts[0]["text"])
        stop = int(texts[0]["ids"][8])
        stopped = tessera.generate(model, "What is", tokens=6, temperature=0.5, seed=3, stop=[stop])[0]
        self.assertLessEqual(len(stopped["ids"]), 9)
        self.assertEqual(stopped["ids"][-1], stop)

    def test_score_has_the_bits_of_generate(self):
        model = self.train("run")["dir"]
        generated = tessera.generate(model, [[1, 2, 3], [4, 5, 6]], tokens=5)
        ids = np.stack([one["ids"] for one in generated])
        scores = tessera.score(model, ids)
        self.assertEqual(scores["log_probabilities"].dtype, np.float32)
        self.assertEqual(scores["log_probabilities"].shape, (2, 7))
        for row, one in zip(scores["log_probabilities"], generated):
            self.assertEqual(one["log_probabilities"].dtype, np.float32)
            self.assertEqual(row[-5:].tobytes(), one["log_probabilities"].tobytes())
        self.assertAlmostEqual(scores["loss"], -scores["log_probabilities"].mean(), places=5)
        with self.assertRaises(TypeError):
            tessera.score(model, [[1.5, 2.0]])

    # ---- load_metrics

    def test_metrics_are_arrays_by_field(self):
        lines = ['{"event": "start", "step": 0, "loss": 9}',
                 '{"step": 1, "loss": 2, "mfu": null, "bytes_sent": 3, "peak_bytes": {"total": 7}, "time": "noon"}',
                 '{"step": 2, "loss": 9, "mfu": null, "bytes_sent": 3, "peak_bytes": {"total": 7}, "time": "one"}',
                 '{"event": "rollback", "step": 1}',
                 '{"step": 2, "loss": 4.5, "mfu": null, "bytes_sent": 3, "peak_bytes": {"total": 8}, "time": "two", '
                 '"val_loss": 0.5, "expert_load": [1.5, 2]}', '{"step": 3, "lo']
        (self.folder / "metrics.jsonl").write_text("\n".join(lines))
        metrics = tessera.load_metrics(self.folder)
        expected = {"step": (np.int64, [1, 2]), "loss": (np.float64, [2, 4.5]), "bytes_sent": (np.float64, [3, 3]),
                    "mfu": (np.float64, [np.nan, np.nan]), "peak_bytes.total": (np.int64, [7, 8]),
                    "val_loss": (np.float64, [np.nan, 0.5]), "expert_load.0": (np.float64, [np.nan, 1.5]),
                    "expert_load.1": (np.float64, [np.nan, 2])}
        self.assertEqual(metrics.pop("time").tolist(), ["noon", "two"])
        self.assertEqual(set(metrics), set(expected))
        for name, (dtype, values) in expected.items():
            self.assertEqual(metrics[name].dtype, dtype, name)
            np.testing.assert_array_equal(metrics[name], values, name)
        with self.assertRaisesRegex(tessera.Error, "name the folder of a run"):
            tessera.load_metrics(self.folder / "none")

    # ---- The program

    def test_the_program_is_looked_for_on_path(self):
        with mock.patch("tessera.program", None), mock.patch("sysconfig.get_path", return_value="/none"), \
                mock.patch.dict(os.environ, {"PATH": str(self.folder)}):
            with self.assertRaisesRegex(tessera.Error, "set tessera.program"):
                tessera.plan("gpt2")
            (self.folder / "tessera").write_text("#!/bin/sh\necho '{\"found\": 1}'\n")
            (self.folder / "tessera").chmod(0o755)
            self.assertEqual(tessera.plan("gpt2"), {"found": 1})


if __name__ == "__main__":
    unittest.main()
