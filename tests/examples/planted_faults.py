#!/usr/bin/env python3
"""Plants faults in the rungs of tensor and context parallelism, one at a time, and sees their tests turn red.

Its arguments are those of tests/support/planting.py.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planting

# Faults of a file that the same tests may notice, by name: text that occurs in the file exactly once, and
# what replaces it.
FAULTS = {
    ("examples/ladder/dense.cpp", "ladder"): {
        "slices are added one after another": (
            "  tree_reduce(summands.front(), summands, Reduction::sum);\n  return summands.front();",
            "  for (std::size_t i = 1; i < summands.size(); ++i) {\n"
            "    const std::vector<Tensor> two = {summands.front(), summands[i]};\n"
            "    tree_reduce(summands.front(), two, Reduction::sum);\n"
            "  }\n"
            "  return summands.front();"),
        "the gradients of all tokens are one sum": (
            "    matmul(summand, rows_of(a, p), rows_of(b, p), Transpose::yes, Transpose::no);",
            "    if (p > 0) return summand.zero();\n"
            "    matmul(summand, as_rows(a), as_rows(b), Transpose::yes, Transpose::no);"),
        "every rank's queries have the places of the first rank's": (
            "return (piece_at(first + p) + 1) * kPieceTokens;",
            "return (piece_at(first * 0 + p) + 1) * kPieceTokens;"),
    },
    ("examples/ladder/dense.cpp", "dense_model"): {
        "the gradients of keys and values are those of queries": (
            "to.slice(3 * i + which, 3 * i + which + 1)",
            "to.slice(3 * i + which * 0, 3 * i + which * 0 + 1)"),
        "the gradients of keys stay in the order of tokens": (
            "const Tensor a = tree.slice(i, i + 1), b = tokens.slice(j, j + 1);",
            "const std::int64_t other = to_tokens ? j : i;\n"
            "      const Tensor a = tree.slice(i, i + 1), b = tokens.slice(other, other + 1);"),
    },
    ("examples/ladder/10_tensor.cpp", "ladder"): {
        "whole weights keep the gradients of a rank's tokens": (
            "std::vector<Tensor> sums = model_->whole_gradients();",
            "std::vector<Tensor> sums;"),
        "ranks have slices that are not neighbours in the tree": (
            "model_.emplace(rank_ * slices, (rank_ + 1) * slices);",
            "const int next = (rank_ + 1) % ranks_;\n"
            "    model_.emplace(next * slices, (next + 1) * slices);"),
        "a layer's gradient is gathered twice": (
            "return {gathered(dy)}; });\n  }\n\n  Tensor gathered",
            "gathered(dy); return {gathered(dy)}; });\n  }\n\n  Tensor gathered"),
    },
    ("examples/ladder/11_context.cpp", "ladder"): {
        "keys get the gradients of a rank's own queries": (
            "world_.reduce_scatter({own}, {dy}, context().compute_stream());",
            "own.copy_from(dy.slice(first_, first_ + pieces_));"),
        "the matrices keep the gradients of a rank's tokens": (
            "std::vector<Tensor> sums = model_->sliced_gradients();",
            "std::vector<Tensor> sums;"),
    },
}

BATCHES = [planting.Batch(planting.faults_of(FAULTS, "test_examples_"), folder="build/planted_faults",
                          preset="release")]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
