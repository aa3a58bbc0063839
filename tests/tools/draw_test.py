#!/usr/bin/env python3
"""draw.py draws the figures of bench_strategies: bars as long as the bytes, and each row's name and times."""
import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools/bench/draw.py"
PROGRAM = sys.argv.pop(1)
SVG = "{http://www.w3.org/2000/svg}"
PARTS = ["parameters", "gradients", "optimizer", "slots"]


class DrawingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.json = Path(folder.name) / "figures.json"
        self.svg = Path(folder.name) / "figures.svg"

    def draw(self):
        return subprocess.run([sys.executable, SCRIPT, self.json, "--out", self.svg], capture_output=True, text=True,
                              check=False)

    def test_bars_are_in_proportion_to_bytes(self):
        subprocess.run([PROGRAM, "--device", "cpu", "--threads", "1", "--steps", "2", "--rows",
                        "ddp; fsdp dtype=bf16", "--json", self.json], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(self.draw().returncode, 0)
        rows = json.loads(self.json.read_text())["strategies"]
        picture = xml.parse(self.svg).getroot()
        bars = [float(box.get("width")) for box in picture.iter(SVG + "rect") if box.get("height") == "20.0"]
        sizes = [size for row in rows
                 for size in [*(row["memory"][part]["measured"] for part in PARTS), row["activations_bytes"]]]
        self.assertEqual(len(bars), len(sizes))
        scale = sum(bars) / sum(sizes)
        for bar, size in zip(bars, sizes):
            self.assertAlmostEqual(bar, scale * size, delta=0.2)
        self.assertLess(max(map(float, (box.get("x") for box in picture.iter(SVG + "rect") if box.get("x")))), 700)
        texts = [text.text for text in picture.iter(SVG + "text")]
        self.assertIn("fsdp dtype=bf16", texts)
        self.assertIn(f"{rows[1]['step_ms']:.2f} ms, {rows[1]['step_ratio']:.3f}", texts)

    def test_other_files_are_refused_in_one_line(self):
        for text in ("{}", "[]", "no JSON", '{"program": "plan"}'):
            self.json.write_text(text)
            result = self.draw()
            self.assertEqual(result.returncode, 1)
            self.assertEqual(len(result.stderr.splitlines()), 1)
            self.assertIn("bench_strategies --json", result.stderr)


if __name__ == "__main__":
    unittest.main()
