#!/usr/bin/env python3
"""torch_parallel.py's figures: medians, ratios of neighbours, differences of losses, and names of parameters."""
import argparse
import contextlib
import io
import pathlib
import sys
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "bench"))
import torch_parallel  # noqa: E402
import torch_ranks  # noqa: E402

OPTIONS = argparse.Namespace(ranks=2, batch=2, sequence=8, rounds=3)


def turn(ms, losses):
    return {"ms": [1000.0, ms, ms], "losses": losses, "peak": 2**20}  # the first step warms up


def compared(our, their):
    """The report and the printed text of turns with these results, in order."""
    text = io.StringIO()
    with mock.patch.object(torch_parallel, "ours", side_effect=our), \
            mock.patch.object(torch_parallel, "torch_ranks", side_effect=their), contextlib.redirect_stdout(text):
        return torch_parallel.compare("tensor", OPTIONS, None, "init", "scratch"), text.getvalue()


class TorchParallelTest(unittest.TestCase):
    def test_a_ratio_is_of_neighbours_in_time(self):
        our = [turn(ms, [4.0, 2.0]) for ms in (10, 100, 20)]
        their = [turn(ms, [4.0, 2.0]) for ms in (20, 150, 60)]
        report, text = compared(our, their)
        self.assertEqual(report["ratio"], 2.0)  # of 2, 1.5 and 3; the medians' is 3
        self.assertEqual(text.splitlines()[0].split()[:4], ["tessera", "tensor", "20.0", "800"])
        self.assertEqual(text.splitlines()[1].split()[-2:], ["2.00", "0.0e+00"])

    def test_the_largest_difference_of_each_step_is_kept(self):
        their = [turn(1, losses) for losses in ([4.0, 2.0], [4.00002, 2.5], [4.0, 1.9])]
        report, _ = compared([turn(1, [4.0, 2.0])] * 3, their)
        self.assertAlmostEqual(report["differ"][0], 5e-6)
        self.assertAlmostEqual(report["differ"][1], 0.25)

    def test_other_first_losses_end_the_run(self):
        with self.assertRaisesRegex(SystemExit, "the first losses differ by 2.5e-05"):
            compared([turn(1, [4.0])] * 3, [turn(1, [4.0001])] * 3)

    def test_names_of_parameters_become_those_of_the_models_here(self):
        for found, expected in {"transformer.wte.weight": "wte.weight",
                                "transformer.h.11.attn.c_attn.bias": "blocks.11.qkv.bias",
                                "transformer.h.0.attn.c_proj.weight": "blocks.0.proj.weight",
                                "transformer.h.0.mlp.c_proj.weight": "blocks.0.out.weight",
                                "model.embed_tokens.weight": "embedding.weight",
                                "model.layers.3.self_attn.q_proj.weight": "blocks.3.attention.q.weight",
                                "model.layers.3.mlp.gate_proj.weight": "blocks.3.mlp.gate.weight",
                                "model.layers.3.post_attention_layernorm.weight": "blocks.3.norm_2.weight",
                                "model.norm.weight": "norm.weight", "lm_head.weight": "head.weight"}.items():
            self.assertEqual(torch_parallel.renamed(found), expected)

    def test_the_window_is_read_as_written(self):
        with mock.patch.object(pathlib.Path, "write_bytes") as write:
            torch_ranks.write_window("window.bin", 5, vocab=300)
        with mock.patch("builtins.open", return_value=io.BytesIO(write.call_args.args[0])):
            window = torch_ranks.read_window("window.bin", 5)
        self.assertEqual(window, [(7919 * i * i + 104729 * i) % 300 for i in range(5)])


if __name__ == "__main__":
    unittest.main()
