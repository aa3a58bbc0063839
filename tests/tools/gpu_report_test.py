#!/usr/bin/env python3
"""gpu_report.py prints clocks and power next to the steps, and for each part of on_gpu.sh."""
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/bench"))
import gpu_report  # noqa: E402

STEP = {"model": "gpt2", "step_ms": 29.8, "forward_ms": 12.9, "backward_ms": 15.1, "optimizer_ms": 1.2,
        "tokens_per_second": 549_755, "mfu": 0.443, "ratio": 0.65,
        "config": {"data.batch_size": "16", "data.sequence_length": "1024", "kernels.attention": "tessera",
                   "runtime.graph": "false", "kernels.cublaslt": "suggested"}}


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = Path(folder.name)

    def printed(self, function):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            function(self.results)
        return text.getvalue()

    def step(self, **entries):
        (self.results / "step_gpt2_tessera.json").write_text(json.dumps(STEP | entries))
        heads, _, row = self.printed(gpu_report.print_steps).split("\n")[:3]
        self.assertEqual(heads.count("|"), row.count("|"))
        return row

    def test_a_step_has_its_clock_power_and_energy(self):
        row = self.step(sustained={"step_ms": 31.25, "mfu": 0.4219, "samples": 90, "sm_mhz": 1635.2, "watts": 698.4,
                                   "joules_per_token": 0.001332, "clock_event_reasons": {"sw_power_cap": 0.98}})
        self.assertIn("| 31.2 | 0.422 | 1635 | 698 | 1.33 | sw_power_cap 0.98 | 0.65 |", row)

    def test_a_step_without_samples_leaves_them_out(self):
        self.assertIn("| 31.2 | - | - | - | - | - | 0.65 |",
                      self.step(sustained={"step_ms": 31.25, "mfu": None, "samples": 0, "reason": "no GPU"}))
        self.assertIn("| 0.443 |  |  |  |  |  |  | 0.65 |", self.step())

    def test_a_part_has_the_means_of_its_samples_with_work(self):
        (self.results / "step.gpu.csv").write_text(
            "345, 80.10, 0x0000000000000001, 2619, 31\n"
            "1980, 500.00, 0x0000000000000000, 2619, 44\n"
            "1600, 700.00, 0x0000000000000004, 2619, 60\n"
            "[N/A], 700.00, 0x0000000000000004, 2619, 60\n"
            "1570, 699")
        (self.results / "nccl.gpu.csv").write_text("No devices were found\n")
        self.assertIn("| step | 2 | 1790 | 600 | 700 | power 0.50 |", self.printed(gpu_report.print_clocks))
        self.assertNotIn("nccl", self.printed(gpu_report.print_clocks))


if __name__ == "__main__":
    unittest.main()
