#!/usr/bin/env python3
"""experiments_test.py [TESSERA]: experiments.py trains, continues and compares. A stand-in takes the place of
tessera; with the path of the program one list runs with it."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/experiments/experiments.py"
TESSERA = sys.argv.pop() if len(sys.argv) > 1 else None
# Its loss is its learning rate. It fails if asked to, waits for a signal if asked to, and notes each call.
STAND_IN = """#!{python} -S
import json, pathlib, signal, sys, time
with open({calls!r}, "a") as calls: calls.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "report": sys.exit(0)
keys = dict(word.split("=", 1) for word in sys.argv[3:])
if keys.get("test.fail"): sys.exit("tessera: first line\\ntessera: it cannot be")
run = pathlib.Path(keys["train.dir"])
run.mkdir(parents=True, exist_ok=True)
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
lines = [{{"event": "start", "step": 0}}]
for step, ms in (1, 90), (2, 10), (3, 30):
    lines.append({{"step": step, "loss": float(keys["optimizer.learning_rate"]), "val_loss": step * 1.0 if step > 1 else None,
                  "step_ms": ms * float(keys.get("test.slow", 1)), "tokens_per_second": 5.0, "bytes_sent": 2**21,
                  "peak_bytes": {{"total": 3 * 2**20 + step}}}})
if keys.get("test.wait") and not (run / "waited").exists():
    (run / "waited").touch()
    print("waiting", flush=True)
    while not stopped: time.sleep(0.01)
else:
    lines.append({{"event": "end", "step": 3}})
