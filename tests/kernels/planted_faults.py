#!/usr/bin/env python3
"""Plants faults in the kernels, one at a time, and sees the kernels' tests turn red.

  tests/kernels/planted_faults.py           builds a copy of the sources, as the preset `asan` does
                                            for faults of the CPU's kernels, `emulated` for those of
                                            CUDA kernels and `aarch64` for those of NEON (after
                                            tools/test_aarch64.sh), plants each fault there and runs
                                            tests that may see it
  tests/kernels/planted_faults.py NAME...   only these
  tests/kernels/planted_faults.py --check   only sees that every fault still fits the sources

A fault that no test notices is a gap in the tests: the program ends with 1 and names it.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planting

# A file, text that occurs in it exactly once, what replaces it, and the tests that are run.
CPU_FAULTS = {
    # ---- elementary functions
    "pi / 2 has three parts": (
        "runtime/elementary.cpp",
        "third.low - n * kParts[3]",
        "third.low",
        ["runtime_elementary"]),
    "the difference of an angle from its multiple of pi / 2 is rounded": (
        "runtime/elementary.cpp",
        "second.low + third.low - n",
        "third.low - n",
        ["runtime_elementary"]),
    "the sine of the third quadrant is that of the first": (
        "runtime/elementary.cpp",
        "return quadrant < 2 ?",
        "return quadrant < 3 ?",
        ["runtime_elementary"]),
    "a sine's reduced angle is one double": (
        "runtime/elementary.cpp",
        "(r.high - a) + r.low, -kSixth",
        "r.high - a, -kSixth",
        ["runtime_elementary"]),
    "a cosine's reduced angle is one double": (
        "runtime/elementary.cpp",
        "(r.high + a) + r.high * r.low)",
        "(r.high + a))",
        ["runtime_elementary"]),
    "the sum of a sine's leading terms is rounded": (
        "runtime/elementary.cpp",
        "(sum.low + series.rest)",
        "series.rest",
        ["runtime_elementary"]),
    "every angle has a sine": (
        "runtime/elementary.cpp",
        "std::fabs(x) <= kLargestAngle,",
        "std::fabs(x) <= 2 * kLargestAngle,",
        ["runtime_elementary"]),
    "ln 2 ends after its first part in e^x": (
        "runtime/elementary.cpp",
        "x.low - n * kLn2Low",
        "x.low",
        ["runtime_elementary"]),
    "ln 2 ends after its first part in ln x": (
        "runtime/elementary.cpp",
        "2.0 * series.rest + n * kLn2Low",
        "2.0 * series.rest",
        ["runtime_elementary"]),
    "subnormal powers of e are 0": (
        "runtime/elementary.cpp",
        "x.high < -746.0",
        "x.high < -708.4",
        ["runtime_elementary"]),
    "a logarithm's quotient divides by 32 bits": (
        "runtime/elementary.cpp",
        " - a * sum_low) / sum",
        " - 0.0 * sum_low) / sum",
        ["runtime_elementary"]),
    "a power's logarithm is one double": (
        "runtime/elementary.cpp",
        " + exponent * log.low",
        "",
        ["runtime_elementary"]),
    "normal values come from sines alone": (
        "runtime/random.cpp",
        "cosine(angle) : sine",
        "sine(angle) : sine",
        ["runtime_random"]),
    # ---- shares of a team's threads
    "every thread begins with the first share": (
        "runtime/threads.cpp",
        "share_of(group, (thread + i) % size)",
        "share_of(group, (0 * thread + i) % size)",
        ["runtime_threads"]),
    "a thread that is done leaves the others' shares alone": (
        "runtime/threads.cpp",
        "for (int i = 0; i < size; ++i) take_share",
        "for (int i = 0; i < 1; ++i) take_share",
        ["runtime_threads"]),
    "groups of tasks are one": (
        "runtime/threads.cpp",
        "groups = ends.size();",
        "groups = 1; ends = ends.last(1);",
        ["runtime_threads"]),
    # ---- threads on cores
    "workers of a team are bound to each other's cores": (
        "runtime/threads.cpp",
        "cores[++thread]",
        "cores[thread++]",
        ["runtime_cores"]),
    "a thread stays bound": (
        "runtime/cores.cpp",
        "  set_cores(pthread_self(), before_);\n",
        "",
        ["runtime_cores"]),
    "a new thread stays on the core of the bound one that starts it": (
        "runtime/cores.cpp",
        "  set_cores(pthread_self(), *unbound_cores_);\n",
        "",
        ["runtime_cores"]),
    "a bound thread that starts another is not bound afterwards": (
        "runtime/cores.cpp",
        "    ~Rebind() { set_cores(pthread_self(), cores); }\n",
        "",
        ["runtime_cores"]),
    "a bound thread takes its core for all of the process": (
        "runtime/cores.cpp",
        "  if (outer_ == nullptr) unbound_cores_ = &before_;\n",
        "",
        ["runtime_cores"]),
    "a thread on a shared core goes on spinning": (
        "runtime/spin.cpp",
        "if (now < shared_until_) return false;",
        "",
        ["runtime_cores"]),
    "a thread whose core was shared once never spins again": (
        "runtime/spin.cpp",
        "shared_until_ = after + kShared;",
        "shared_until_ = Clock::time_point::max();",
        ["runtime_cores"]),
    # ---- attention on the CPU
    "attention's backward pass hides a query's own key": (
        "kernels/attention/cpu.cpp",
        "score[i] = i < hidden ? C{0} : p;",
        "score[i] = i <= hidden ? C{0} : p;",
        ["kernels_attention"]),
    "attention's forward pass sees one key too many": (
        "kernels/attention/cpu.cpp",
        "score + tile.hidden(j),",
        "score + std::max(band.first_lane, tile.hidden(j) - 1),",
        ["kernels_attention"]),
    "rows beyond the last square of a transpose are left out": (
        "kernels/attention/tiles.h",
        "r < std::min(rows, i + kSide); ++r",
        "r < std::min(rows, i + kSide) - 1; ++r",
        ["kernels_attention"]),
    # ---- norms of queries and keys on the CPU
    "gradients of keys take the statistics of queries": (
        "kernels/qk_norm/cpu.cpp",
        "rstds[n * rstd.size(2) + h]",
        "rstds[n * rstd.size(2) + h - of.first]",
        ["kernels_qk_norm"]),
    "a normalized head is rounded before it is rotated": (
        "kernels/qk_norm/cpu.cpp",
        "std::vector<C> normalized(",
        "std::vector<T> normalized(",
        ["kernels_qk_norm"]),
    # ---- products on the CPU
    "a tile's last columns are stored as a whole vector": (
        "kernels/matmul/cpu/chains.h",
        "std::clamp<std::int64_t>(columns - v * S::kLanes, 0, S::kLanes)",
        "std::clamp<std::int64_t>(columns, S::kLanes, S::kLanes)",
        ["kernels_matmul_cpu"]),
    "tiles of one row are left out": (
        "kernels/matmul/cpu/chains.h",
        "} else if constexpr (kRows > 1) {",
        "} else if constexpr (kRows > 2) {",
        ["kernels_matmul_cpu"]),
    "the second depth of a turn takes the first one's column of a": (
        "kernels/matmul/cpu/chains.h",
        "(sum, a + a_depth, a_row, b + b_stride);",
        "(sum, a, a_row, b + b_stride);",
        ["kernels_matmul_cpu"]),
    "a panel's odd depth is left out": (
        "kernels/matmul/cpu/chains.h",
        "for (; k < depth; ++k, a += a_depth, b += b_stride) {",
        "for (; k + (kLayout == Layout::panels) < depth; ++k, a += a_depth, b += b_stride) {",
        ["kernels_matmul_cpu"]),
    "an odd depth has its last element twice": (
        "kernels/matmul/cpu/panels.h",
        "if (second != nullptr) std::copy_n(second, copied, second_copy);",
        "std::copy_n(second == nullptr ? from : second, copied, second_copy);",
        ["kernels_matmul_cpu"]),
    "a square beyond the last depth reads it again": (
        "kernels/matmul/cpu/panels.h",
        "std::copy_n(from + i * stride, std::min(depth, kDepth), row);",
        "std::copy_n(from + i * stride, std::min(depth, kDepth - 1), row);",
        ["kernels_matmul_cpu"]),
    "rows of a panel beyond its whole squares are not packed": (
        "kernels/matmul/cpu/panels.h",
        "if constexpr (kRest > 0) {",
        "if constexpr (kRest > kLanes) {",
        ["kernels_matmul_cpu"]),
    "the pieces of depth depend on the micro-kernel": (
        "kernels/matmul/cpu/rounds.cpp",
        "equal_parts(K, engine.most_depth, kWholeVectors)",
        "equal_parts(K, engine.most_depth - engine.rows / 8 * 32, kWholeVectors)",
        ["kernels_matmul_cpu"]),
    "a round of rows finds b's panels of other columns": (
        "kernels/matmul/cpu/rounds.cpp",
        ".pack_b = m == 0 || !keeps_b",
        ".pack_b = m == 0 || (m < 0 && !keeps_b)",
        ["kernels_matmul_rounds"]),
    "a's panels stay while the rows change": (
        "kernels/matmul/cpu/rounds.cpp",
        ".pack_a = packs && n == 0",
        ".pack_a = packs && m == 0 && n == 0",
        ["kernels_matmul_cpu"]),
    "a deep sum's later rounds overwrite c": (
        "kernels/matmul/cpu/product.cpp",
        "(list_.accumulate || slab.depth_begin > 0)",
        "list_.accumulate",
        ["kernels_matmul_cpu"]),
    "a sum's later pieces overwrite c": (
        "kernels/matmul/cpu/product.cpp",
        "tile.accumulate = adds || k > 0",
        "tile.accumulate = adds && k >= 0",
        ["kernels_matmul_cpu"]),
    "few rows read a transposed b as it lies": (
        "kernels/matmul/cpu/product.cpp",
        "engine_.reads_b && !list_.transpose_b &&",
        "engine_.reads_b &&",
        ["kernels_matmul_cpu"]),
    "rounded sums are not added to c": (
        "kernels/matmul/cpu/product.cpp",
        "end - begin, columns,\n                      list_.accumulate);",
        "end - begin, columns,\n                      false);",
        ["kernels_matmul_cpu"]),
    "a row of c begins where the last ends": (
        "kernels/matmul/cpu/product.cpp",
        "{.c = c, .c_row = p.c_row, .rows = rows}",
        "{.c = c, .c_row = list_.N, .rows = rows}",
        ["kernels_matmul_cpu"]),
    "a round's products share the panels of b": (
        "kernels/matmul/cpu/rounds.cpp",
        "  next_ += bytes;\n",
        "",
        ["kernels_grouped_matmul"]),
    "neighbouring rounds share the panels of b": (
        "kernels/matmul/cpu/rounds.cpp",
        "next_ = second_ ? half_ : 0;",
        "next_ = 0;",
        ["kernels_matmul_rounds"]),
    "panels of a that are overwritten are packed ahead": (
        "kernels/matmul/cpu/rounds.h",
        "return used_ > 0 && !keeps_all_ && half_ == 0;",
        "return used_ < 0 && !keeps_all_ && half_ == 0;",
        ["kernels_matmul_rounds"]),
    "a deep sum's rounds run side by side": (
        "kernels/matmul/cpu/rounds.cpp",
        "round_.continues = k > 0 && rows",
        "round_.continues = k > p.K && rows",
        ["kernels_matmul_rounds"]),
    "a block does not wait for its panels": (
        "kernels/matmul/cpu/pipeline.cpp",
        "      wait_for_zero(left[round].panels);\n",
        "",
        ["kernels_matmul_rounds"]),
    "panels are packed over those that blocks read": (
        "kernels/matmul/cpu/pipeline.cpp",
        "    wait_for_blocks(round, 2);\n",
        "",
        ["kernels_matmul_rounds"]),
    "a ragged depth of a is read where it lies": (
        "kernels/matmul/cpu/rounds.cpp",
        "product.K % engine.depth_step != 0 ||",
        "product.K < 0 ||",
        ["kernels_matmul_cpu"]),
    "few rows: every strip packs the first columns": (
        "kernels/matmul/cpu/product.cpp",
        "part.column = block.column;",
        "part.column = 0;",
        ["kernels_matmul_cpu"]),
    "few rows: a deep sum ends after its first round": (
        "kernels/matmul/cpu/product.cpp",
        "for (; part.depth_begin < p.K; part.depth_begin += most) {",
        "for (; part.depth_begin < most; part.depth_begin += most) {",
        ["kernels_matmul_cpu"]),
    "scratch of few rows for the longest sum, not for the deepest round": (
        "kernels/matmul/cpu/product.cpp",
        "line_bytes(engine, deepest_round(engine, list))",
        "line_bytes(engine, depth_of_round(engine, list, list.K))",
        ["kernels_grouped_matmul"]),
    "all tiles have the rows of the upper ones": (
        "kernels/matmul/cpu/tiles.h",
        "lower ? rows - kTileSide : rows, 1",
        "lower ? rows : rows, 1",
        ["kernels_matmul_cpu"]),
    "a deep expert's old gradient is lost": (
        "kernels/grouped_matmul/cpu.cpp",
        "c.size(2)}), accumulate);",
        "c.size(2)}), Accumulate::no);",
        ["kernels_grouped_matmul"]),
    "products ignore the library that the rank has chosen": (
        "kernels/matmul/cpu/product.cpp",
        "if (by_openblas()) return multiply_with_openblas(products, list);",
        "",
        ["kernels_grouped_matmul"]),
    "the workspace depends on the instruction set": (
        "kernels/matmul/cpu/rounds.cpp",
        "Tensor::empty({largest_room(list)}, DType::u8)",
        "Tensor::empty({std::min(bytes_of_room(engine, list).total(), largest_room(list))}, DType::u8)",
        ["kernels_matmul_cpu"]),
    "the workspace depends on the experts' rows": (
        "kernels/grouped_matmul/cpu.cpp",
        ".rows = a.size(0)});",
        ".rows = groups.end()});",
        ["kernels_matmul_cpu"]),
    "the lower tiles take the upper rows": (
        "kernels/matmul/cpu/tiles.h",
        "const char* const a_below = a + kTileSide * a_row;",
        "const char* const a_below = a;",
        ["kernels_matmul_cpu"]),
    "tiles begin a later piece with zeros": (
        "kernels/matmul/cpu/tiles.h",
        "multiply_rows<Tiles, true>(a, a_row, b, depth, c, c_row, tile.accumulate);",
        "multiply_rows<Tiles, true>(a, a_row, b, depth, c, c_row, false);",
        ["kernels_matmul_cpu"]),
    "tiles in software keep denormal sums": (
        "kernels/matmul/cpu/software_tiles.cpp",
        "chains[odd][j] = flushed(std::fma(factor, other, chains[odd][j]));",
        "chains[odd][j] = std::fma(factor, other, chains[odd][j]);",
        ["kernels_matmul_cpu"]),
    # ---- the norm of gradients
    "squares of an earlier window are counted again": (
        "kernels/gradient_norm/cpu.cpp",
        "bits >= least && bits <= largest ? bits : 0",
        "bits >= least ? bits : 0",
        ["kernels_gradient_norm"]),
    "the lower parts of squares are lost": (
        "kernels/gradient_norm/cpu.cpp",
        "rest_sum += square - upper;",
        "rest_sum += 0.0 * (square - upper);",
        ["kernels_gradient_norm"]),
    "numbers below the first window are left out": (
        "kernels/gradient_norm/cpu.cpp",
        "  while (largest > 0) largest = add_squares(",
        "  if (largest > 0) largest = add_squares(",
        ["kernels_gradient_norm"]),
    "the words' carries are lost": (
        "kernels/gradient_norm/exact_sum.h",
        "carry = digit >> 32;",
        "carry = 0 * digit;",
        ["kernels_gradient_norm"]),
    "infinity hides NaN": (
        "kernels/gradient_norm/cpu.cpp",
        "++words[largest > kBitsOfInfinity ? kNanWord : kInfinityWord];",
        "++words[kInfinityWord];",
        ["kernels_gradient_norm"]),
    # ---- the allocator
    "a freed block is not joined with the one before it": (
        "runtime/allocator.cpp",
        "previous != nullptr && previous->is_free",
        "previous != nullptr && previous->is_free && previous->bytes == 0",
        ["runtime_allocator"]),
    "a request takes a free block of another stream": (
        "runtime/allocator.cpp",
        "found != free_.end() && (*found)->stream == stream ? *found : nullptr",
        "found != free_.end() ? *found : nullptr",
        ["runtime_allocator"]),
    "the largest free segment goes back first": (
        "runtime/allocator.cpp",
        "serves && piece->bytes < best->bytes",
        "serves && piece->bytes > best->bytes",
        ["runtime_allocator"]),
    "large free blocks are cut before memory runs short": (
        "runtime/allocator.cpp",
        "if (fits != nullptr && fits->bytes < 2 * bytes)",
        "if (fits != nullptr)",
        ["runtime_allocator"]),
    "free segments stay when more than the peak is reserved": (
        "runtime/allocator.cpp",
        "return peak + peak / 16;",
        "return 16 * peak;",
        ["runtime_allocator"]),
    # ---- steps around a product
    "a step changes sums that are not complete": (
        "kernels/matmul/cpu/product.cpp",
        "const bool ends = slab.depth_begin + slab.depth >= p.K;",
        "const bool ends = slab.depth > 0;",
        ["kernels_linear_cpu"]),
    "a step takes a block's column for c's": (
        "kernels/matmul/cpu/product.cpp",
        "p.steps->finished({row, rows, column, block.columns});",
        "p.steps->finished({row, rows, block.column, block.columns});",
        ["kernels_linear_cpu"]),
    "a later round of rows adds up dy again": (
        "kernels/matmul/cpu/product.cpp",
        "if (slab.row == 0) {",
        "if (slab.row >= 0) {",
        ["kernels_linear_cpu"]),
    "few rows of the weight leave out the bias's gradient": (
        "kernels/matmul/cpu/product.cpp",
        "packs_a(engine, list, product), has_panels);",
        "packs_a(engine, list, product), true);",
        ["kernels_linear_cpu"]),
    "sums that are rounded apart get no bias": (
        "kernels/matmul/cpu.cpp",
        "  narrow(c, sums, accumulate);\n  finish(c, steps);\n",
        "  narrow(c, sums, accumulate);\n",
        ["kernels_linear_cpu"]),
    "products by OpenBLAS get no bias": (
        "kernels/matmul/cpu/product.cpp",
        "    if (p.steps != nullptr) visit_rows(p.steps->finished, p.M, p.N);\n",
        "    static_cast<void>(p);\n",
        ["kernels_linear_cpu"]),
    "the panels of up lie where those of gate do": (
        "kernels/matmul/cpu/product.cpp",
        "section * round_up(slab.columns, engine_.columns) + first;",
        "0 * section + first;",
        ["kernels_linear_cpu"]),
    "sums of up are rounded into gate": (
        "kernels/matmul/cpu/product.cpp",
        "c + section * p.N * out_bytes_, p.c_row);",
        "c, p.c_row);",
        ["kernels_linear_cpu"]),
    "a round keeps memory for the panels of gate alone": (
        "kernels/matmul/cpu/rounds.cpp",
        "b = b_.take(list_.sections * round_up(",
        "b = b_.take(round_up(",
        ["kernels_matmul_rounds"]),
    "swiglu visits the columns of up, too, where sums are rounded apart": (
        "kernels/matmul/cpu.cpp",
        "c.size(-1) / steps.sections);\n}",
        "c.size(-1));\n}",
        ["kernels_linear_cpu"]),
    "up gets the bias of gate": (
        "kernels/linear/cpu.cpp",
        "half->first + part.column",
        "0 * half->first + part.column",
        ["kernels_linear_cpu"]),
    "the rows of an expert's swiglu begin at the first expert's": (
        "kernels/grouped_matmul/cpu.cpp",
        "        part.row += first;\n",
        "",
        ["kernels_grouped_matmul"]),
    "a part of swiglu's gradient begins at the first column": (
        "kernels/swiglu/cpu.cpp",
        "from = Rows<T>(dy, part.column)",
        "from = Rows<T>(dy, 0)",
        ["kernels_linear_cpu"]),
    "rows of experts are made again before their gradients are read": (
        "kernels/swiglu/cpu.cpp",
        "        forward_row(h.data(), g[p], u[p], F);\n",
        "        forward_row(h.data(), g[p], u[p], F);\n"
        "        scale_row(to[p], h.data(), weight, F);\n",
        ["kernels_swiglu"]),
    "the gradient of weighed rows on the CPU lacks the weight": (
        "kernels/swiglu/cpu.cpp",
        "scale_row(dh.data(), from[p], weight, F);",
        "scale_row(dh.data(), from[p], compute_t<T>(1), F);",
        ["kernels_swiglu"]),
    "a part of dy forgets the rows before it": (
        "kernels/bias/cpu.cpp",
        "row == 0 ? partial[c]",
        "row == part.row ? partial[c]",
        ["kernels_linear_cpu"]),
    "each part of dy adds the gradient before it": (
        "kernels/bias/cpu.cpp",
        "    if (end < dy_.size(0)) continue;\n",
        "",
        ["kernels_linear_cpu"]),
    # ---- the loss on the CPU
    "the gradient of an ignored row stays its logits": (
        "kernels/cross_entropy/cpu.cpp",
        "    std::fill_n(dlogits, classes, G{});\n",
        "",
        ["kernels_linear_cross_entropy"]),
    "the gradient at the target is the softmax": (
        "kernels/cross_entropy/cpu.cpp",
        "  store_as(dlogits[target], dloss * at_target);",
        "  store_as(dlogits[target], dloss * (at_target + C{1}));",
        ["kernels_cross_entropy"]),
    # ---- loops for several instruction sets
    "a sum's lanes are as many as a vector of AVX2 has": (
        "kernels/cpu/lanes.h",
        "for (int half = kLanes / 2; half > 0; half /= 2) {",
        "for (int half = kLanes / 4; half > 0; half /= 2) {",
        ["kernels_instruction_sets"]),
    "the last elements of a sum are left out": (
        "kernels/cpu/lanes.h",
        "  if (i < n) f(i, static_cast<int>(n - i));\n",
        "",
        ["kernels_instruction_sets"]),
    "the compiler chooses the order of a sum": (
        "kernels/rms_norm/row.h",
        "  const Real squares = sum_of<Real>(C, [&](std::int64_t c) { return load(x[c]) * load(x[c]); });\n",
        "  Real squares = 0;\n"
        "#pragma omp simd reduction(+ : squares)\n"
        "  for (std::int64_t c = 0; c < C; ++c) squares += load(x[c]) * load(x[c]);\n",
        ["kernels_instruction_sets"]),
    # ---- products inside the tasks of attention
    "small products forget the sums so far": (
        "kernels/matmul/cpu/chains.h",
        "  if (tile.continues) {\n",
        "  if (tile.continues && tile.depth < 0) {\n",
        ["kernels_attention"]),
    "small products ignore the distance of a transposed factor's depths": (
        "kernels/cpu/small_product.h",
        ".a_depth = a.column_stride,",
        ".a_depth = engine_.rows,",
        ["kernels_attention"]),
    "small products add a tile's sums after its chain": (
        "kernels/cpu/small_product.h",
        ".continues = accumulate == Accumulate::yes}",
        ".accumulate = accumulate == Accumulate::yes}",
        ["kernels_attention"]),
    # ---- the ladders of kernels
    "a norm's rung forgets the last vector of its sum": (
        "examples/kernel_ladder/norm/3_vector_sums.cpp",
        "c < p.C; ++c) squares += x[c] * x[c];",
        "c < p.C / 8 * 8; ++c) squares += x[c] * x[c];",
        ["examples_kernel_ladder"]),
    "a norm's threads skip the last rows": (
        "examples/kernel_ladder/norm/4_threads.cpp",
        "n < end; ++n) {",
        "n < end / 8 * 8; ++n) {",
        ["examples_kernel_ladder"]),
    "a softmax's rung does not correct the sum": (
        "examples/kernel_ladder/softmax/2_online.cpp",
        "        sum *= std::exp(maximum - x[c]);\n",
        "",
        ["examples_kernel_ladder"]),
    "a softmax's rung corrects a block's own sum": (
        "examples/kernel_ladder/softmax/4_fused.cpp",
        "sum * exponential(maximum - risen) + block",
        "(sum + block) * exponential(maximum - risen)",
        ["examples_kernel_ladder"]),
    "a rung of attention does not correct its output": (
        "examples/kernel_ladder/attention/2_online.cpp",
        "          for (std::int64_t d = 0; d < p.D; ++d) o[d] *= correction;\n",
        "",
        ["examples_kernel_ladder"]),
    "a rung of attention shows each query the next key": (
        "examples/kernel_ladder/attention/3_tiles.cpp",
        "first_key + j - first_query, 0",
        "first_key + j - first_query - 1, 0",
        ["examples_kernel_ladder"]),
    "a rung of attention leaves out the tile on the diagonal": (
        "examples/kernel_ladder/attention/4_causal.cpp",
        "const std::int64_t visible = first_query + queries;",
        "const std::int64_t visible = first_query + (first_query == 0 ? queries : 0);",
        ["examples_kernel_ladder"]),
    "the threads of a rung of attention take a block twice": (
        "examples/kernel_ladder/attention/6_threads.cpp",
        "block = blocks - 1 - task / p.H;",
        "block = std::max<std::int64_t>(1, blocks - 1 - task / p.H);",
        ["examples_kernel_ladder"]),
    "a rung adds to c's old elements": (
        "examples/kernel_ladder/matmul/2_loop_order.cpp",
        "std::fill_n(p.c, p.M * p.N, 0.0f);",
        "std::fill_n(p.c, p.N, 0.0f);",
        ["examples_kernel_ladder"]),
    "a rung's tile forgets the sums of the blocks before": (
        "examples/kernel_ladder/matmul/6_three_levels.cpp",
        "sum[i][v] = load(c + i * p.N + v * kLanes);",
        "sum[i][v] = Vector{};",
        ["examples_kernel_ladder"]),
    "a rung's edge leaves out its first row": (
        "examples/kernel_ladder/matmul/7_avx512.cpp",
        "for (std::int64_t i = 0; i < rows; ++i) {",
        "for (std::int64_t i = 1; i < rows; ++i) {",
        ["examples_kernel_ladder"]),
    "the threads of a rung pack panels over each other": (
        "examples/kernel_ladder/matmul/8_threads.cpp",
        "p.scratch + begin * depth);",
        "p.scratch + begin / 2 * depth);",
        ["examples_kernel_ladder"]),
    "a rung of tiles leaves out the last depths": (
        "examples/kernel_ladder/matmul/9_amx.cpp",
        "for (std::int64_t k = 0; k < depth; k += kStep) {",
        "for (std::int64_t k = 0; k + kStep <= depth; k += kStep) {",
        ["examples_kernel_ladder"]),
    "small products skip columns on a narrow instruction set": (
        "kernels/cpu/small_product.h",
        "j < columns; j += width",
        "j < columns; j += 32",
        ["kernels_attention"]),
}

FAULTS = {
    # ---- the ladders of kernels
    "a norm's warp leaves out a lane's last column": (
        "examples/kernel_ladder/norm/gpu_2_warp_per_row.cu",
        "for (std::int64_t c = lane; c < p.C; c += kLanes) squares",
        "for (std::int64_t c = lane; c + kLanes <= p.C; c += kLanes) squares",
        ["examples_cuda_kernel_ladder"]),
    "a norm's row in registers ends before its last vectors": (
        "examples/kernel_ladder/norm/gpu_3_row_in_registers.cu",
        "constexpr int kVectors = 8;",
        "constexpr int kVectors = 7;",
        ["examples_cuda_kernel_ladder"]),
    "the threads of a norm read the weights of other columns": (
        "examples/kernel_ladder/norm/gpu_1_thread_per_row.cu",
        "x[c] * rstd * p.weight[c]",
        "x[c] * rstd * p.weight[(c + threadIdx.x) % p.C]",
        ["examples_cuda_kernel_ladder", "examples_emulated_kernel_ladder"]),
    "the lanes of a softmax add sums of different maxima": (
        "examples/kernel_ladder/softmax/gpu_2_warp_per_row.cu",
        "sum * expf(own - maximum)",
        "sum",
        ["examples_cuda_kernel_ladder"]),
    "a softmax reads its row again": (
        "examples/kernel_ladder/softmax/gpu_3_row_in_registers.cu",
        "    row[i] = make_float4(expf(",
        "    row[i] = x[i * kLanes + lane];\n    row[i] = make_float4(expf(",
        ["examples_emulated_kernel_ladder"]),
    "a thread of attention leaves out the values from key 96 on": (
        "examples/kernel_ladder/attention/gpu_1_thread_per_query.cu",
        "    for (std::int64_t j = 0; j < p.T; ++j) output",
        "    for (std::int64_t j = 0; j < p.T && j < 96; ++j) output",
        ["examples_cuda_kernel_ladder"]),
    "a tile is loaded over the one that other warps still read": (
        "examples/kernel_ladder/attention/gpu_2_shared_tiles.cu",
        "    __syncthreads();  // all threads are done with the last tile\n",
        "",
        ["examples_cuda_kernel_ladder"]),
    "rows of a tile lie in the same banks": (
        "examples/kernel_ladder/attention/gpu_3_tensor_cores.cu",
        "constexpr int kRow = kD + 8;",
        "constexpr int kRow = kD;",
        ["examples_emulated_kernel_ladder"]),
    "tensor cores add outputs of different maxima": (
        "examples/kernel_ladder/attention/gpu_3_tensor_cores.cu",
        "output.values[n][i] *= correction;",
        "output.values[n][i] *= 1.0f;",
        ["examples_cuda_kernel_ladder"]),
    "a warp has eight rows of four columns of c": (
        "examples/kernel_ladder/matmul/gpu_1_thread_per_element.cu",
        "constexpr int kLanes = 32, kRows = 8;",
        "constexpr int kLanes = 4, kRows = 64;",
        ["examples_emulated_matmul_ladder"]),
    "tiles of a product are overwritten while other warps read them": (
        "examples/kernel_ladder/matmul/gpu_2_shared_tiles.cu",
        "    __syncthreads();  // before the next tiles overwrite these\n",
        "",
        ["examples_cuda_matmul_ladder"]),
    "rows of a's tile lie in the same banks": (
        "examples/kernel_ladder/matmul/gpu_3_tile_in_registers.cu",
        "constexpr int kPitch = kSide + 4;",
        "constexpr int kPitch = kSide;",
        ["examples_emulated_matmul_ladder"]),
    "a product begins before its tiles have arrived": (
        "examples/kernel_ladder/matmul/gpu_4_tensor_cores.cu",
        "gpu::copy_async_wait<1>();",
        "gpu::copy_async_wait<2>();",
        ["examples_cuda_matmul_ladder"]),
    # ---- attention
    "no barrier before a tile is loaded over the last one": (
        "kernels/attention/cuda/general_forward.cu",
        "    __syncthreads();  // all warps are done with the last tile\n",
        "",
        ["kernels_attention"]),
    "no barrier between loading a tile and reading it": (
        "kernels/attention/cuda/general_backward.cu",
        "        load(d_output, x.d_o.rows(batch, head), first_query, range.end, n.head_size);\n"
        "        __syncthreads();\n",
        "        load(d_output, x.d_o.rows(batch, head), first_query, range.end, n.head_size);\n",
        ["kernels_attention"]),
    "no __syncwarp between writing weights and reading them": (
        "kernels/attention/cuda/general_forward.cu",
        "      weights.write(score);\n"
        "      __syncwarp();\n",
        "      weights.write(score);\n",
        ["kernels_attention"]),
    "a head's last channels are followed by the next head's": (
        "kernels/attention/cuda/general.h",
        "first + row < count && channel < channels;",
        "first + row < count && channel < (channels + 3) / 4 * 4;",
        ["kernels_attention"]),
    "the causal mask begins in the upper left corner": (
        "kernels/attention/cuda/general_forward.cu",
        "first_key + lane <= first_row + i + n.shift();",
        "first_key + lane <= first_row + i;",
        ["kernels_attention"]),
    "outputs are not rescaled when the maximum rises": (
        "kernels/attention/cuda/general_forward.cu",
        "      for (float& value : outputs.values[i]) value *= correction;",
        "      for (float& value : outputs.values[i]) value *= 1.0f;",
        ["kernels_attention"]),
    "copies are not waited for": (
        "kernels/attention/cuda/forward_mma.cu",
        "gpu::copy_async_wait<0>();",
        "",
        ["kernels_attention_16bit --architecture=80"]),
    "the wait leaves the newest copies in flight": (
        "kernels/attention/cuda/key_value_gradient_mma.cu",
        "      gpu::copy_async_wait<0>();\n"
        "      __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more\n"
        "      if (step + 1 < steps) load_queries(step + 1);",
        "      gpu::copy_async_wait<1>();\n"
        "      __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more\n"
        "      if (step + 1 < steps) load_queries(step + 1);",
        ["kernels_attention_16bit --architecture=80"]),
    "the next tile is asked for while others read what it replaces": (
        "kernels/attention/cuda/forward_mma.cu",
        "      __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more\n"
        "      if (step + 1 < steps) load_keys(step + 1);\n",
        "      if (step + 1 < steps) load_keys(step + 1);\n"
        "      __syncthreads();\n",
        ["kernels_attention_16bit --architecture=80"]),
    "the causal mask hides the query's own key": (
        "kernels/attention/cuda/forward_mma.cu",
        "return column <= row + last_seen;",
        "return column < row + last_seen;",
        ["kernels_attention_16bit --architecture=80"]),
    "neighbouring query heads read different key heads": (
        "kernels/attention/cuda/arguments.h",
        "kv_head = head / n.group();",
        "kv_head = head % n.kv_heads;",
        ["kernels_attention_16bit"]),
    "logsumexp without the maximum": (
        "kernels/attention/cuda/forward_mma.cu",
        "softmax.maximum.values[m][half] * n.scale + logf(sum);",
        "logf(sum);",
        ["kernels_attention_16bit --architecture=80"]),
    "a shuffle at the wrong distance": (
        "kernels/attention/cuda/fragments.h",
        "__shfl_xor_sync(gpu::kFullWarp, value, 2)",
        "__shfl_xor_sync(gpu::kFullWarp, value, 4)",
        ["kernels_attention_16bit"]),
    "tiles without the swizzle": (
        "kernels/attention/cuda/tiles.h",
        "(chunk ^ (row & 7)) * 8",
        "chunk * 8",
        ["kernels_emulated_attention"]),
    "no barrier between sending P and receiving it": (
        "kernels/attention/cuda/key_value_gradient_mma.cu",
        "      __syncthreads();  // P is in shared memory\n",
        "",
        ["kernels_attention_16bit --architecture=80"]),
    "heads of 128 take the large tile on every GPU": (
        "kernels/attention/cuda/key_value_gradient_mma.cu",
        "2 * LargeMemory::kBytes + 1024 <= gpu::shared_memory_limit()",
        "LargeMemory::kBytes > 0",
        ["kernels_emulated_attention"]),
    "a section of heads is as wide as all that remain": (
        "kernels/attention/cuda/schedule.h",
        "const unsigned width = min(section, heads - first),",
        "const unsigned width = heads - first,",
        ["kernels_emulated_attention"]),
    "D of the wrong head": (
        "kernels/attention/cuda/query_statistics.h",
        "const T* const o = x.o.rows(batch, head)[query];",
        "const T* const o = x.o.rows(batch, head / 2)[query];",
        ["kernels_attention_16bit"]),
    "D is summed over lanes of another row": (
        "kernels/attention/cuda/query_statistics.h",
        "__shfl_xor_sync(gpu::kFullWarp, result.delta, 2)",
        "__shfl_xor_sync(gpu::kFullWarp, result.delta, 4)",
        ["kernels_attention"]),
    "gradients are rotated on instead of back": (
        "kernels/attention/cuda/rotate_back.h",
        "const float turned = fmaf(a, cosine, b * sine);",
        "const float turned = fmaf(a, cosine, -(b * sine));",
        ["kernels_attention_rotary"]),
    "pairs of neighbours are rotated by the angles of other pairs": (
        "kernels/attention/cuda/rotate_back.h",
        "const int pair = places.column_of(piece, 0) / 2;",
        "const int pair = places.column_of(piece, 0) / 4;",
        ["kernels_attention_rotary"]),
    "Hopper: keys' gradients are not rotated back": (
        "kernels/attention/cuda/hopper/key_value_gradient.h",
        "    rotate_back(dk, x.rotation, x.extents, block.batch, first_row);\n",
        "",
        ["kernels_attention_rotary"]),
    "both gradients of a pair of warps are rotated back": (
        "kernels/attention/cuda/key_value_gradient_mma.cu",
        "if (!makes_dv) rotate_back(",
        "rotate_back(",
        ["kernels_attention_rotary --architecture=80"]),
    "a document's gradients are rotated back by positions in the row": (
        "kernels/rope/device.h",
        "(positions != nullptr ? positions[n] : token)",
        "(positions != nullptr && n < 0 ? positions[n] : token)",
        ["kernels_attention_rotary", "kernels_rope", "kernels_qk_norm"]),
    "a position outside the table is read": (
        "kernels/attention/cuda/rotate_back.h",
        "      if (!by.has(position)) continue;  // rope_forward has reported it\n",
        "",
        ["kernels_attention_rotary"]),
    "Hopper: gradients are made before the queries' statistics": (
        "kernels/attention/cuda.cpp",
        "    compute_statistics(call, statistics);\n"
        "    return backward_hopper(call, statistics);\n",
        "    backward_hopper(call, statistics);\n"
        "    return compute_statistics(call, statistics);\n",
        ["kernels_attention_16bit"]),
    "Hopper: the last section of a backward pass is taken to be whole": (
        "kernels/attention/cuda/hopper/work.h",
        "min(keys_of_section, keys.count() - first_key)",
        "keys_of_section",
        ["kernels_emulated_attention"]),
    "Hopper: the two parts of a backward pass count rows' tiles apart": (
        "kernels/attention/cuda/hopper/query_gradient.h",
        "  memory.queries.wait(rows);\n",
        "  memory.queries.wait(rows + 1);\n",
        ["kernels_attention_16bit"]),
    "Hopper: smaller tiles announce the bytes of whole stages": (
        "kernels/cuda/tile_ring.h",
        "arrive_and_expect(full[number % kStages], Tile::kBytes + more)",
        "arrive_and_expect(full[number % kStages], kRoom * sizeof(Element) + more)",
        ["kernels_attention_16bit"]),
    "statistics of a head are made from the rows of another batch element": (
        "kernels/attention/cuda/query_statistics.cu",
        "x, all_head / n.heads, all_head % n.heads,",
        "x, all_head / n.kv_heads, all_head % n.heads,",
        ["kernels_attention_16bit"]),
    "a document's tiles begin at the row's first key": (
        "kernels/attention/cuda/pieces.h",
        "min(max(key, 0), first + n.shift())",
        "0",
        ["kernels_attention_first_key"]),
    "no barrier between the pieces of a block": (
        "kernels/attention/cuda/pieces.h",
        "    __syncthreads();  // all warps are done with the last piece\n",
        "",
        ["kernels_attention_first_key"]),
    "a document's keys are seen by the queries after it": (
        "kernels/attention/cuda/pieces.h",
        "max(first_keys[end_query - 1] - n.shift(), 0), end_query}",
        "max(first_keys[end_query - 1] - n.shift(), 0), n.queries}",
        ["kernels_attention_first_key"]),
    "tiles of queries are counted from query 0": (
        "kernels/attention/cuda/pieces.h",
        "{max(first_keys[end_query - 1] - n.shift(), 0), end_query}",
        "{0, end_query}",
        ["kernels_attention_first_key"]),
    "first keys are not checked": (
        "kernels/attention/cuda/pieces.h",
        "first_keys[query] >= least && ",
        "first_keys[query] >= least - n.keys && ",
        ["kernels_attention_first_key"]),
    "a piece is stored over the one before it": (
        "kernels/attention/cuda/fragments.h",
        "    if (first_token + row < range.first) continue;\n",
        "",
        ["kernels_attention_first_key"]),
    "the next document's queries are loaded": (
        "kernels/attention/cuda/key_value_gradient_mma.cu",
        "x.d_o.rows(batch, head), first_query, range.end);",
        "x.d_o.rows(batch, head), first_query, n.queries);",
        ["kernels_attention_first_key --architecture=80"]),
    "a document that begins at an odd query reads the statistics of the one before": (
        "kernels/attention/cuda/key_value_gradient_mma.cu",
        "memory.statistics_of(step) + odd;",
        "memory.statistics_of(step);",
        ["kernels_attention_first_key --architecture=80"]),
    "the next document's keys are loaded": (
        "kernels/attention/cuda/forward_mma.cu",
        "count = piece.end + n.shift();",
        "count = n.keys;",
        ["kernels_attention_first_key --architecture=80"]),
    "the last channels of heads of 80 are not loaded": (
        "kernels/attention/cuda/tiles.h",
        "chunk >= kHeadSize / 8) return;",
        "chunk >= kHeadSize / 8 - 1) return;",
        ["kernels_attention_16bit --architecture=80"]),

    # ---- attention with Hopper's instructions
    "Hopper: the producer does not wait for a free stage": (
        "kernels/cuda/tile_ring.h",
        "    gpu::wait(empty[number % kStages], parity(number) ^ 1);\n",
        "",
        ["kernels_attention_16bit"]),
    "Hopper: consumers do not wait for a tile": (
        "kernels/cuda/tile_ring.h",
        "    gpu::wait(full[number % kStages], parity(number));\n",
        "",
        ["kernels_attention_16bit"]),
    "Hopper: a tile's barrier expects too few bytes": (
        "kernels/cuda/tile_ring.h",
        "Tile::kBytes + more);",
        "Tile::kBytes);",
        ["kernels_attention_16bit"]),
    "Hopper: the consumers' first turn has no beginning": (
        "kernels/attention/cuda/hopper/pipeline.h",
        "    if (group == 1) pass();",
        "    if (group == 2) pass();",
        ["kernels_attention_16bit"]),
    "Hopper: keys are released before their products are complete": (
        "kernels/attention/cuda/hopper/forward.cu",
        "    gpu::wait_products<1>(scores.values[0]);\n"
        "    memory.keys.release(tile);\n",
        "    memory.keys.release(tile);\n"
        "    gpu::wait_products<1>(scores.values[0]);\n",
        ["kernels_attention_16bit"]),
    "Hopper: values are released with the keys": (
        "kernels/attention/cuda/hopper/forward.cu",
        "    gpu::wait_products<0>(outputs.values[0]);\n"
        "    memory.values.release(tile - 1);\n"
        "    scale_rows",
        "    memory.values.release(tile - 1);\n"
        "    gpu::wait_products<0>(outputs.values[0]);\n"
        "    scale_rows",
        ["kernels_attention_16bit"]),
    "Hopper: outputs are corrected while they are summed": (
        "kernels/attention/cuda/hopper/forward.cu",
        "    gpu::wait_products<0>(outputs.values[0]);\n"
        "    memory.values.release(tile - 1);\n"
        "    scale_rows(outputs, corrections);\n",
        "    scale_rows(outputs, corrections);\n"
        "    gpu::wait_products<0>(outputs.values[0]);\n"
        "    memory.values.release(tile - 1);\n",
        ["kernels_attention_16bit"]),
    "Hopper: outputs are not corrected": (
        "kernels/attention/cuda/hopper/forward.cu",
        "    scale_rows(outputs, corrections);\n",
        "",
        ["kernels_attention_16bit"]),
    "Hopper: all warps of a consumer have one mask": (
        "kernels/attention/cuda/hopper/forward.cu",
        "last_seen + ConsumerRows::of_warp();",
        "last_seen;",
        ["kernels_attention_16bit"]),
    "Hopper: a tile on the diagonal is not masked": (
        "kernels/attention/cuda/hopper/forward.cu",
        "last_seen >= kKeys - 1; ++step",
        "last_seen >= 0; ++step",
        ["kernels_attention_16bit"]),
    "Hopper: values behind a document are not cleared": (
        "kernels/attention/cuda/hopper/forward.cu",
        "    if (kCut && count < kKeys) gpu::clear_rows",
        "    if (kCut && count < 0) gpu::clear_rows",
        ["kernels_attention_first_key"]),
    "adamw: the CPU rounds a finite value to infinity": (
        "kernels/adamw/cpu.cpp",
        "magnitude < kLargest ? chance : 0",
        "magnitude < 0x7f800000u ? chance : 0",
        ["kernels_adamw"]),
    "adamw: a GPU rounds a finite value to infinity": (
        "kernels/adamw/cuda.cu",
        "(magnitude < kLargest ? chance : 0)",
        "chance",
        ["kernels_adamw"]),
    "Hopper: one thread fences for all that have cleared rows": (
        "kernels/cuda/tile_ring.h",
        "  fence_shared_for_engines();\n",
        "  if (threadIdx.x == kWarpgroup) fence_shared_for_engines();\n",
        ["kernels_attention_first_key"]),
    "Hopper: cleared rows are not shown to the tensor cores": (
        "kernels/cuda/tile_ring.h",
        "  fence_shared_for_engines();\n",
        "",
        ["kernels_attention_first_key"]),
    "Hopper: a panel of 64 channels is taken for the whole row": (
        "kernels/cuda/panel_tile.h",
        "step / kSteps * kRows + row",
        "row",
        ["kernels_attention_16bit"]),
    "Hopper: the first draw skips a block of rows": (
        "kernels/cuda/work_queue.h",
        "return drawn + thread_blocks();",
        "return drawn + thread_blocks() + 1;",
        ["kernels_emulated_attention"]),
    "Hopper: a launch leaves its count of draws to the next": (
        "kernels/cuda/work_queue.h",
        "    if (drawn + 1 == count) atomicExch(draws, 0u);\n",
        "",
        ["kernels_attention_16bit"]),
    "the last section of heads is a small one": (
        "kernels/attention/cuda/schedule.h",
        "return static_cast<unsigned>(ceil_div(all, sections));",
        "return static_cast<unsigned>(sections > 1 ? most : all);",
        ["kernels_emulated_attention"]),
    "Hopper: a block of queries visits the keys that are hidden from it": (
        "kernels/attention/cuda/hopper/work.h",
        "count(block.visible_keys(n, piece.end) - piece.first_key)",
        "count(0 * block.visible_keys(n, piece.end) + n.keys - piece.first_key)",
        ["kernels_emulated_traffic"]),
    "the first block of a group adds its lines": (
        "kernels/cuda/column_sums.h",
        "last = atomicAdd(ticket, 1u) + 1 == count;",
        "last = atomicAdd(ticket, 1u) == 0 && count > 0;",
        ["kernels_rms_norm"]),
    "tickets are not given back": (
        "kernels/cuda/column_sums.h",
        "      if (last) atomicExch(ticket, 0u);\n",
        "",
        ["kernels_rms_norm"]),
    "the last group of blocks is taken for a whole one": (
        "kernels/cuda/column_sums.h",
        "const unsigned size = min(blocks_of_group, count - first);",
        "const unsigned size = blocks_of_group;",
        ["kernels_rms_norm"]),
    "the sum of groups reads the lines of the first groups' blocks": (
        "kernels/cuda/column_sums.h",
        "      to_next *= blocks_of_group;\n",
        "",
        ["kernels_layer_norm"]),
    "sums over rows have a line for every row": (
        "kernels/cuda/column_sums.h",
        "/*fewest_rows=*/8",
        "/*fewest_rows=*/1",
        ["kernels_emulated_traffic"]),
    "Hopper: statistics are read from an even query on": (
        "kernels/attention/cuda/hopper/key_value_gradient.h",
        "memory.statistics_of(tile) + (kCut ? queries.odd : 0);",
        "memory.statistics_of(tile);",
        ["kernels_attention_first_key"]),
    "Hopper: queries behind a document keep their statistics": (
        "kernels/attention/cuda/hopper/key_value_gradient.h",
        "statistics[thread] = {INFINITY, 0.0f};",
        "",
        ["kernels_attention_first_key"]),
    "Hopper: a query does not see its own key": (
        "kernels/attention/cuda/hopper/key_value_gradient.h",
        "key + of_warp <= query;",
        "key + of_warp < query;",
        ["kernels_attention_16bit"]),
    "Hopper: queries are released before their products are complete": (
        "kernels/attention/cuda/hopper/key_value_gradient.h",
        "    gpu::wait_products<0>(dk.values[0]);\n",
        "    gpu::wait_products<1>(dv.values[0]);\n",
        ["kernels_attention_16bit"]),
    "Hopper: dS takes the registers of P while dV reads them": (
        "kernels/attention/cuda/hopper/key_value_gradient.h",
        "    gpu::wait_products<0>(dv.values[0]);\n"
        "    pack<T>(operand, ds);\n",
        "    pack<T>(operand, ds);\n"
        "    gpu::wait_products<0>(dv.values[0]);\n",
        ["kernels_attention_16bit"]),
    "Hopper: keys are released after dP": (
        "kernels/attention/cuda/hopper/query_gradient.h",
        "    memory.values.release(tile);\n",
        "    memory.values.release(tile);\n"
        "    memory.keys.release(tile);\n",
        ["kernels_attention_16bit"]),
    "Hopper: the gradient of queries masks one key too many": (
        "kernels/attention/cuda/hopper/query_gradient.h",
        "column <= row + of_warp;",
        "column < row + of_warp;",
        ["kernels_attention_16bit"]),

    # ---- norms and bias
    "no barrier before the last call's partial sums are overwritten": (
        "kernels/cuda/rows.h",
        "    __syncthreads();  // the readers of an earlier call are done\n",
        "",
        ["kernels_rms_norm", "kernels_layer_norm"]),
    "epsilon outside the root": (
        "kernels/rms_norm/cuda.cu",
        "1.0f / sqrtf(mean_square + p.epsilon)",
        "1.0f / (sqrtf(mean_square) + p.epsilon)",
        ["kernels_rms_norm"]),
    "keys are normalized with the weight of queries": (
        "kernels/qk_norm/cuda.cu",
        "p.weight + (head < p.queries ? 0 : size)",
        "p.weight + (head < p.heads ? 0 : size)",
        ["kernels_qk_norm"]),
    "a head's sum of squares is that of all heads of a warp": (
        "kernels/qk_norm/cuda.cu",
        "warp_reduce<Sum>(squares, p.lanes)",
        "warp_reduce<Sum>(squares)",
        ["kernels_qk_norm"]),
    "a head's sum of products is that of all heads of a warp": (
        "kernels/cuda/rows.h",
        "Layout::kTeam < kWarpSize ? Layout::kTeam : kWarpSize);",
        "kWarpSize);",
        ["kernels_qk_norm"]),
    "a team behind a chunk's last head takes another's": (
        "kernels/qk_norm/cuda.cu",
        "row < tokens * heads ? size : 0",
        "row <= tokens * heads ? size : 0",
        ["kernels_qk_norm"]),
    "a chunk's later tokens are taken for its first": (
        "kernels/qk_norm/cuda.cu",
        "begin + row / heads",
        "begin + row / (heads * tokens)",
        ["kernels_qk_norm"]),
    "the sums of keys overwrite those of queries": (
        "kernels/qk_norm/cuda.cu",
        "p.lines + (2 * blockIdx.x + kind) * p.stride",
        "p.lines + 2 * blockIdx.x * p.stride",
        ["kernels_qk_norm"]),
    "a head's epsilon is outside the root": (
        "kernels/qk_norm/cuda.cu",
        "1.0f / sqrtf(mean_square + p.epsilon)",
        "1.0f / (sqrtf(mean_square) + p.epsilon)",
        ["kernels_qk_norm"]),
    "heads of an odd number of pairs are written beyond their end": (
        "kernels/rope/device.h",
        "if (i < count) gpu::store",
        "if (count > 0) gpu::store",
        ["kernels_qk_norm", "kernels_rope"]),
    "the variance counts a column too many": (
        "kernels/layer_norm/cuda.cu",
        "column < columns ? x - mean",
        "column <= columns ? x - mean",
        ["kernels_layer_norm"]),
    "sums over rows begin with what the workspace holds": (
        "kernels/layer_norm/cuda.cu",
        "dbias.resume(bias_line + c, p.C - c, n == begin);",
        "dbias.resume(bias_line + c, p.C - c, false);",
        ["kernels_layer_norm"]),
    "the last columns, fewer than a stripe, are left out": (
        "kernels/bias/cuda.cu",
        "stripes(ceil_div(C, stripe)),",
        "stripes(C / stripe > 0 ? C / stripe : 1),",
        ["kernels_bias"]),

    # ---- element by element
    "the last vector is taken though it is not whole": (
        "kernels/cuda/elementwise.h",
        "  if (i + kWidth <= count) {",
        "  if (i < count) {",
        ["kernels_add"]),
    "vectors at addresses that are not multiples of 16": (
        "kernels/swiglu/cuda.cu",
        "gpu::is_vectorizable(first, stride) && ",
        "",
        ["kernels_swiglu"]),
    "a gradient is overwritten before its last reader": (
        "kernels/swiglu/cuda.cu",
        "  up = d * (gate * s);\n"
        "  gate = of_gate;\n",
        "  gate = of_gate;\n"
        "  up = d * (gate * s);\n",
        ["kernels_swiglu"]),
    "gradients of weighed rows are those of rows that are not": (
        "kernels/swiglu/cuda.cu",
        "differentiate(g[i], u[i], gpu::rounded<T>(d[i] * weight));",
        "differentiate(g[i], u[i], d[i]);",
        ["kernels_swiglu"]),
    "a weight's gradient is summed from h before it is rounded": (
        "kernels/swiglu/cuda.cu",
        "const float h = gpu::rounded<T>(gpu::swiglu(g[i], u[i]));",
        "const float h = gpu::swiglu(g[i], u[i]);",
        ["kernels_swiglu"]),
    "the rows of experts are made again without their weights": (
        "kernels/swiglu/cuda.cu",
        "y[i] = h * weight;",
        "y[i] = h;",
        ["kernels_swiglu"]),
    "a row of experts has the weight of the slot with its number": (
        "kernels/swiglu/cuda.cu",
        "const float weight = x.slots.weight(slot);",
        "const float weight = x.slots.weight(row);",
        ["kernels_swiglu"]),
    "up is gate's columns again": (
        "kernels/grouped_matmul/hopper/tiles.h",
        "      (kTransposed ? b.token : b.channel) += work.section;\n",
        "",
        ["kernels_grouped_matmul"]),
    "swiglu takes sums that are not rounded": (
        "kernels/grouped_matmul/hopper/products.cu",
        "gpu::swiglu(gpu::rounded<U>(value), gpu::rounded<U>(up[i / 2][i % 2]))",
        "gpu::swiglu(value, up[i / 2][i % 2])",
        ["kernels_grouped_matmul"]),
    "a tile of gate and up moves on by all of its columns": (
        "kernels/grouped_matmul/hopper/work.h",
        "static_cast<int>(tile) * (kColumns / kSectionsOf<kResult>)",
        "static_cast<int>(tile) * kColumns",
        ["kernels_grouped_matmul"]),
    "a band's tiles go down as far as in a full one": (
        "kernels/grouped_matmul/hopper/work.h",
        "min(kBand, tiles(p.P, kTileRows) - band * kBand)",
        "kBand",
        ["kernels_emulated_grouped_matmul"]),
    "swiglu's rows are aligned though the result's are not": (
        "kernels/grouped_matmul/cuda.cu",
        "!suits_tensor_cores(problem) || !gpu::is_vectorizable(problem.gated, y.size(1)) ||",
        "!suits_tensor_cores(problem) ||",
        ["kernels_grouped_matmul"]),
    "a dense gated layer forgets the rank's choice": (
        "kernels/linear/cuda.cpp",
        "bias.defined() || matmul_options().swiglu == SwigluChoice::separate",
        "bias.defined()",
        ["kernels_emulated_grouped_matmul"]),
    "a dense gated layer forgets its bias": (
        "kernels/linear/cuda.cpp",
        "bias.defined() || matmul_options()",
        "(false && bias.defined()) || matmul_options()",
        ["kernels_linear"]),
    "columns are copied in vectors though rows do not begin aligned": (
        "kernels/columns/cuda.cu",
        "gpu::is_vectorizable(to, columns) && gpu::is_vectorizable(from, stride) &&",
        "gpu::is_vectorizable(to, columns) &&",
        ["kernels_columns"]),
    "a product adds to its old result in place of the residual": (
        "kernels/cuda/gemm.cpp",
        "at.addend ? at.addend : at.c",
        "at.c",
        ["kernels_linear"]),
    "bf16 is cut off instead of rounded": (
        "kernels/cast/device.h",
        "  gpu::store(to, value);\n"
        "  if ((bits & 0x7fffffffu) > 0x7f800000u) to.bits = static_cast<std::uint16_t>(bits >> 16 | 0x40u);",
        "  to.bits = static_cast<std::uint16_t>(bits >> 16);\n"
        "  if ((bits & 0x7fffffffu) > 0x7f800000u) to.bits |= 0x40u;",
        ["kernels_cast"]),
    "a copy between equal dtypes quiets signalling NaNs": (
        "kernels/cast/cuda.cu",
        "if constexpr (std::is_same_v<To, From>) {",
        "if constexpr (std::is_same_v<To, From> && sizeof(To) == 4) {",
        ["kernels_cast"]),
    "add_all overwrites its sums": (
        "kernels/add/cuda.cu",
        "gpu::store(sum, gpu::load(sum) + gpu::load(addend));",
        "gpu::store(sum, gpu::load(addend));",
        ["kernels_add"]),
    "the tensors of the last launch are left out": (
        "kernels/cuda/multi_tensor.h",
        "    list.chunks += chunks;\n"
        "  }\n"
        "  flush();\n",
        "    list.chunks += chunks;\n"
        "  }\n",
        ["kernels_cast", "kernels_adamw"]),
    "a vector's second half repeats the first's dropout mask": (
        "kernels/dropout/cuda.cu",
        "random.block(static_cast<std::uint64_t>(first + i) / kWords);",
        "random.block(static_cast<std::uint64_t>(first) / kWords);",
        ["kernels_dropout"]),
    "positions continue from one sequence to the next": (
        "kernels/rope/cuda.cu",
        "const unsigned batch = n / of.tokens, token = n % of.tokens;",
        "const unsigned batch = n / of.tokens, token = n;",
        ["kernels_rope"]),
    "YaRN's amplitude is forgotten": (
        "kernels/rope/table.cpp",
        "if (!in_f32) return value * frequencies.amplitude;",
        "if (!in_f32) return value;",
        ["kernels_rope"]),
    "YaRN's ramp counts channels, not pairs": (
        "kernels/rope/table.cpp",
        "return 2.0 * pairs * logarithm(waves) / (2.0 * logarithm(theta));",
        "return 2.0 * pairs * logarithm(waves) / logarithm(theta);",
        ["kernels_rope"]),
    "angles in f32 are not rounded": (
        "kernels/rope/table.cpp",
        "if (in_f32) angle = static_cast<float>(angle);",
        "",
        ["kernels_rope"]),

    # ---- reductions and sums
    "no barrier between the warps' results and their reader": (
        "kernels/reduce/cuda.cu",
        "  __syncthreads();\n",
        "",
        ["kernels_reduce"]),
    "no barrier between the words of the warps and their sum": (
        "kernels/gradient_norm/cuda.cu",
        "  __syncthreads();\n",
        "",
        ["kernels_gradient_norm"]),
    "a shuffle of half a warp": (
        "kernels/gradient_norm/cuda.cu",
        "max(value, __shfl_xor_sync(gpu::kFullWarp, value, distance))",
        "max(value, __shfl_xor_sync(0xffffu, value, distance))",
        ["kernels_gradient_norm"]),
    "a mixed product is counted once": (
        "kernels/gradient_norm/cuda.cu",
        "shifted(high_low, 23)",
        "shifted(high_low, 22)",
        ["kernels_gradient_norm"]),
    "the scale of denormal numbers is infinite": (
        "kernels/gradient_norm/cuda.cu",
        "top = max(largest >> 23, kLowest);",
        "top = largest >> 23;",
        ["kernels_gradient_norm"]),
    "numbers far below the warp's largest are left out": (
        "kernels/gradient_norm/cuda.cu",
        "    if (!add_squares(words, x, range)) return;\n",
        "    add_squares(words, x, range);\n    return;\n",
        ["kernels_gradient_norm"]),
    "a total that is not set to zero": (
        "kernels/gradient_norm/cuda.cu",
        "  words.zero();\n",
        "",
        ["kernels_gradient_norm"]),
    "elements before the window are written": (
        "kernels/tree_reduce/cuda.cu",
        "return begin + j >= 0 && begin + j < count;",
        "return begin + j < count;",
        ["kernels_tree_reduce"]),

    "the last run of sources, fewer than 128, is left out": (
        "kernels/tree_reduce/cuda.cu",
        "begin < sources.size(); begin += kRun",
        "begin + kRun <= sources.size(); begin += kRun",
        ["kernels_tree_reduce"]),

    # ---- cross-entropy
    "the sum of exponentials is not scaled down when the maximum rises": (
        "kernels/cross_entropy/row.h",
        "      sum *= exponential<T>(maximum - largest);\n",
        "",
        ["kernels_cross_entropy"]),
    "every row's gradient is scaled by the first row's": (
        "kernels/cross_entropy/cuda.cu",
        "1.0f, dloss[n], target",
        "1.0f, dloss[0], target",
        ["kernels_cross_entropy"]),
    "ignore_index is not ignored": (
        "kernels/cross_entropy/cuda.cu",
        "    if (target == ignore_index) return -1;\n",
        "",
        ["kernels_cross_entropy"]),
    "the target's logit is read after others have written": (
        "kernels/cross_entropy/cuda.cu",
        "const float at_target = gpu::load(row[target]);",
        "struct {\n"
        "    const T* logit;\n"
        "    operator float() const { return gpu::load(*logit); }\n"
        "  } const at_target{row + target};",
        ["kernels_linear_cross_entropy"]),
    "gradients of ignored rows stay logits": (
        "kernels/cross_entropy/cuda.cu",
        "    return gpu::zero_row(row, parts);\n"
        "  }\n"
        "  const float at_target",
        "    return;\n"
        "  }\n"
        "  const float at_target",
        ["kernels_linear_cross_entropy"]),
    "the last tokens, fewer than a chunk, are left out": (
        "kernels/linear_cross_entropy/cuda.cpp",
        "begin < tokens; begin += chunk",
        "begin + chunk <= tokens; begin += chunk",
        ["kernels_linear_cross_entropy"]),
    "every chunk's weight gradient overwrites the last one's": (
        "kernels/linear_cross_entropy/cuda.cpp",
        "begin == 0 ? accumulate_dweight : Accumulate::yes",
        "accumulate_dweight",
        ["kernels_linear_cross_entropy"]),
    "rows of logits are written without their padding": (
        "kernels/linear_cross_entropy/cuda.cpp",
        ",\n"
        "            .c_stride = logits_.size(1)",
        "",
        ["kernels_linear_cross_entropy"]),
    "the last classes of a large vocabulary are left out": (
        "kernels/linear_cross_entropy/cuda.cpp",
        "{{0, classes - rest}, {classes - rest, rest}}",
        "{{0, classes - rest}}",
        ["kernels_linear_cross_entropy"]),
    "the last classes' part of dx overwrites the rest": (
        "kernels/linear_cross_entropy/cuda.cpp",
        ".accumulate = part.first > 0,",
        ".accumulate = false,",
        ["kernels_linear_cross_entropy"]),

    # ---- embedding and its sort
    "the sort is not stable": (
        "kernels/cuda/radix_sort.cu",
        "    const unsigned peers = lanes_with(digit);\n"
        "    rank[round] = places[warp][digit] + __popc(peers & ((1u << lane) - 1));\n"
        "    __syncwarp();\n"
        "    if (peers >> lane == 1) places[warp][digit] = rank[round] + 1;  // the last of them\n"
        "    __syncwarp();\n",
        "    rank[round] = atomicAdd(&places[warp][digit], 1u);\n",
        ["kernels_embedding"]),
    "no __syncwarp between reading a count and raising it": (
        "kernels/cuda/radix_sort.cu",
        "    __syncwarp();\n"
        "    if (peers >> lane == 1)",
        "    if (peers >> lane == 1)",
        ["kernels_embedding"]),
    "every run of an id adds what the table held": (
        "kernels/embedding/cuda.cu",
        "if (first && accumulate) gpu::load_all",
        "if (accumulate) gpu::load_all",
        ["kernels_embedding"]),

    "the table's row of padding gets a gradient on the GPU": (
        "kernels/embedding/cuda.cu",
        "if (outside || id == padding_id) id = rows;",
        "if (outside || (id < 0 && id == padding_id)) id = rows;",
        ["kernels_embedding"]),
    "the table's row of padding gets a gradient on the CPU": (
        "kernels/embedding/cpu.cpp",
        "if (id == padding_id || (i > 0 && id_of(occurrences[i - 1]) == id)) continue;",
        "if ((id < 0 && id == padding_id) || (i > 0 && id_of(occurrences[i - 1]) == id)) continue;",
        ["kernels_embedding"]),

    # ---- products
    "products never add to what is there": (
        "kernels/matmul/cuda.cpp",
        ".accumulate = accumulate == Accumulate::yes,",
        ".accumulate = false,",
        ["kernels_matmul"]),
    "a transposed product finds the plan of one that is not": (
        "kernels/cuda/gemm.cpp",
        "g.K, g.transpose_a, g.transpose_b, g.accumulate,",
        "g.K, g.transpose_b, g.accumulate,",
        ["kernels_matmul"]),
    "products add the bias of the first call": (
        "kernels/cuda/gemm.cpp",
        "    plan->problem.point_to(at);\n",
        "",
        ["kernels_linear"]),
    "the bias gradient is summed along the wrong side": (
        "kernels/linear/cuda.cpp",
        "as_stored ? Epilogue::column_sums_of_b : Epilogue::row_sums_of_a",
        "as_stored ? Epilogue::row_sums_of_a : Epilogue::column_sums_of_b",
        ["kernels_linear"]),
    "the exact form of gelu takes tanh's epilogue": (
        "kernels/linear/op.cpp",
        "if (form == GeluForm::tanh &&\n        cuda::linear_gelu_forward",
        "if (cuda::linear_gelu_forward",
        ["kernels_linear"]),
    "the exact form of gelu has no density in its gradient": (
        "kernels/gelu/cuda.cu",
        "x * kDensity * expf(-0.5f * x * x)",
        "0.0f * kDensity * expf(-0.5f * x * x)",
        ["kernels_gelu"]),
    "f32 results take gelu's approximate epilogue": (
        "kernels/linear/cuda.cpp",
        "return size_of(product.out) == 2 && product.N % 8 == 0;",
        "return product.N % 8 == 0;",
        ["kernels_linear"]),
    "a given choice of an algorithm is measured again": (
        "kernels/cuda/gemm.cpp",
        "  choices_ = algorithms.choices;\n",
        "",
        ["kernels_emulated_algorithms"]),
    "plans outlive the choices they were made by": (
        "kernels/cuda/gemm.cpp",
        "  choices_ = algorithms.choices;\n  plans_.clear();\n",
        "  choices_ = algorithms.choices;\n",
        ["tools_emulated_algorithms"]),
    "the slowest algorithm is chosen": (
        "kernels/cuda/fastest.cpp",
        "if (times[kTrials / 2] < best_time) best_time",
        "if (i == 0 || times[kTrials / 2] > best_time) best_time",
        ["kernels_emulated_algorithms"]),
    "a run that continues measures its algorithms again": (
        "tools/train/runner.cpp",
        "      restore_algorithms(path);\n",
        "",
        ["tools_emulated_algorithms"]),
    "every rank takes the first rank's algorithms": (
        "tools/train/algorithms.cpp",
        "ranks[static_cast<std::size_t>(rank) % ranks.size()]",
        "ranks[0]",
        ["tools_emulated_algorithms"]),
    "streams share a workspace": (
        "kernels/cuda/gemm.cpp",
        "workspaces_[current_stream().id()]",
        "workspaces_[0]",
        ["kernels_matmul"]),

    # ---- mixture of experts
    "of equal logits the higher expert is chosen": (
        "kernels/router/cuda.cu",
        "if (has(i) || (any && value <= largest)) return;",
        "if (has(i) || (any && value < largest)) return;",
        ["kernels_router"]),
    "among lanes with equal logits the highest expert is chosen": (
        "kernels/router/cuda.cu",
        "const unsigned candidate = any && largest == winner ? best : 0xffffffffu;\n"
        "      const unsigned expert = ~warp_max(~candidate);",
        "const unsigned candidate = any && largest == winner ? best : 0u;\n"
        "      const unsigned expert = warp_max(candidate);",
        ["kernels_router"]),
    "the bias is part of the softmax's sum only": (
        "kernels/router/cuda.cu",
        "(kind == RouterWeights::sigmoid ? sigmoid(l) : softmax(l)) + bias[e];",
        "(kind == RouterWeights::sigmoid ? sigmoid(l) : softmax(l + bias[e]));",
        ["kernels_router"]),
    "normalized weights sum over all experts": (
        "kernels/router/cuda.cu",
        "softmax(token, kind == RouterWeights::softmax) {}",
        "softmax(token, true) {}",
        ["kernels_router"]),
    "logits that were not chosen have no gradient": (
        "kernels/router/cuda.cu",
        "const bool counts = token.has(i) || kind == RouterWeights::softmax;",
        "const bool counts = token.has(i);",
        ["kernels_router"]),
    "the first experts without tokens have no offset": (
        "kernels/dispatch/cuda.cu",
        "const std::int64_t first = p == 0 ? 0 : expert_of(sorted[p - 1]) + 1;",
        "const std::int64_t first = p == 0 ? expert_of(sorted[0]) : expert_of(sorted[p - 1]) + 1;",
        ["kernels_dispatch"]),
    "combine adds the slots backwards": (
        "kernels/dispatch/cuda.cu",
        "    gpu::load_all(values, x + slots.place(s) * columns + column);\n"
        "    const float weight = slots.weight(s);",
        "    const std::int64_t t = (2 * n + 1) * slots.per_token - 1 - s;\n"
        "    gpu::load_all(values, x + slots.place(t) * columns + column);\n"
        "    const float weight = slots.weight(t);",
        ["kernels_dispatch"]),
    "a weight's gradient is that of another slot": (
        "kernels/dispatch/cuda.cu",
        "if (threadIdx.x == 0) gpu::store(dweights[slot], dot);",
        "if (threadIdx.x == 0) gpu::store(dweights[slots.place(slot)], dot);",
        ["kernels_dispatch"]),
    "dispatched rows are weighed by the token's first slot": (
        "kernels/dispatch/cuda.cu",
        "    scale(values, slots.weight(s));\n",
        "    scale(values, slots.weight(n * slots.per_token));\n",
        ["kernels_dispatch"]),
    "tiles of the second 32 experts begin at 0": (
        "kernels/grouped_matmul/groups.h",
        "    before += __shfl_sync(gpu::kFullWarp, end, 31);\n",
        "",
        ["kernels_grouped_matmul"]),
    "the grid has no tile for an expert's last rows": (
        "kernels/grouped_matmul/groups.h",
        "static_cast<unsigned>(P / side + experts)",
        "static_cast<unsigned>(ceil_div(P, side))",
        ["kernels_grouped_matmul --architecture=80"]),
    "an expert without tokens keeps its old gradient": (
        "kernels/grouped_matmul/groups.h",
        "return count > 0 || !accumulate;",
        "return count > 0;",
        ["kernels_grouped_matmul --architecture=80"]),
    "groups of rows from other ranks take the next matrix in memory": (
        "kernels/grouped_matmul/groups.h",
        "tile.expert % matrices * K * N",
        "tile.expert * K * N",
        ["kernels_grouped_matmul --architecture=80"]),
    "a tile reads on into the next expert's rows": (
        "kernels/grouped_matmul/tensor_core_tile.h",
        "const bool inside = has_column && i < rows;",
        "const bool inside = has_column && i <= rows;",
        ["kernels_grouped_matmul --architecture=80"]),
    "the tile's operands are copied without a wait": (
        "kernels/grouped_matmul/tensor_core_tile.h",
        "    gpu::copy_async_wait<0>();\n",
        "",
        ["kernels_grouped_matmul --architecture=80"]),
    "no barrier after the tiles have been read": (
        "kernels/grouped_matmul/cuda.cu",
        "    __syncthreads();  // all threads have read the tiles\n",
        "",
        ["kernels_grouped_matmul"]),

    # ---- grouped products with Hopper's instructions
    "grouped, Hopper: the next expert's rows count in a weight's gradient": (
        "kernels/grouped_matmul/hopper/products.cu",
        "kOfWeights && work.depth - depth < kStepDepth",
        "kOfWeights && work.depth - depth < 0",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: of the next expert's rows only one operand's are cleared": (
        "kernels/grouped_matmul/hopper/products.cu",
        "gpu::clear_rows(work.depth - depth, tiles.left(), tiles.right());",
        "gpu::clear_rows(work.depth - depth, tiles.left());",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: a step's tiles are released while their products are in flight": (
        "kernels/grouped_matmul/hopper/products.cu",
        "      gpu::wait_products<1>();\n",
        "",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: a consumer without rows keeps the tiles": (
        "kernels/grouped_matmul/hopper/products.cu",
        "      wait(work, depth);\n"
        "      ring.release(tile);\n",
        "      wait(work, depth);\n",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: both consumers take the first one's columns of a": (
        "kernels/grouped_matmul/hopper/tiles.h",
        "left().columns(step, group)",
        "left().columns(step)",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: a tile's sum begins with the last tile's": (
        "kernels/grouped_matmul/hopper/products.cu",
        "start_products(sum, rows.group, depth > 0);",
        "start_products(sum, rows.group, true);",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: rows behind the expert's last are stored": (
        "kernels/grouped_matmul/hopper/products.cu",
        "work.columns - 8 * n, row < work.rows,",
        "work.columns - 8 * n, row <= work.rows,",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: an expert without tokens keeps its old gradient": (
        "kernels/grouped_matmul/hopper/products.cu",
        "      if (problem.accumulate) return;\n",
        "      return;\n",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: lanes exchange words with one neighbour only": (
        "kernels/grouped_matmul/hopper/store.h",
        "distance < 4; distance *= 2",
        "distance < 2; distance *= 2",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: a row's last columns are followed by the next row's": (
        "kernels/grouped_matmul/hopper/store.h",
        "inside = inside && 8 * lane < columns;",
        "inside = inside && 8 * lane <= columns;",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: groups of rows from other ranks take the next matrix in memory": (
        "kernels/grouped_matmul/hopper/work.h",
        "tile.expert % p.matrices);",
        "tile.expert);",
        ["kernels_grouped_matmul"]),
    "grouped, Hopper: a thread block's way back begins one too far": (
        "kernels/grouped_matmul/hopper/work.h",
        "gridDim.x - 1 - blockIdx.x;",
        "gridDim.x - 2 - blockIdx.x;",
        ["kernels_grouped_matmul"]),
    "grouped: tiles of 32 lanes' experts are not added up": (
        "kernels/grouped_matmul/groups.h",
        "    count += __shfl_xor_sync(gpu::kFullWarp, count, distance);\n",
        "",
        ["kernels_grouped_matmul"]),
    "the emulator takes columns of a wgmma's left operand for rows": (
        "runtime/emulation/device/warpgroup.cpp",
        "(first.a_by_columns ? read_left_columns : read_left_rows)(a,",
        "read_left_rows(a,",
        ["emulation_wgmma"]),
    "the emulator does not watch a left operand of columns": (
        "runtime/emulation/device/warpgroup.cpp",
        "ranges_.push_back({first.a.start, kDepth * kRowBytes, committed_});",
        "",
        ["emulation_wgmma"]),

    "the emulator counts sectors of 64 bytes": (
        "runtime/emulation/device/accesses.cpp",
        "kSector = 32,",
        "kSector = 64,",
        ["emulation_counts"]),
    "the emulator counts a warp's sector once for each lane": (
        "runtime/emulation/device/accesses.cpp",
        "  sectors_.erase(std::unique(sectors_.begin(), sectors_.end()), sectors_.end());\n",
        "",
        ["emulation_counts"]),
    "the emulator reads what the launch has written from memory": (
        "runtime/emulation/device/accesses.cpp",
        "} else if ((last_page_->written[word] & bit) == 0) {",
        "} else {",
        ["emulation_counts"]),
    "the emulator counts distinct sectors of all launches together": (
        "runtime/emulation/device/accesses.cpp",
        "  pages_.clear();\n",
        "",
        ["emulation_counts"]),
    "a lane's later visit to a place replaces its first": (
        "runtime/emulation/device/accesses.cpp",
        "visits[access.place]++",
        "visits[access.place]",
        ["emulation_counts"]),
    "instructions of lanes that diverge are counted in the order of their addresses": (
        "runtime/emulation/device/accesses.cpp",
        "instruction.turn = std::max(instruction.turn, i);",
        "instruction.turn = std::max<std::size_t>(instruction.turn, 0 * i);",
        ["emulation_counts"]),
    "lanes that end early are not merged with the others": (
        "runtime/emulation/device/accesses.cpp",
        "if (i >= warp.lanes[lane].size()) continue;",
        "if (longest.size() != warp.lanes[lane].size()) continue;",
        ["emulation_counts"]),
    "fields of a structure are accesses of their own": (
        "runtime/emulation/device/accesses.cpp",
        "last.address / 16 == access.address / 16;",
        "last.address / 4 == access.address / 4;",
        ["emulation_counts"]),
    "a bank conflict is two lanes in a bank, even at one word": (
        "runtime/emulation/device/accesses.cpp",
        "std::find(words[bank].begin(), known, word) != known",
        "known == nullptr",
        ["emulation_counts"]),
    "16 bytes a lane conflict with other quarters of the warp": (
        "runtime/emulation/device/accesses.cpp",
        "bytes <= 4 ? 32 : bytes <= 8 ? 16 : 8;",
        "bytes <= 4 ? 32 : 16;",
        ["emulation_counts"]),
    "the emulator's own reads for cp.async are counted": (
        "runtime/emulation/device/asynchronous_copy.h",
        "    const Unnoted unnoted;\n    auto* to",
        "    auto* to",
        ["emulation_counts"]),
    "a launch in the list has the counts of those before it": (
        "runtime/emulation/device/launch.cpp",
        "counter.of(entry.work) -= counter.of(before);",
        "static_cast<void>(counter), static_cast<void>(before);",
        ["emulation_counts"]),
    "the emulator does not count atomic operations": (
        "runtime/emulation/device/threads.cpp",
        "  ++block.statistics.atomics;\n",
        "",
        ["emulation_counts"]),

    # ---- graphs of the emulated runtime
    "a graph begins before the stream's earlier work": (
        "runtime/emulation/toolkit/graph.cpp",
        "wait_in(*lane, begin);",
        "static_cast<void>(lane);",
        ["runtime_emulated_graph"]),
    "a stream's later work overtakes a graph": (
        "runtime/emulation/toolkit/graph.cpp",
        "    wait_in(stream, executable.ends.back());\n",
        "",
        ["runtime_emulated_graph"]),
    "two launches of an executable graph overlap": (
        "runtime/emulation/toolkit/graph.cpp",
        "(const PointHandle& end : executable.ends) wait_in(stream, end);",
        "(const PointHandle& end : executable.ends) static_cast<void>(end);",
        ["runtime_emulated_graph"]),
    "a node does not wait for those of a later lane": (
        "runtime/emulation/toolkit/graph.cpp",
        "if (earlier->lane != node.lane) wait_in",
        "if (earlier->lane < node.lane) wait_in",
        ["runtime_emulated_graph"]),
    "marks of memory count as nodes": (
        "runtime/emulation/toolkit/graph.cpp",
        "if (!node->mark) found",
        "if (!node->mark || node->lane > 0) found",
        ["runtime_emulated_graph"]),
    "a captured stream that waits forgets its own work": (
        "runtime/emulation/toolkit/capture.cpp",
        "== 0) stream.ends.push_back(node);",
        "== 0) stream.ends = {node};",
        ["runtime_emulated_graph"]),
    "a graph may use freed device memory": (
        "runtime/emulation/toolkit/capture.cpp",
        "    if (exists) continue;",
        "    if (exists || use.block != 0) continue;",
        ["runtime_emulated_graph"]),
    "a refused call leaves the capture valid": (
        "runtime/emulation/toolkit/capture.cpp",
        "if (capture.broken.empty()) capture.broken = why;",
        "if (capture.ended) capture.broken = why;",
        ["runtime_emulated_capture"]),
    "a fork need not be joined": (
        "runtime/emulation/toolkit/capture.cpp",
        "return node->mark;",
        "return node->mark || node->lane > 0;",
        ["runtime_emulated_capture"]),
    "a global capture lets other threads allocate": (
        "runtime/emulation/toolkit/capture.cpp",
        "if (!own && !global) continue;",
        "if (!own && !(own && global)) continue;",
        ["runtime_emulated_capture"]),
    "a capture copies pageable memory": (
        "runtime/emulation/toolkit/cuda_memory.cpp",
        "if (stream->capture != nullptr && pageable) {",
        "if (stream->capture != nullptr && pageable && bytes > 64) {",
        ["runtime_emulated_capture"]),
    "a captured all-reduce reads buffers that are not ready": (
        "runtime/emulation/toolkit/nccl_exchange.cpp",
        "    add_waits(items, halves.sources, runs[i]->ready);\n",
        "",
        ["runtime_emulated_nccl_graph"]),
    "a captured all-reduce writes buffers that others read": (
        "runtime/emulation/toolkit/nccl_exchange.cpp",
        "    add_waits(items, halves.readers, runs[i]->read);\n",
        "",
        ["runtime_emulated_nccl_graph"]),
    "one rank captures a call that another queues": (
        "runtime/emulation/toolkit/nccl.cpp",
        " || other->captured != mine.captured ||\n",
        " ||\n",
        ["runtime_emulated_nccl_graph"]),

    "the router's loss sees the factors' mean over experts": (
        "kernels/router_loss/cuda.cu",
        "dloss[n] * p(e) * (factors[e] - mean + slope)",
        "dloss[n] * p(e) * (factors[e] - mean / experts + slope)",
        ["kernels_router_loss"]),
    "the router's loss squares a lane's share of logsumexp": (
        "kernels/router_loss/cuda.cu",
        "    sum = gpu::warp_reduce<gpu::Sum>(sum);\n",
        "",
        ["kernels_router_loss"]),

    # ---- events of the emulated pipelines
    "every lane of a warp is an event": (
        "runtime/emulation/device/events.cpp",
        "if (is_of_lanes(event.kind) &&",
        "if (false && is_of_lanes(event.kind) &&",
        ["emulation_events"]),
    "an event has its thread's number": (
        "runtime/emulation/device/block.cpp",
        "events_.add({kind, index, running_->number / kWarpSize, number",
        "events_.add({kind, index, running_->number, number",
        ["emulation_events"]),
    "a block leaves out the events that the block before had": (
        "runtime/emulation/device/block.cpp",
        "  events_.begin_block();\n",
        "",
        ["emulation_events"]),
    "a list of events goes on after it was taken": (
        "runtime/emulation/device/events.cpp",
        "  is_on_ = false;\n",
        "",
        ["emulation_events"]),
    "barriers have one number": (
        "runtime/emulation/device/shared_barriers.cpp",
        "const auto number = static_cast<int>(all.size());",
        "const auto number = 0 * static_cast<int>(all.size());",
        ["emulation_events"]),
    "a wait is an event of the phase that begins": (
        "runtime/emulation/device/shared_barriers.cpp",
        "barrier.number, barrier.current_phase() - 1);",
        "barrier.number, barrier.current_phase());",
        ["emulation_events"]),
    "a barrier completes in the phase that begins": (
        "runtime/emulation/device/shared_barriers.cpp",
        "block.record(EventKind::barrier_completed, barrier.number, barrier.current_phase());",
        "block.record(EventKind::barrier_completed, barrier.number, barrier.current_phase() + 1);",
        ["emulation_events"]),
    "a wait at a named barrier is an arrival too": (
        "runtime/emulation/device/shared_barriers.cpp",
        "if (!waits) {",
        "{",
        ["emulation_events"]),
    "a wait for products names a group that is under way": (
        "runtime/emulation/device/warpgroup.cpp",
        "static_cast<int>(committed_ - in_flight) - 1, 0,",
        "static_cast<int>(committed_) - 1, 0,",
        ["emulation_events"]),

    # ---- optimizers
    "weight decay goes through the moments": (
        "kernels/adamw/cuda.cu",
        "const float g = gradient * f.gradient_scale;",
        "const float g = fmaf(f.decay, gpu::load(p), gradient * f.gradient_scale);",
        ["kernels_adamw"]),
    "the bias correction is a step late": (
        "kernels/adamw/factors.h",
        "1.0 - power(s.beta1, s.step)",
        "1.0 - power(s.beta1, s.step + 1)",
        ["kernels_adamw"]),
    "four neighbours are rounded by one random number": (
        "kernels/adamw/cuda.cu",
        "gradient.values[j], words[j], of_moments[j], f);",
        "gradient.values[j], words[0], of_moments[j], f);",
        ["kernels_adamw"]),
    "m and v are rounded by the same bits": (
        "kernels/adamw/cpu.cpp",
        "of_both & 0xffffu",
        "of_both >> 16",
        ["kernels_adamw"]),
    "moments in bf16 are rounded to nearest": (
        "kernels/adamw/cpu.cpp",
        "store_rounded(v[i], new_v, of_both & 0xffffu);",
        "store_rounded(v[i], new_v, 0x7fffu + (of_both & 0u));",
        ["kernels_adamw"]),
    "a range that begins within a Philox block takes its first words": (
        "kernels/adamw/cpu.cpp",
        "words + skipped, of_moments + skipped);",
        "words, of_moments);",
        ["kernels_adamw"]),
    "moments take the words of p": (
        "kernels/adamw/cpu.cpp",
        "kMomentWords / kBlockWords + block",
        "block",
        ["kernels_adamw"]),
    "all rounds of Philox have one key": (
        "kernels/cpu/random_words.h",
        "    key1 += 0xBB67AE85u;\n",
        "",
        ["kernels_adamw", "kernels_dropout"]),
    "p moves by a rounded moment": (
        "kernels/adamw/cuda.cu",
        "new_m / root",
        "gpu::load(m) / root",
        ["kernels_adamw"]),
    "the copy is of p before the update": (
        "kernels/adamw/cpu.cpp",
        "    update<P, S>(t, factors, begin, next);\n"
        "    if (t.copy.defined()) write_copy<P>(t, begin, next);",
        "    if (t.copy.defined()) write_copy<P>(t, begin, next);\n"
        "    update<P, S>(t, factors, begin, next);",
        ["kernels_adamw"]),
    "the copy's address is not looked at": (
        "kernels/adamw/cuda.cu",
        "gpu::are_quads(p, m, v, gradient) && copy.has_quads()",
        "gpu::are_quads(p, m, v, gradient)",
        ["kernels_adamw"]),
    "the copy is f16 in every case": (
        "kernels/adamw/cuda.cu",
        "if (dtype == DType::bf16) return write_as<bfloat16>(p, i);",
        "if (dtype == DType::bf16) return write_as<float16>(p, i);",
        ["kernels_adamw"]),
    "the clipping factor is ignored": (
        "kernels/sgd/cuda.cu",
        "    f.gradient_scale = *gradient_scale;\n"
        "    if (!isfinite(f.gradient_scale)) return;",
        "    if (!isfinite(*gradient_scale)) return;",
        ["kernels_sgd"]),
    "a tail shorter than four is taken as four": (
        "kernels/cuda/multi_tensor.h",
        "begin + ((end - begin) & ~std::int64_t{3})",
        "begin + ((end - begin + 3) & ~std::int64_t{3})",
        ["kernels_sgd"]),

    # ---- streams
    "a stream does not wait for another's event": (
        "runtime/cuda/stream.cpp",
        "    check_status(cudaStreamWaitEvent(stream_, point->native(), 0), \"cudaStreamWaitEvent\");\n",
        "",
        ["runtime_cuda_stream"]),
    "a side stream's tensors are released while it works": (
        "runtime/cuda/stream.cpp",
        "if (for_host || id() != kComputeStream) work_->add",
        "if (for_host) work_->add",
        ["runtime_cuda_stream"]),

    # ---- training through the emulated NCCL
    "sharding.deterministic does nothing": (
        "tools/train/world_options.cpp",
        ".deterministic = config.sharding.deterministic ||",
        ".deterministic =",
        ["tools_cuda_nccl"]),
}



NEON_FAULTS = {
    "NEON rounds the product before the sum": (
        "kernels/matmul/cpu/neon.cpp",
        "sum = vfmaq_f32(sum, a, b);",
        "sum = vaddq_f32(sum, vmulq_f32(a, b));",
        ["kernels_matmul_cpu"]),
    "NEON rounds the product of doubles before the sum": (
        "kernels/matmul/cpu/neon.cpp",
        "sum = vfmaq_f64(sum, a, b);",
        "sum = vaddq_f64(sum, vmulq_f64(a, b));",
        ["kernels_matmul_cpu"]),
    "an AArch64 CPU has no level of its own": (
        "kernels/matmul/cpu/isa.cpp",
        "return Isa::neon;",
        "return Isa::portable;",
        ["kernels_matmul_cpu"]),
    "NEON's instructions are not found, so std::fma is taken": (
        "kernels/matmul/cpu/chains.h",
        "requires { &S::multiply_add; }",
        "requires { &S::multiply_add; } && S::kVectors != 6",
        ["kernels_matmul_cpu"]),
}

SYSROOT = "build-aarch64/sysroot"


def faults_of(table):
    return {name: planting.Fault(path, old, new, [f"test_{test}" for test in tests])
            for name, (path, old, new, tests) in table.items()}


BATCHES = [
    planting.Batch(faults_of(CPU_FAULTS), folder="build-asan/planted_faults", preset="asan",
                   options=("-D", "TESSERA_WERROR=ON")),
    planting.Batch(faults_of(FAULTS), folder="build-emulated/planted_faults", preset="emulated",
                   options=("-D", "TESSERA_WERROR=ON"), selection=("~[cpu]",)),
    planting.Batch(faults_of(NEON_FAULTS), folder="build-aarch64/planted_faults", preset="aarch64",
                   options=("-D", "TESSERA_WERROR=ON", "-D",
                            f"CMAKE_SYSROOT={planting.ROOT / SYSROOT}"),
                   emulator=("qemu-aarch64", "-L", planting.ROOT / SYSROOT), needs=SYSROOT)]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
