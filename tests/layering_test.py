#!/usr/bin/env python3
"""The layering check finds each kind of violation in a small tree, and nothing in a good one."""

import tempfile
import unittest
from pathlib import Path

import layering

GOOD = {
    "runtime/tensor.h": "#include <vector>\n",
    "runtime/check.h": "#include <fmt/format.h>\n",
    "kernels/add/op.h": '#include "runtime/tensor.h"\n',
    "kernels/add/op.cpp": '#include "kernels/add/op.h"\n#include "runtime/check.h"\n',
    "kernels/add/cuda.cu": '#include <cuda_runtime.h>\n#include "runtime/tensor.h"\n',
    "autograd/node.h": '#include "kernels/add/op.h"\n',
    "sharding/shard.h": '#include "autograd/node.h"\n',
    "optim/sgd.h": '#include "kernels/add/op.h"\n',
    "models/gpt2.h": '#include "sharding/shard.h"\n',
    "tools/main.cpp": '#include "models/gpt2.h"\n#include "optim/sgd.h"\n',
    "tests/support/rank.h": '#include "autograd/node.h"\n',
    "tests/kernels/add_test.cpp": '#include "tests/support/rank.h"\n#include "kernels/add/op.h"\n',
}


def check(changes):
    """Violations in the good tree with some files added or replaced."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in {**GOOD, **changes}.items():
            path = Path(directory) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return layering.violations(directory)


class LayeringTest(unittest.TestCase):
    def assert_only(self, changes, *expected):
        self.assertEqual(check(changes), list(expected))

    def test_a_good_tree_passes(self):
        self.assert_only({})

    def test_every_arrow_up_is_found(self):
        headers = {name.split("/")[0]: name for name in GOOD if name.endswith(".h")}
        headers["tools"] = "tools/config.h"
        for folder in layering.FOLDERS:
            for above in layering.FOLDERS:
                if above == folder or above in layering.BELOW[folder]:
                    continue
                changes = {"tools/config.h": "", f"{folder}/up.h": f'\n#include "{headers[above]}"\n'}
                self.assert_only(
                    changes, f"{folder}/up.h:2: {folder} must not include {headers[above]}")

    def test_examples_may_have_several_files_that_only_they_and_their_tests_include(self):
        model = {"examples/mine/model.h": '#include "models/gpt2.h"\n'}
        self.assert_only({**model, "examples/mine/main.cpp": '#include "examples/mine/model.h"\n'})
        self.assert_only({**model, "tests/examples/a_test.cpp": '#include "examples/mine/model.h"\n'})
        self.assert_only({**model, "tools/mine.cpp": '#include "examples/mine/model.h"\n'},
                         "tools/mine.cpp:1: tools must not include examples/mine/model.h")

    def test_the_order_of_the_folders_is_the_one_of_the_design(self):
        # A second spelling of the arrows, to catch a slip in the table.
        for low, high in [("runtime", "kernels"), ("kernels", "autograd"), ("autograd", "sharding"),
                          ("sharding", "models"), ("kernels", "optim"), ("models", "tools"),
                          ("optim", "tools")]:
            self.assertIn(low, layering.BELOW[high])
            self.assertNotIn(high, layering.BELOW[low])
        for a, b in [("optim", "sharding"), ("optim", "models"), ("optim", "autograd")]:
            self.assertNotIn(a, layering.BELOW[b])
            self.assertNotIn(b, layering.BELOW[a])

    def test_angle_brackets_hide_nothing(self):
        self.assert_only({"runtime/up.h": "#  include <kernels/add/op.h>\n"},
                         "runtime/up.h:1: runtime must not include kernels/add/op.h")

    def test_models_see_shards_and_nothing_else_of_sharding(self):
        self.assert_only({"sharding/plan/mesh.h": "",
                          "models/llama.h": '#include "sharding/plan/mesh.h"\n'},
                         "models/llama.h:1: models must not include sharding/plan/mesh.h")

    def test_sources_do_not_include_tests(self):
        self.assert_only({"models/gpt2.cpp": '#include "tests/support/rank.h"\n'},
                         "models/gpt2.cpp:1: models must not include tests/support/rank.h")

    def test_a_test_stays_on_its_level(self):
        self.assert_only({"tests/kernels/up_test.cpp": '#include "autograd/node.h"\n'},
                         "tests/kernels/up_test.cpp:1: tests must not include autograd/node.h")

    def test_tests_of_models_may_train_them(self):
        self.assert_only({"tests/models/gpt2_test.cpp": '#include "optim/sgd.h"\n'})

    def test_quoted_includes_are_written_from_the_root(self):
        self.assert_only({"kernels/add/cpu.cpp": '#include "op.h"\n'},
                         'kernels/add/cpu.cpp:1: write "op.h" from the root of the tree')

    def test_included_files_exist(self):
        self.assert_only({"kernels/add/cpu.cpp": '#include "runtime/gone.h"\n'},
                         "kernels/add/cpu.cpp:1: there is no runtime/gone.h")

    def test_a_device_file_does_not_include_fmt_eigen_or_yaml(self):
        for name in ["fmt/core.h", "Eigen/Core", "yaml-cpp/yaml.h"]:
            self.assert_only({"kernels/add/cuda.cu": f"#include <{name}>\n"},
                             f"kernels/add/cuda.cu:1: device code must not include {name}")

    def test_a_device_file_does_not_reach_fmt_through_headers(self):
        self.assert_only(
            {"kernels/add/cuda.cu": '#include "kernels/add/tile.h"\n',
             "kernels/add/tile.h": '\n#include "runtime/check.h"\n'},
            "kernels/add/cuda.cu:1 -> kernels/add/tile.h:2 -> runtime/check.h:1: "
            "device code must not include fmt/format.h")

    def test_device_headers_count_as_device_code(self):
        self.assert_only(
            {"kernels/add/tile.cuh": '#include "runtime/check.h"\n'},
            "kernels/add/tile.cuh:1 -> runtime/check.h:1: "
            "device code must not include fmt/format.h")


if __name__ == "__main__":
    unittest.main()