(run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
"""


class ExperimentsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls_path = self.folder / "calls"
        self.tessera = self.folder / "tessera"
        self.tessera.write_text(STAND_IN.format(python=sys.executable, calls=str(self.calls_path)))
        self.tessera.chmod(0o755)
        self.list = {"config": "a.yaml", "dir": str(self.folder / "runs"), "set": {"optimizer.learning_rate": 2},
                     "runs": {"one": {}, "two": {"optimizer.learning_rate": 0.5}}}

    def command(self, *options):
        path = self.folder / "list.json"
        path.write_text(json.dumps(self.list))
        return [sys.executable, "-S", SCRIPT, path, "--tessera", self.tessera, *options]  # -S: it starts sooner

    def run_list(self, *options):
        return subprocess.run(self.command(*options), capture_output=True, text=True, check=False)

    def calls(self):
        return self.calls_path.read_text().splitlines() if self.calls_path.exists() else []

    def rows(self, output):
        return {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}

    def test_runs_are_trained_once_and_compared_with_the_first(self):
        self.list["runs"]["two"]["sharding.flatten_parameters"] = True
        result = self.run_list()
        self.assertEqual(result.returncode, 0, result.stderr)
        runs = self.list["dir"]
        self.assertEqual(self.calls(), [
            f"train a.yaml optimizer.learning_rate=2 train.dir={runs}/one",
            f"train a.yaml optimizer.learning_rate=0.5 sharding.flatten_parameters=true train.dir={runs}/two",
            f"report {runs}/one {runs}/two --out {runs}/report.html"])
        # The first line's 90 ms do not count: the median of 10 and 30.
        self.assertEqual(self.rows(result.stdout)["one"],
                         ["3", "2.0000", "2.0000", "20.00", "1.000", "5", "3.0", "1.000", "2.00"])
        self.assertEqual(self.rows(result.stdout)["two"][1], "0.5000")
        self.assertEqual(pathlib.Path(runs, "summary.txt").read_text(), "\n".join(result.stdout.splitlines()[3:8]) + "\n")
        self.assertEqual(json.loads(pathlib.Path(runs, "summary.json").read_text())["runs"]["two"]["peak_bytes"],
                         3 * 2**20 + 3)
        again = self.run_list()
        self.assertEqual(again.returncode, 0)
        self.assertIn("one: complete", again.stdout)
        self.assertEqual(len([call for call in self.calls() if call.startswith("train")]), 2)

    def test_other_settings_do_not_pass_for_a_complete_run(self):
        self.run_list()
        self.list["set"]["optimizer.learning_rate"] = 3
        result = self.run_list()
        self.assertEqual(result.returncode, 1)
        self.assertIn("one is complete, with other settings", result.stdout)
        self.assertIn("two: complete", result.stdout)

    def test_ratios_are_to_the_baseline(self):
        self.list["baseline"] = "two"
        self.list["runs"]["one"]["test.slow"] = 3
        result = self.run_list()
        self.assertEqual(self.rows(result.stdout)["one"][4], "3.000")
        self.assertIn("The ratios are to two.", result.stdout)

    def test_a_run_that_fails_is_named_and_the_others_go_on(self):
        self.list["runs"]["one"]["test.fail"] = 1
        result = self.run_list()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.rows(result.stdout)["one"], "tessera: it cannot be".split())
        self.assertEqual(self.rows(result.stdout)["two"][4], "-")  # the baseline has no figures
        del self.list["runs"]["one"]["test.fail"]
        result = self.run_list()
        self.assertEqual(result.returncode, 0)
        self.assertIn("two: complete", result.stdout)

    def test_a_dry_run_prints_commands_and_a_launcher_stands_before_them(self):
        result = self.run_list("--dry-run", "--launcher", "mpirun -np 2")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(self.calls(), [])
        self.assertEqual(result.stdout.splitlines()[0],
                         f"mpirun -np 2 {self.tessera} train a.yaml optimizer.learning_rate=2 runtime.ranks=0 "
                         f"train.dir={self.list['dir']}/one")
        self.assertIn("one  not run yet", self.run_list("--summary").stdout)

    def test_a_signal_ends_the_list_after_the_run_has_saved(self):
        self.list["runs"]["one"]["test.wait"] = 1
        program = subprocess.Popen(self.command(), stdout=subprocess.PIPE, text=True, start_new_session=True)
        for line in program.stdout:
            if line == "waiting\n":
                break
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        output = program.communicate(timeout=240)[0]
        self.assertEqual(program.returncode, 1)
        self.assertIn("it was stopped; run the list again to go on", output)
        self.assertIn("two  not run yet", output)
        result = self.run_list()
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(len([call for call in self.calls() if call.startswith("train")]), 3)

    def test_bad_lists_end_with_one_line(self):
        good = dict(self.list)
        for change, message in [({"run": 1}, "unknown entry 'run'"), ({"config": None}, "'config' is missing"),
                                ({"runs": {}}, "'runs' has no runs"), ({"baseline": "x"}, "'x' is no run"),
                                ({"runs": {"a/b": {}}}, "'a/b' cannot be the name"),
                                ({"runs": {"a": {"train.steps": [1]}}}, "'train.steps' is no key with one value"),
                                ({"set": {"steps": 1}}, "'steps' is no key"), ({"runs": {"a": 3}}, "'a': expected keys"),
                                ({"set": {"train.dir": "x"}}, "'train.dir' is no key")]:
            with self.subTest(message):
                self.list = {**good, **change}
                result = self.run_list()
                self.assertEqual(result.returncode, 1)
                self.assertIn(message, result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1)
        self.assertEqual(self.calls(), [])

    def test_the_list_of_strategies_is_good(self):
        try:
            import yaml  # noqa: F401
        except ImportError:
            self.skipTest("pyyaml is not installed")
        result = subprocess.run([sys.executable, SCRIPT, ROOT / "tools/experiments/strategies.yaml", "--dry-run"],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(result.stdout.splitlines()), 8)

    @unittest.skipIf(TESSERA is None or not pathlib.Path(TESSERA or ".").is_file(), "there is no program tessera")
    def test_with_the_program_itself(self):
        config = self.folder / "tiny.yaml"
        config.write_text("model: {layers: 1, heads: 1, width: 8, context: 16, vocab_size: 11}\n"
                          "data: {train: 'synthetic:uniform', batch_size: 4, sequence_length: 16}\n"
                          "runtime: {device: cpu, ranks: 2, threads: 1}\n"
                          "train: {steps: 3, log_every: 1, eval_every: 0, progress: lines}\n")
        self.list |= {"config": str(config), "set": {},
                      "runs": {name: {"sharding.strategy": name} for name in ("ddp", "fsdp")}}
        self.tessera = TESSERA
        result = self.run_list()
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = self.rows(result.stdout.split("\nrun ")[1])
        self.assertEqual(rows["ddp"][:2], rows["fsdp"][:2])  # steps, and the same loss
        self.assertTrue((self.folder / "runs/report.html").is_file())


if __name__ == "__main__":
    unittest.main()
