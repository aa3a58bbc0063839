#!/usr/bin/env python3
"""Plants faults in the rungs of the ladders, one at a time, and sees their tests turn red.

Its arguments are those of tests/support/planting.py.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planting

# Faults of a file that the same tests may notice, by name: text that occurs in the file exactly once, and
# what replaces it.
FAULTS = {
    ("examples/kernel_ladder/error.h", "kernel_ladder"): {
        "an error that is NaN is smaller than others": (
            "return std::isnan(a) || a > b ? a : b;",
            "return a < b ? b : a;"),
    },
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

# Rungs for a GPU.
GPU_FAULTS = {
    ("examples/kernel_ladder/hopper/1_warpgroups.cu", "cuda_hopper_ladder"): {
        "Hopper: the products read tiles that a thread block still writes": (
            "      __syncthreads();  // these tiles are there, and all have read the last ones\n",
            "      if (depth == 0) __syncthreads();\n"),
        "Hopper: tiles that threads load have no proxy fence": (
            "  gpu::fence_shared_for_engines();\n",
            ""),
        "Hopper: chunks are not swizzled": (
            "(chunk ^ row % 8) * kChunk",
            "chunk * kChunk"),
        "Hopper: the next tiles replace those that are multiplied": (
            "const StepTiles next{memory + (stage ^ 1) * StepTiles::kElements};",
            "const StepTiles next{memory + stage * StepTiles::kElements};"),
        "Hopper: a chunk beyond the columns is read": (
            "const bool inside = row < height && column < width;",
            "const bool inside = row < height;"),
        "Hopper: sums are stored before their products end": (
            "      gpu::wait_products<0>(sum);\n",
            "      gpu::wait_products<1>(sum);\n"),
    },
    ("examples/kernel_ladder/hopper/steps.h", "cuda_hopper_ladder"): {
        "Hopper: a stage is free while its products run": (
            "    gpu::wait_products<1>();\n"
            "    ring.release(step - 1);\n",
            "    ring.release(step - 1);\n"
            "    gpu::wait_products<1>();\n"),
        "Hopper: the newest stage is released": (
            "    gpu::wait_products<1>();\n"
            "    ring.release(step - 1);\n",
            "    gpu::wait_products<1>();\n"
            "    ring.release(step);\n"),
        "Hopper: the last stage of a tile is kept": (
            "  gpu::wait_products<0>(sum);\n"
            "  ring.release(step - 1);\n",
            "  gpu::wait_products<0>(sum);\n"),
        "Hopper: a tile of c begins with the sums of the last": (
            "start_products(sum, group, depth > 0);",
            "start_products(sum, group, step > 0);"),
        "Hopper: b is copied from the place of a": (
            "{place.column, depth, 0, 0}",
            "{place.row, depth, 0, 0}"),
    },
    ("examples/kernel_ladder/hopper/tiles.h", "cuda_hopper_ladder"): {
        "Hopper: each row of a thread's sums is stored eight rows early": (
            "16 * warp + 8 * half + lane / 4",
            "16 * warp + lane / 4"),
        "Hopper: both warpgroups multiply the same rows": (
            "a().rows(kGroupRows * group, step)",
            "a().rows(0 * group, step)"),
        "Hopper: rows beyond the last are stored": (
            "    if (row >= p.M) break;\n",
            ""),
    },
    ("examples/kernel_ladder/hopper/order.h", "cuda_hopper_ladder"): {
        "Hopper: a band is as high as the first": (
            "const unsigned height = min(most, down() - band * most);",
            "const unsigned height = min(most, down());"),
    },
    ("examples/kernel_ladder/hopper/4_epilogue.cu", "cuda_hopper_ladder"): {
        "Hopper: the epilogue's threads do not take numbers": (
            "gpu::NumberRing numbers{.readers = gpu::kConsumerThreads + gpu::kEpilogueThreads};",
            "gpu::NumberRing numbers;"),
    },
    ("examples/kernel_ladder/hopper/results.h", "cuda_hopper_ladder"): {
        "Hopper: the pieces of a tile are counted as one": (
            "first += Staging::kPieceColumns, ++piece) {",
            "first += Staging::kPieceColumns) {"),
        "Hopper: the epilogue keeps a room": (
            "      staging.release(group);\n",
            "      if (group == 0) staging.release(group);\n"),
        "Hopper: results are read before they are there": (
            "      staging.wait(group, piece);\n",
            ""),
        "Hopper: a row of results is skipped": (
            "row += gpu::kEpilogueThreads / kChunks)",
            "row += 1 + gpu::kEpilogueThreads / kChunks)"),
    },
    ("examples/kernel_ladder/hopper/5_cluster.cu", "cuda_hopper_ladder"): {
        "Hopper: each block of a cluster copies the same half": (
            "const auto half = static_cast<int>(gpu::block_in_cluster());",
            "const auto half = static_cast<int>(0 * gpu::block_in_cluster());"),
        "Hopper: half of b is copied to one block": (
            "std::uint16_t{(1 << kBlocks) - 1}",
            "std::uint16_t(1 << gpu::block_in_cluster())"),
        "Hopper: a block begins before the other's barriers are there": (
            "    gpu::begin_rings(shared, ring, staging, numbers);\n"
            "    gpu::sync_cluster();\n",
            "    gpu::begin_rings(shared, ring, staging, numbers);\n"),
        "Hopper: a block ends before its cluster": (
            "    gpu::sync_cluster();  // the other block may still arrive at this one's barriers\n",
            ""),
        "Hopper: both blocks of a cluster have the same rows": (
            "static_cast<int>(gpu::block_in_cluster()) * kRows",
            "static_cast<int>(0 * gpu::block_in_cluster()) * kRows"),
    },
    ("examples/kernel_ladder/hopper/3_queue.cu", "emulated_hopper_ladder"): {
        "Hopper: a multiprocessor has two thread blocks": (
            "dim3 grid(static_cast<unsigned>(gpu::multiprocessors()))",
            "dim3 grid(2u * static_cast<unsigned>(gpu::multiprocessors()))"),
    },
    ("examples/kernel_ladder/hopper/5_cluster.cu", "emulated_hopper_ladder"): {
        "Hopper: each block of a cluster copies both halves of b": (
            "    of_b.load(maps.b, {column, depth, 0, 0}, full, std::uint16_t{(1 << kBlocks) - 1});\n",
            "    of_b.load(maps.b, {column, depth, 0, 0}, full);\n"
            "    const Half other{ring.tile(step).b().data + (1 - half) * Half::kElements};\n"
            "    other.load(maps.b, {place.column + (1 - half) * kColumns / 2, depth, 0, 0}, full);\n"),
    },
}

BATCHES = [planting.Batch(planting.faults_of(FAULTS, "test_examples_"), folder="build/planted_faults",
                          preset="release"),
           planting.Batch(planting.faults_of(GPU_FAULTS, "test_examples_"), folder="build-emulated/planted_faults",
                          preset="emulated", options=("-D", "TESSERA_WERROR=ON"), selection=("~[cpu]",))]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
