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

# Faults of a file that the same tests may notice, by name: text that occurs in the file exactly once, and
# what replaces it.
CPU_FAULTS = {
    ("kernels/cpu/magnitude.h", "kernels_watch"): {
        "the largest magnitude is the largest value": (
            "static_cast<float>(x)) & 0x7fffffff;",
            "static_cast<float>(x));"),
    },
    ("kernels/fp8/grid.h", "kernels_fp8"): {
        "numbers between two of 8 bits are rounded down": (
            "(1u << (cut() - 1)) - 1u + odd)",
            "(1u << (cut() - 1)) - 1u + 0u * odd)"),
        "numbers beyond the largest of 8 bits are rounded as others": (
            "    code = code > code_of_largest ? code_of_largest : code;\n",
            ""),
        "small numbers of 8 bits have all bits of their mantissa": (
            "power_of_two(least_exponent) ? subnormal",
            "power_of_two(-126) ? subnormal"),
        "a scale takes the largest magnitude beyond the format": (
            "return largest * scale > limit ? 0.5f * scale : scale;",
            "return scale;"),
        "a history keeps its oldest step": (
            "at >= count; at -= count)",
            "at >= steps * count; at -= count)"),
        "an infinite step enters the history": (
            "if (now == 0.0f || (bits_of(now) & 0x7fffffffu) >= 0x7f800000u) return;",
            "if (now == 0.0f) return;"),
        "a step of zeros enters the history": (
            "if (now == 0.0f || (bits_of(now)",
            "if ((bits_of(now)"),
    },
    ("kernels/fp8/grid.h", "kernels_fp8_blocks"): {
        "infinity sets the scale of its block": (
            "return magnitude < 0x7f800000u ? ",
            "return magnitude < 0x7fffffffu ? "),
        "a block of zeros has the largest scale": (
            "return most == 0 ? 1.0f : scale_for",
            "return most < 0 ? 1.0f : scale_for"),
        "a row of squares has as many scales as squares": (
            "(across + 3) / 4 * 4",
            "(across + 0) / 1"),
    },
    ("kernels/fp8/cpu.cpp", "kernels_fp8_blocks"): {
        "columns have the scales of rows": (
            "scale_of_block(tile.most_of_column[c], grid().largest)",
            "scale_of_block(tile.most_of_row[c], grid().largest)"),
        "the scale of a square is that of its first row": (
            "*std::max_element(most_of_row.begin(), most_of_row.end());",
            "most_of_row[0];"),
        "places behind the last square are not written": (
            "if (all->defined()) std::fill_n",
            "if (all->defined() && false) std::fill_n"),
    },
    ("kernels/linear/factor.h", "kernels_fp8_blocks_product"): {
        "a weight's gradient multiplies the numbers of rows": (
            "blocks == Fp8Blocks::vectors ? by_columns() : *this",
            "blocks == Fp8Blocks::squares ? by_columns() : *this"),
    },
    ("kernels/fp8/cpu.cpp", "kernels_fp8"): {
        "columns are written row by row": (
            "codes_of(yt)[i % columns * rows + i / columns]",
            "codes_of(yt)[i / columns * columns + i % columns + 0 * rows]"),
        "f32 numbers are rounded to 8 bits at once": (
            "load(static_cast<bfloat16>(from[i]))",
            "load(from[i])"),
    },
    ("kernels/linear/factor.cpp", "kernels_fp8_product"): {
        "the gradient of a weight in 8 bits is not added": (
            "transpose_weight, accumulate_dweight, accumulate_dbias);\n}\n\n}  // namespace",
            "transpose_weight, accumulate_dbias, accumulate_dbias);\n}\n\n}  // namespace"),
    },
    ("kernels/watch/cpu.cpp", "kernels_watch"): {
        "hidden keys have logits": (
            "for (std::int64_t i = tile.hidden(j);",
            "for (std::int64_t i = 0;"),
        "keys before a query's first one have logits": (
            "for (tile.first_key = run.first_key;",
            "for (tile.first_key = 0;"),
        "every query head reads the first keys": (
            "head_rows<T>(k, batch, head / group)",
            "head_rows<T>(k, batch, 0 * group)"),
        "a row that is not finite counts": (
            "        if (!std::isfinite(bits)) continue;\n        units += std::llround(bits / kEntropyUnit);",
            "        if (std::isfinite(bits)) units += std::llround(bits / kEntropyUnit);"),
    },
    ("kernels/observer.h", "kernels_observer"): {
        "an observer does not see parts of tensors": (
            "    add_tensors(tensors, argument.tensor);\n",
            ""),
    },
    ("kernels/grouped_matmul/op.cpp", "kernels_observer"): {
        "an observer does not see a gated product of experts": (
            "  run_observed(op, run, y, c, a, b, offsets);\n",
            "  run();\n"),
    },
    ("kernels/nf4/cpu.cpp", "kernels_nf4"): {
        "the first of two codes is in the lower bits": (
            "(i % 2 == 0 ? 4 : 0) & 15",
            "(i % 2 == 0 ? 0 : 4) & 15"),
        "a scale is counted without the mean": (
            "* range + mean;",
            "* range;"),
    },
    ("kernels/nf4/pack.cpp", "kernels_nf4"): {
        "every row has the ranges of the first": (
            "ranges_.data() + first / kNf4Group",
            "ranges_.data()"),
        "all matrices of a stack have the scales of the first": (
            "if (measured_ != matrix) measure(matrix);",
            "if (measured_ < 0) measure(matrix);"),
        "the mean of scales counts those of one group": (
            "static_cast<double>(blocks));",
            "256.0);"),
    },
    ("kernels/nf4/format.h", "kernels_nf4"): {
        "a group is counted from its row": (
            "(row * blocks % kNf4Group + block) / kNf4Group",
            "(0 * row + block) / kNf4Group"),
    },
    ("kernels/muon/cpu.cpp", "kernels_muon"): {
        "Nesterov's direction is the momentum": (
            "store(direction[i], f.nesterov ? ahead : m[i]);",
            "store(direction[i], m[i]);"),
        "a scale that is not finite moves the momentum": (
            "if (!std::isfinite(factors.gradient_scale)) {",
            "if (factors.gradient_scale == 2e30f) {"),
        "the ratio of an update acts on weight decay too": (
            "range.decay ? factors.kept : 1.0f);",
            "range.decay ? 1.0f - (1.0f - factors.kept) * static_cast<float>(range.ratio) : 1.0f);"),
    },
    ("optim/muon.cpp", "optim_muon"): {
        "Muon writes no copies": (
            "  write_copies(copies);\n",
            ""),
        "both scales of updates are one": (
            "return scale == UpdateScale::original ? std::sqrt",
            "return scale != UpdateScale::original ? std::sqrt"),
    },
    ("kernels/newton_schulz/cpu.cpp", "kernels_newton_schulz"): {
        "squares are summed in f32": (
            "          const double value = load(x[begin + i]);\n          return value * value;",
            "          const auto value = static_cast<float>(load(x[begin + i]));\n"
            "          return static_cast<double>(value * value);"),
        "the smallest norm is not bounded": (
            "1.0 / std::max(norm, epsilon)",
            "1.0 / std::max(norm, 0.0 * epsilon)"),
    },
    ("kernels/newton_schulz/op.cpp", "kernels_newton_schulz"): {
        "A and A A change places": (
            "combine(a, kB, kC, squares);",
            "combine(a, kC, kB, squares);"),
        "there is a step more": (
            "for (int step = 0; step < steps; ++step) {",
            "for (int step = 0; step <= steps; ++step) {"),
    },
    ("runtime/elementary.cpp", "runtime_elementary"): {
        "pi / 2 has three parts": (
            "third.low - n * kPart4",
            "third.low"),
        "the difference of an angle from its multiple of pi / 2 is rounded": (
            "second.low + third.low - n",
            "third.low - n"),
        "the sine of the third quadrant is that of the first": (
            "sine ^ exchanged ^ negated(quadrant)",
            "sine ^ exchanged ^ negated(quadrant & quadrant << 1)"),
        "cosines have the signs of sines": (
            "negated(quadrant + 1)",
            "negated(quadrant)"),
        "a sine's reduced angle is one double": (
            "(r.high - a) + r.low, -kSixth",
            "r.high - a, -kSixth"),
        "a cosine's reduced angle is one double": (
            "(r.high + a) + r.high * r.low)",
            "(r.high + a))"),
        "the sum of a sine's leading terms is rounded": (
            "(sum.low + series.rest)",
            "series.rest"),
        "every angle has a sine": (
            "std::fabs(x) <= kLargestAngle,",
            "std::fabs(x) <= 2 * kLargestAngle,"),
        "ln 2 ends after its first part in e^x": (
            "x.low - n * kLn2Low",
            "x.low"),
        "ln 2 ends after its first part in ln x": (
            "2.0 * series.rest + n * kLn2Low",
            "2.0 * series.rest"),
        "subnormal powers of e are 0": (
            "x.high < -746.0",
            "x.high < -708.4"),
        "a logarithm's quotient divides by 32 bits": (
            " - a * sum_low) / sum",
            " - 0.0 * sum_low) / sum"),
        "a power's logarithm is one double": (
            " + exponent * log.low",
            ""),
    },
    ("runtime/random.cpp", "runtime_random"): {
        "normal values come from sines alone": (
            "cosine(angle) : sine",
            "sine(angle) : sine"),
        "many normal values come from sines alone": (
            "radius * cosines[pair]",
            "radius * sines[pair]"),
    },
    ("runtime/threads.cpp", "runtime_threads"): {
        "every thread begins with the first share": (
            "share_of(group, (thread + i) % size)",
            "share_of(group, (0 * thread + i) % size)"),
        "a thread that is done leaves the others' shares alone": (
            "for (int i = 0; i < size; ++i) take_share",
            "for (int i = 0; i < 1; ++i) take_share"),
        "groups of tasks are one": (
            "groups = ends.size();",
            "groups = 1; ends = ends.last(1);"),
    },
    ("runtime/threads.cpp", "runtime_cores"): {
        "workers of a team are bound to each other's cores": (
            "cores[++thread]",
            "cores[thread++]"),
    },
    ("runtime/cores.cpp", "runtime_cores"): {
        "a thread stays bound": (
            "  set_cores(pthread_self(), before_);\n",
            ""),
        "a new thread stays on the core of the bound one that starts it": (
            "  set_cores(pthread_self(), *unbound_cores_);\n",
            ""),
        "a bound thread that starts another is not bound afterwards": (
            "    ~Rebind() { set_cores(pthread_self(), cores); }\n",
            ""),
        "a bound thread takes its core for all of the process": (
            "  if (outer_ == nullptr) unbound_cores_ = &before_;\n",
            ""),
    },
    ("runtime/spin.cpp", "runtime_cores"): {
        "a thread on a shared core goes on spinning": (
            "if (now < shared_until_) return false;",
            ""),
        "a thread whose core was shared once never spins again": (
            "shared_until_ = after + kShared;",
            "shared_until_ = Clock::time_point::max();"),
    },
    ("kernels/attention/cpu.cpp", "kernels_attention"): {
        "attention's backward pass hides a query's own key": (
            "score[i] = i < hidden ? C{0} : p;",
            "score[i] = i <= hidden ? C{0} : p;"),
        "attention's forward pass sees one key too many": (
            "score + tile.hidden(j),",
            "score + std::max(band.first_lane, tile.hidden(j) - 1),"),
    },
    ("kernels/attention/tiles.h", "kernels_attention"): {
        "rows beyond the last square of a transpose are left out": (
            "r < std::min(rows, i + kSide); ++r",
            "r < std::min(rows, i + kSide) - 1; ++r"),
    },
    ("kernels/rms_norm/row.h", "kernels_norms"): {
        "the offset of a norm has no part in its gradient": (
            "load(dy[c]) * (offset + load(weight[c])) - xhat",
            "load(dy[c]) * load(weight[c]) - xhat"),
    },
    ("kernels/swiglu/op.cpp", "kernels_swiglu"): {
        "the gradient of a gate is silu's, whatever the activation is": (
            "gate, up,\n                                                      activation);",
            "gate, up,\n                                                      Gate::silu);"),
    },
    ("kernels/qk_norm/cpu.cpp", "kernels_qk_norm"): {
        "keys get no offset": (
            "normalize_row(normalized.data(), head, weights + (h < heads ? 0 : D), C{offset},",
            "normalize_row(normalized.data(), head, weights + (h < heads ? 0 : D), h < heads ? C{offset} : C{0},"),
        "gradients of keys take the statistics of queries": (
            "rstds[n * rstd.size(2) + h]",
            "rstds[n * rstd.size(2) + h - of.first]"),
        "a normalized head is rounded before it is rotated": (
            "std::vector<C> normalized(",
            "std::vector<T> normalized("),
        "every group of heads has the first keys": (
            "{heads + group.number * keys, keys}",
            "{heads, keys}"),
    },
    ("kernels/qk_norm/op.cpp", "kernels_qk_norm"): {
        "groups need not divide the heads of keys": (
            " && kv_heads % group.count == 0 &&",
            " &&"),
    },
    ("kernels/round_sum/cpu.cpp", "kernels_round_sum"): {
        "the CPU rounds a sum before it adds the residual": (
            "if (residual != nullptr) value += load(residual[c]);",
            "if (residual != nullptr) value = load(static_cast<T>(value)) + load(residual[c]);"),
        "every row has the first one's residual": (
            "r == nullptr ? r : r + n * C",
            "r"),
    },
    ("kernels/round_sum/op.cpp", "kernels_round_sum"): {
        "the sums of 16-bit results may have 16 bits": (
            "statistics_dtype(y.dtype())",
            "sums.dtype()"),
    },
    ("runtime/elements.h", "runtime_elements"): {
        "the first run of a part's rest is a whole one": (
            "run - at % run",
            "run"),
    },
    ("kernels/matmul/cpu/chains.h", "kernels_matmul_cpu"): {
        "a tile's last columns are stored as a whole vector": (
            "std::clamp<std::int64_t>(columns - v * S::kLanes, 0, S::kLanes)",
            "std::clamp<std::int64_t>(columns, S::kLanes, S::kLanes)"),
        "tiles of one row are left out": (
            "} else if constexpr (kRows > 1) {",
            "} else if constexpr (kRows > 2) {"),
        "the second depth of a turn takes the first one's column of a": (
            "(sum, a + a_depth, a_row, b + b_stride);",
            "(sum, a, a_row, b + b_stride);"),
        "a panel's odd depth is left out": (
            "for (; k < depth; ++k, a += a_depth, b += b_stride) {",
            "for (; k + (kLayout == Layout::panels) < depth; ++k, a += a_depth, b += b_stride) {"),
    },
    ("kernels/matmul/cpu/panels.h", "kernels_matmul_cpu"): {
        "an odd depth has its last element twice": (
            "if (second != nullptr) std::copy_n(second, copied, second_copy);",
            "std::copy_n(second == nullptr ? from : second, copied, second_copy);"),
        "a square beyond the last depth reads it again": (
            "std::copy_n(from + i * stride, std::min(depth, kDepth), row);",
            "std::copy_n(from + i * stride, std::min(depth, kDepth - 1), row);"),
        "rows of a panel beyond its whole squares are not packed": (
            "if constexpr (kRest > 0) {",
            "if constexpr (kRest > kLanes) {"),
    },
    ("kernels/matmul/cpu/rounds.cpp", "kernels_matmul_cpu"): {
        "the pieces of depth depend on the micro-kernel": (
            "equal_parts(K, engine.most_depth, kWholeVectors)",
            "equal_parts(K, engine.most_depth - engine.rows / 8 * 32, kWholeVectors)"),
        "a's panels stay while the rows change": (
            ".pack_a = packs && n == 0",
            ".pack_a = packs && m == 0 && n == 0"),
        "a ragged depth of a is read where it lies": (
            "!has_whole_steps(engine, list, product) ||",
            "false ||"),
        "the workspace depends on the instruction set": (
            "Tensor::empty({largest_room(list)}, DType::u8)",
            "Tensor::empty({std::min(bytes_of_room(engine, list).total(), largest_room(list))}, DType::u8)"),
    },
    ("kernels/matmul/cpu/rounds.cpp", "kernels_matmul_rounds"): {
        "a round of rows finds b's panels of other columns": (
            ".pack_b = m == 0 || !keeps_b",
            ".pack_b = m == 0 || (m < 0 && !keeps_b)"),
        "neighbouring rounds share the panels of b": (
            "next_ = second_ ? half_ : 0;",
            "next_ = 0;"),
        "a deep sum's rounds run side by side": (
            "round_.continues = k > 0 && rows",
            "round_.continues = k > p.K && rows"),
        "a round keeps memory for the panels of gate alone": (
            "b = b_.take(list_.sections * round_up(",
            "b = b_.take(round_up("),
    },
    ("kernels/matmul/cpu/product.cpp", "kernels_matmul_cpu"): {
        "a deep sum's later rounds overwrite c": (
            "in_c, list_.accumulate || slab.depth_begin > 0);",
            "in_c, list_.accumulate);"),
        "a sum's later pieces overwrite c": (
            ".adds = k > 0",
            ".adds = k < 0"),
        "few rows read a transposed b as it lies": (
            "engine_.reads_b && !list_.transpose_b &&",
            "engine_.reads_b &&"),
        "rounded sums are not added to c": (
            "c, sums, rows, columns, list_.accumulate);",
            "c, sums, rows, columns, false);"),
        "a row of c begins where the last ends": (
            "in_c = {c, p.c_row, p.N};",
            "in_c = {c, list_.N, p.N};"),
        "few rows: every strip packs the first columns": (
            "part.column = block.column;",
            "part.column = 0;"),
        "few rows: a deep sum ends after its first round": (
            "for (; part.depth_begin < p.K; part.depth_begin += most) {",
            "for (; part.depth_begin < most; part.depth_begin += most) {"),
    },
    ("kernels/matmul/cpu/rounds.cpp", "kernels_grouped_matmul"): {
        "a round's products share the panels of b": (
            "  next_ += bytes;\n",
            ""),
    },
    ("kernels/matmul/cpu/rounds.h", "kernels_matmul_rounds"): {
        "panels of a that are overwritten are packed ahead": (
            "return used_ > 0 && !keeps_all_ && half_ == 0;",
            "return used_ < 0 && !keeps_all_ && half_ == 0;"),
    },
    ("kernels/matmul/cpu/pipeline.cpp", "kernels_matmul_rounds"): {
        "a block does not wait for its panels": (
            "      wait_for_zero(left[round].panels);\n",
            ""),
        "panels are packed over those that blocks read": (
            "    wait_for_blocks(round, 2);\n",
            ""),
    },
    ("kernels/matmul/cpu/thread_room.h", "kernels_grouped_matmul"): {
        "scratch of few rows for the longest sum, not for the deepest round": (
            "line_bytes(engine, deepest_round(engine, list))",
            "line_bytes(engine, depth_of_round(engine, list, list.K))"),
    },
    ("kernels/matmul/cpu/product.cpp", "kernels_grouped_matmul"): {
        "products ignore the library that the rank has chosen": (
            "by_openblas() ? multiply_with_openblas(products, list) : multiply_by_panels",
            "multiply_by_panels"),
    },
    ("kernels/matmul/cpu/pieces.cpp", "kernels_matmul_parts"): {
        "a part is added as a tile is stored, also where the tile's chain goes on": (
            "last.merges > 0 && engine.adds_tiles &&",
            "last.merges > 0 &&"),
        "parts are added in a chain, not in a tree": (
            "last.merges = std::countr_one(p);",
            "last.merges = p > 0 ? 1 : 0;"),
        "a packed range begins in the last step of the one before": (
            "packed += round_up(depth, engine.depth_step);",
            "packed += depth;"),
    },
    ("kernels/matmul/cpu/product.cpp", "kernels_matmul_parts"): {
        "the parts of a sum are added to c one by one": (
            "(list_.accumulate && !pieces_.empty())",
            "(list_.accumulate && pieces_.size() > 1000)"),
        "the workspace of parts depends on the instruction set": (
            "list.K = std::max(list.K, packed_depth(*engine, list.parts));",
            "list.K = engine != nullptr ? product.K : 0;"),
    },
    ("kernels/matmul/cpu/rounds.cpp", "kernels_matmul_parts"): {
        "a ragged range of a is read where it lies": (
            "range.count % engine.depth_step == 0",
            "range.count > 0"),
    },
    ("kernels/matmul/cpu/parts.cpp", "kernels_matmul_parts"): {
        "the later ranges of a deep part overwrite the first": (
            "factors.multiply(sums, range, &range != parts[0].data());",
            "factors.multiply(sums, range, false);"),
        "the left half of deep parts is added twice": (
            "form(right, factors, parts.last(",
            "form(right, factors, parts.first("),
    },
    ("kernels/matmul/parts.cpp", "kernels_matmul_parts"): {
        "ranges may overlap": (
            "ranges[i].first >= ranges[i - 1].first + ranges[i - 1].count",
            "ranges[i].first >= ranges[i - 1].first"),
    },
    ("kernels/vocabulary_cross_entropy/cpu.cpp", "kernels_vocabulary_cross_entropy"): {
        "exponents are NaN in a part of minus infinity": (
            "largest == -std::numeric_limits<C>::infinity() ? C{0} : largest;",
            "largest;"),
        "sums of parts are added without regard to their maxima": (
            "x.maximum == largest ? x.sum :",
            "x.maximum <= largest ? x.sum :"),
        "every part takes the target for one of its own classes": (
            "first_class + part * classes)[n]",
            "first_class + 0 * part)[n]"),
        "the gradient of divided classes is the softmax at the target": (
            "const C weight = targets.weight(k);",
            "const C weight{0};"),
    },
    ("kernels/matmul/cpu/tiles.h", "kernels_matmul_cpu"): {
        "all tiles have the rows of the upper ones": (
            "lower ? rows - kTileSide : rows, 1",
            "lower ? rows : rows, 1"),
        "the lower tiles take the upper rows": (
            "const char* const a_below = a + kTileSide * a_row;",
            "const char* const a_below = a;"),
        "tiles begin a later piece with zeros": (
            "multiply_rows<Tiles, true>(a, a_row, b, depth, c, c_row, tile.accumulate);",
            "multiply_rows<Tiles, true>(a, a_row, b, depth, c, c_row, false);"),
    },
    ("kernels/grouped_matmul/cpu.cpp", "kernels_grouped_matmul"): {
        "a deep expert's old gradient is lost": (
            "c.size(2)}), accumulate);",
            "c.size(2)}), Accumulate::no);"),
        "the rows of an expert's swiglu begin at the first expert's": (
            "        part.row += first;\n",
            ""),
        "a part of a stored weight begins at its first depth": (
            "range.first * (transposed ? 1 : N)",
            "range.first * (transposed ? 0 : N)"),
        "a part's second range overwrites the first": (
            "&range != depths.data());",
            "false);"),
    },
    ("kernels/grouped_matmul/cpu.cpp", "kernels_matmul_cpu"): {
        "the workspace depends on the experts' rows": (
            ".count = groups.experts,\n"
            "                          .rows = a.size(0)});",
            ".count = groups.experts,\n"
            "                          .rows = groups.end()});"),
    },
    ("kernels/matmul/cpu/software_tiles.cpp", "kernels_matmul_cpu"): {
        "tiles in software keep denormal sums": (
            "chains[odd][j] = flushed(std::fma(factor, other, chains[odd][j]));",
            "chains[odd][j] = std::fma(factor, other, chains[odd][j]);"),
    },
    ("kernels/gradient_norm/cpu.cpp", "kernels_gradient_norm"): {
        "squares of an earlier window are counted again": (
            "bits >= least && bits <= largest ? bits : 0",
            "bits >= least ? bits : 0"),
        "the lower parts of squares are lost": (
            "rest_sum += square - upper;",
            "rest_sum += 0.0 * (square - upper);"),
        "numbers below the first window are left out": (
            "  while (largest > 0) largest = add_squares(",
            "  if (largest > 0) largest = add_squares("),
        "infinity hides NaN": (
            "++words[largest > kBitsOfInfinity ? kNanWord : kInfinityWord];",
            "++words[kInfinityWord];"),
    },
    ("kernels/gradient_norm/exact_sum.h", "kernels_gradient_norm"): {
        "the words' carries are lost": (
            "carry = digit >> 32;",
            "carry = 0 * digit;"),
    },
    ("runtime/allocator.cpp", "runtime_allocator"): {
        "a freed block is not joined with the one before it": (
            "previous != nullptr && previous->is_free",
            "previous != nullptr && previous->is_free && previous->bytes == 0"),
        "a request takes a free block of another stream": (
            "found != free_.end() && (*found)->stream == stream ? *found : nullptr",
            "found != free_.end() ? *found : nullptr"),
        "the largest free segment goes back first": (
            "serves && piece->bytes < best->bytes",
            "serves && piece->bytes > best->bytes"),
        "large free blocks are cut before memory runs short": (
            "if (fits != nullptr && fits->bytes < 2 * bytes)",
            "if (fits != nullptr)"),
        "free segments stay when more than the peak is reserved": (
            "return peak + peak / 16;",
            "return 16 * peak;"),
    },
    ("kernels/embedding/cpu.cpp", "kernels_embedding"): {
        "the table's row of padding gets a gradient on the CPU": (
            "if (id == padding_id || row < 0",
            "if ((id < 0 && id == padding_id) || row < 0"),
        "the gradient of a part of a table is that of the first rows": (
            "dtable.size(0), first_row = part.first;",
            "dtable.size(0), first_row = 0 * part.first;"),
        "rows of a table that others have stay as they were": (
            "std::fill_n(y_row, row_bytes, std::byte{0});",
            "std::fill_n(y_row, 0, std::byte{0});"),
    },
    ("kernels/adamw/cpu.cpp", "kernels_adamw"): {
        "adamw: the CPU rounds a finite value to infinity": (
            "(bits & 0x7fffffffu) < kLargest ? chance : 0",
            "(bits & 0x7fffffffu) < 0x7f800000u ? chance : 0"),
    },
    ("kernels/adamw/op.h", "kernels_adamw"): {
        "the bits of v are the sum of those of p and m": (
            "kOfV = 0x9E3779B1u",
            "kOfV = 0x00010001u"),
    },
    ("kernels/matmul/cpu/product.cpp", "kernels_linear_cpu"): {
        "a step changes sums that are not complete": (
            "const bool ends = slab.depth_begin + slab.depth >= p.K;",
            "const bool ends = slab.depth > 0;"),
        "a step takes a block's column for c's": (
            "p.steps->finished({row, rows, column, block.columns});",
            "p.steps->finished({row, rows, block.column, block.columns});"),
        "a later round of rows adds up dy again": (
            "if (slab.row == 0) {",
            "if (slab.row >= 0) {"),
        "few rows of the weight leave out the bias's gradient": (
            "packs_a(engine, list, product), has_panels);",
            "packs_a(engine, list, product), true);"),
        "products by OpenBLAS get no bias": (
            "    if (p.steps != nullptr) visit_rows(p.steps->finished, p.M, p.N);\n",
            "    static_cast<void>(p);\n"),
        "the panels of up lie where those of gate do": (
            "section * round_up(slab.columns, engine_.columns) + first;",
            "0 * section + first;"),
        "sums of up are rounded into gate": (
            "to.data + section * to.section * bytes",
            "to.data + 0 * section * bytes"),
    },
    ("kernels/matmul/cpu.cpp", "kernels_linear_cpu"): {
        "sums that are rounded apart get no bias": (
            "  narrow(c, sums, accumulate);\n  finish(c, steps);\n",
            "  narrow(c, sums, accumulate);\n"),
        "swiglu visits the columns of up, too, where sums are rounded apart": (
            "c.size(-1) / steps.sections);\n}",
            "c.size(-1));\n}"),
    },
    ("kernels/linear/cpu.cpp", "kernels_linear_cpu"): {
        "up gets the bias of gate": (
            "half->first + part.column",
            "0 * half->first + part.column"),
    },
    ("kernels/swiglu/cpu.cpp", "kernels_linear_cpu"): {
        "a part of swiglu's gradient begins at the first column": (
            "from = Rows<T>(dy, part.column)",
            "from = Rows<T>(dy, 0)"),
    },
    ("kernels/swiglu/cpu.cpp", "kernels_swiglu"): {
        "rows of experts are made again before their gradients are read": (
            "        forward_row(h.data(), g[p], u[p], F);\n",
            "        forward_row(h.data(), g[p], u[p], F);\n"
            "        scale_row(to[p], h.data(), weight, F);\n"),
        "the gradient of weighed rows on the CPU lacks the weight": (
            "scale_row(dh.data(), from[p], weight, F);",
            "scale_row(dh.data(), from[p], compute_t<T>(1), F);"),
    },
    ("kernels/bias/cpu.cpp", "kernels_linear_cpu"): {
        "a part of dy forgets the rows before it": (
            "row == 0 ? partial[c]",
            "row == part.row ? partial[c]"),
        "each part of dy adds the gradient before it": (
            "    if (end < dy_.size(0)) continue;\n",
            ""),
    },
    ("kernels/cross_entropy/cpu.cpp", "kernels_linear_cross_entropy"): {
        "the gradient of an ignored row stays its logits": (
            "    std::fill_n(dlogits, classes, G{});\n",
            ""),
    },
    ("kernels/cross_entropy/cpu.cpp", "kernels_cross_entropy"): {
        "the gradient at the target is the softmax": (
            "exponential(load(logits[column]) - logsumexp) - weight;",
            "exponential(load(logits[column]) - logsumexp) - 0 * weight;"),
    },
    ("kernels/cross_entropy/row_targets.h", "kernels_weighted_targets"): {
        "all targets of a row have the first one's weight": (
            "weights == nullptr ? 1.0f : weights[k]",
            "weights == nullptr ? 1.0f : weights[0 * k]"),
        "a row's targets begin where the row before has its own": (
            "return {classes_ + n * each_,",
            "return {classes_ + n,"),
    },
    ("kernels/cpu/lanes.h", "kernels_instruction_sets"): {
        "a sum's lanes are as many as a vector of AVX2 has": (
            "for (int half = kLanes / 2; half > 0; half /= 2) {",
            "for (int half = kLanes / 4; half > 0; half /= 2) {"),
        "the last elements of a sum are left out": (
            "  if (i < n) f(i, static_cast<int>(n - i));\n",
            ""),
    },
    ("kernels/matmul/cpu/chains.h", "kernels_attention"): {
        "small products forget the sums so far": (
            "  if (tile.continues) {\n",
            "  if (tile.continues && tile.depth < 0) {\n"),
    },
    ("kernels/cpu/small_product.h", "kernels_attention"): {
        "small products ignore the distance of a transposed factor's depths": (
            ".a_depth = a.column_stride,",
            ".a_depth = engine_.rows,"),
        "small products add a tile's sums after its chain": (
            ".continues = accumulate == Accumulate::yes}",
            ".accumulate = accumulate == Accumulate::yes}"),
        "small products skip columns on a narrow instruction set": (
            "j < columns; j += width",
            "j < columns; j += 32"),
    },
    ("examples/kernel_ladder/norm/3_vector_sums.cpp", "examples_kernel_ladder"): {
        "a norm's rung forgets the last vector of its sum": (
            "c < p.C; ++c) squares += x[c] * x[c];",
            "c < p.C / 8 * 8; ++c) squares += x[c] * x[c];"),
    },
    ("examples/kernel_ladder/norm/4_threads.cpp", "examples_kernel_ladder"): {
        "a norm's threads skip the last rows": (
            "n < end; ++n) {",
            "n < end / 8 * 8; ++n) {"),
    },
    ("examples/kernel_ladder/softmax/2_online.cpp", "examples_kernel_ladder"): {
        "a softmax's rung does not correct the sum": (
            "        sum *= std::exp(maximum - x[c]);\n",
            ""),
    },
    ("examples/kernel_ladder/softmax/4_fused.cpp", "examples_kernel_ladder"): {
        "a softmax's rung corrects a block's own sum": (
            "sum * exponential(maximum - risen) + block",
            "(sum + block) * exponential(maximum - risen)"),
    },
    ("examples/kernel_ladder/attention/2_online.cpp", "examples_kernel_ladder"): {
        "a rung of attention does not correct its output": (
            "          for (std::int64_t d = 0; d < p.D; ++d) o[d] *= correction;\n",
            ""),
    },
    ("examples/kernel_ladder/attention/3_tiles.cpp", "examples_kernel_ladder"): {
        "a rung of attention shows each query the next key": (
            "first_key + j - first_query, 0",
            "first_key + j - first_query - 1, 0"),
    },
    ("examples/kernel_ladder/attention/4_causal.cpp", "examples_kernel_ladder"): {
        "a rung of attention leaves out the tile on the diagonal": (
            "const std::int64_t visible = first_query + queries;",
            "const std::int64_t visible = first_query + (first_query == 0 ? queries : 0);"),
    },
    ("examples/kernel_ladder/attention/6_threads.cpp", "examples_kernel_ladder"): {
        "the threads of a rung of attention take a block twice": (
            "block = blocks - 1 - task / p.H;",
            "block = std::max<std::int64_t>(1, blocks - 1 - task / p.H);"),
    },
    ("examples/kernel_ladder/matmul/2_loop_order.cpp", "examples_kernel_ladder"): {
        "a rung adds to c's old elements": (
            "std::fill_n(p.c, p.M * p.N, 0.0f);",
            "std::fill_n(p.c, p.N, 0.0f);"),
    },
    ("examples/kernel_ladder/matmul/6_three_levels.cpp", "examples_kernel_ladder"): {
        "a rung's tile forgets the sums of the blocks before": (
            "sum[i][v] = load(c + i * p.N + v * kLanes);",
            "sum[i][v] = Vector{};"),
    },
    ("examples/kernel_ladder/matmul/7_avx512.cpp", "examples_kernel_ladder"): {
        "a rung's edge leaves out its first row": (
            "for (std::int64_t i = 0; i < rows; ++i) {",
            "for (std::int64_t i = 1; i < rows; ++i) {"),
    },
    ("examples/kernel_ladder/matmul/8_threads.cpp", "examples_kernel_ladder"): {
        "the threads of a rung pack panels over each other": (
            "p.scratch + begin * depth);",
            "p.scratch + begin / 2 * depth);"),
    },
    ("examples/kernel_ladder/matmul/9_amx.cpp", "examples_kernel_ladder"): {
        "a rung of tiles leaves out the last depths": (
            "for (std::int64_t k = 0; k < depth; k += kStep) {",
            "for (std::int64_t k = 0; k + kStep <= depth; k += kStep) {"),
    },
}

FAULTS = {
    ("examples/kernel_ladder/norm/gpu_2_warp_per_row.cu", "examples_cuda_kernel_ladder"): {
        "a norm's warp leaves out a lane's last column": (
            "for (std::int64_t c = lane; c < p.C; c += kLanes) squares",
            "for (std::int64_t c = lane; c + kLanes <= p.C; c += kLanes) squares"),
    },
    ("examples/kernel_ladder/norm/gpu_3_row_in_registers.cu", "examples_cuda_kernel_ladder"): {
        "a norm's row in registers ends before its last vectors": (
            "constexpr int kVectors = 8;",
            "constexpr int kVectors = 7;"),
    },
    ("examples/kernel_ladder/norm/gpu_1_thread_per_row.cu", "examples_cuda_kernel_ladder",
     "examples_emulated_kernel_ladder"): {
        "the threads of a norm read the weights of other columns": (
            "x[c] * rstd * p.weight[c]",
            "x[c] * rstd * p.weight[(c + threadIdx.x) % p.C]"),
    },
    ("examples/kernel_ladder/softmax/gpu_2_warp_per_row.cu", "examples_cuda_kernel_ladder"): {
        "the lanes of a softmax add sums of different maxima": (
            "sum * expf(own - maximum)",
            "sum"),
    },
    ("examples/kernel_ladder/softmax/gpu_3_row_in_registers.cu", "examples_emulated_kernel_ladder"): {
        "a softmax reads its row again": (
            "    row[i] = make_float4(expf(",
            "    row[i] = x[i * kLanes + lane];\n    row[i] = make_float4(expf("),
    },
    ("examples/kernel_ladder/attention/gpu_1_thread_per_query.cu", "examples_cuda_kernel_ladder"): {
        "a thread of attention leaves out the values from key 96 on": (
            "    for (std::int64_t j = 0; j < p.T; ++j) output",
            "    for (std::int64_t j = 0; j < p.T && j < 96; ++j) output"),
    },
    ("examples/kernel_ladder/attention/gpu_2_shared_tiles.cu", "examples_cuda_kernel_ladder"): {
        "a tile is loaded over the one that other warps still read": (
            "    __syncthreads();  // all threads are done with the last tile\n",
            ""),
    },
    ("examples/kernel_ladder/attention/gpu_3_tensor_cores.cu", "examples_emulated_kernel_ladder"): {
        "rows of a tile lie in the same banks": (
            "constexpr int kRow = kD + 8;",
            "constexpr int kRow = kD;"),
    },
    ("examples/kernel_ladder/attention/gpu_3_tensor_cores.cu", "examples_cuda_kernel_ladder"): {
        "tensor cores add outputs of different maxima": (
            "output.values[n][i] *= correction;",
            "output.values[n][i] *= 1.0f;"),
    },
    ("examples/kernel_ladder/matmul/gpu_1_thread_per_element.cu", "examples_emulated_matmul_ladder"): {
        "a warp has eight rows of four columns of c": (
            "constexpr int kLanes = 32, kRows = 8;",
            "constexpr int kLanes = 4, kRows = 64;"),
    },
    ("examples/kernel_ladder/matmul/gpu_2_shared_tiles.cu", "examples_cuda_matmul_ladder"): {
        "tiles of a product are overwritten while other warps read them": (
            "    __syncthreads();  // before the next tiles overwrite these\n",
            ""),
    },
    ("examples/kernel_ladder/matmul/gpu_3_tile_in_registers.cu", "examples_emulated_matmul_ladder"): {
        "rows of a's tile lie in the same banks": (
            "constexpr int kPitch = kSide + 4;",
            "constexpr int kPitch = kSide;"),
    },
    ("examples/kernel_ladder/matmul/gpu_4_tensor_cores.cu", "examples_cuda_matmul_ladder"): {
        "a product begins before its tiles have arrived": (
            "gpu::copy_async_wait<1>();",
            "gpu::copy_async_wait<2>();"),
    },
    ("kernels/attention/cuda/general_forward.cu", "kernels_attention"): {
        "no barrier before a tile is loaded over the last one": (
            "    __syncthreads();  // all warps are done with the last tile\n",
            ""),
        "no __syncwarp between writing weights and reading them": (
            "      weights.write(score);\n"
            "      __syncwarp();\n",
            "      weights.write(score);\n"),
        "the causal mask begins in the upper left corner": (
            "first_key + lane <= first_row + i + n.shift();",
            "first_key + lane <= first_row + i;"),
        "outputs are not rescaled when the maximum rises": (
            "      for (float& value : outputs.values[i]) value *= correction;",
            "      for (float& value : outputs.values[i]) value *= 1.0f;"),
    },
    ("kernels/attention/cuda/decoding.cu", "kernels_attention"): {
        "a split's last keys are those behind the cache": (
            "key < count ? product * scale_log2 : -INFINITY;",
            "product * scale_log2;"),
        "weights are read before they are complete": (
            "    __syncthreads();  // the weights are complete, and no thread reads the last sums any more\n",
            ""),
        "query heads behind the eighth read the first ones' rows": (
            "const int first_row = of_heads % tiles * kRows;",
            "const int first_row = 0;"),
        "the last warp's values are left out": (
            "for (int warp = 1; warp < kWarps; ++warp) sum",
            "for (int warp = 1; warp < kWarps - 1; ++warp) sum"),
    },
    ("kernels/attention/cuda/decoding.cu", "kernels_attention_first_key"): {
        "splits are counted from the cache's first key": (
            "const int first = first_key_of(x, block.batch) + block.split * kSplitKeys;",
            "const int first = max(first_key_of(x, block.batch), block.split * kSplitKeys);"),
    },
    ("kernels/attention/cuda/combine_splits.cu", "kernels_attention"): {
        "splits are added as if their largest scores were equal": (
            "const float factor = exp2f(softmaxes[i].x - largest);",
            "const float factor = 1.0f;"),
        "logsumexp of splits without the maximum": (
            "(largest + log2f(sum)) * kLn2;",
            "log2f(sum) * kLn2;"),
    },
    ("kernels/attention/cuda.cpp", "kernels_emulated_attention"): {
        "a query over a cache has a block for each head": (
            "q.tokens == 1 && k.tokens > kKeysOfSplit && are_aligned(heads);",
            "false && q.tokens == 1 && k.tokens > kKeysOfSplit && are_aligned(heads);"),
    },
    ("kernels/attention/cuda/general_backward.cu", "kernels_attention"): {
        "no barrier between loading a tile and reading it": (
            "        load(d_output, x.d_o.rows(batch, head), first_query, range.end, n.head_size);\n"
            "        __syncthreads();\n",
            "        load(d_output, x.d_o.rows(batch, head), first_query, range.end, n.head_size);\n"),
    },
    ("kernels/attention/cuda/general.h", "kernels_attention"): {
        "a head's last channels are followed by the next head's": (
            "first + row < count && channel < channels;",
            "first + row < count && channel < (channels + 3) / 4 * 4;"),
    },
    ("kernels/attention/cuda/forward_mma.cu", "kernels_attention_16bit --architecture=80"): {
        "copies are not waited for": (
            "gpu::copy_async_wait<0>();",
            ""),
        "the next tile is asked for while others read what it replaces": (
            "      __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more\n"
            "      if (step + 1 < steps) load_keys(step + 1);\n",
            "      if (step + 1 < steps) load_keys(step + 1);\n"
            "      __syncthreads();\n"),
        "the causal mask hides the query's own key": (
            "return column <= row + last_seen;",
            "return column < row + last_seen;"),
        "logsumexp without the maximum": (
            "softmax.maximum.values[m][half] * n.scale + logf(sum);",
            "logf(sum);"),
    },
    ("kernels/attention/cuda/key_value_gradient_mma.cu", "kernels_attention_16bit --architecture=80"): {
        "the wait leaves the newest copies in flight": (
            "      gpu::copy_async_wait<0>();\n"
            "      __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more\n"
            "      if (step + 1 < steps) load_queries(step + 1);",
            "      gpu::copy_async_wait<1>();\n"
            "      __syncthreads();  // all copies have arrived, and no warp reads the last tiles any more\n"
            "      if (step + 1 < steps) load_queries(step + 1);"),
        "no barrier between sending P and receiving it": (
            "      __syncthreads();  // P is in shared memory\n",
            ""),
    },
    ("kernels/attention/cuda/arguments.h", "kernels_attention_16bit"): {
        "neighbouring query heads read different key heads": (
            "kv_head = head / n.group();",
            "kv_head = head % n.kv_heads;"),
    },
    ("kernels/attention/cuda/fragments.h", "kernels_attention_16bit"): {
        "a padded head overwrites its neighbour": (
            "    if (chunk * 8 >= to.channels) continue;\n",
            ""),
        "a shuffle at the wrong distance": (
            "__shfl_xor_sync(gpu::kFullWarp, value, 2)",
            "__shfl_xor_sync(gpu::kFullWarp, value, 4)"),
    },
    ("kernels/attention/cuda/tiles.h", "kernels_emulated_attention"): {
        "tiles without the swizzle": (
            "(chunk ^ (row & 7)) * 8",
            "chunk * 8"),
    },
    ("kernels/attention/cuda/key_value_gradient_mma.cu", "kernels_emulated_attention"): {
        "heads of 128 take the large tile on every GPU": (
            "2 * LargeMemory::kBytes + 1024 <= gpu::shared_memory_limit()",
            "LargeMemory::kBytes > 0"),
        "heads of 256 have the tile of heads of 128": (
            "kHeadSize > 128 ? 32 : 64;",
            "64;"),
    },
    ("kernels/attention/cuda/schedule.h", "kernels_emulated_attention"): {
        "a section of heads is as wide as all that remain": (
            "const unsigned width = min(section, heads - first),",
            "const unsigned width = heads - first,"),
        "the last section of heads is a small one": (
            "return static_cast<unsigned>(ceil_div(all, sections));",
            "return static_cast<unsigned>(sections > 1 ? most : all);"),
    },
    ("kernels/attention/cuda/query_statistics.h", "kernels_attention_16bit"): {
        "D of the wrong head": (
            "const T* const o = x.o.rows(batch, head)[query];",
            "const T* const o = x.o.rows(batch, head / 2)[query];"),
    },
    ("kernels/attention/cuda/query_statistics.h", "kernels_attention"): {
        "D is summed over lanes of another row": (
            "__shfl_xor_sync(gpu::kFullWarp, result.delta, 2)",
            "__shfl_xor_sync(gpu::kFullWarp, result.delta, 4)"),
    },
    ("kernels/attention/cuda/rotate_back.h", "kernels_attention_rotary"): {
        "gradients are rotated on instead of back": (
            "const float turned = fmaf(a, cosine, b * sine);",
            "const float turned = fmaf(a, cosine, -(b * sine));"),
        "pairs of neighbours are rotated by the angles of other pairs": (
            "const int pair = places.column_of(piece, 0) / 2;",
            "const int pair = places.column_of(piece, 0) / 4;"),
        "a position outside the table is read": (
            "      if (!by.has(position)) continue;  // rope_forward has reported it\n",
            ""),
    },
    ("kernels/attention/cuda/hopper/key_value_gradient.h", "kernels_attention_rotary"): {
        "Hopper: keys' gradients are not rotated back": (
            "    rotate_back(dk, x.rotation, x.extents, block.batch, first_row);\n",
            ""),
    },
    ("kernels/attention/cuda/key_value_gradient_mma.cu", "kernels_attention_rotary --architecture=80"): {
        "both gradients of a pair of warps are rotated back": (
            "if (!makes_dv) rotate_back(",
            "rotate_back("),
    },
    ("kernels/attention/cuda/row_sums.h", "kernels_attention_row_sums"): {
        "sums take the place of rows that other lanes have not read": (
            "  __syncwarp();  // the rows have been read, and the sums take their place\n",
            ""),
        "a line lacks its last warp": (
            "for (int i = 0; i < kWarps; ++i) sum +=",
            "for (int i = 0; i + 1 < kWarps; ++i) sum +="),
        "a line is added before its warps have their sums": (
            "  sync();\n  const int warp",
            "  const int warp"),
        "Hopper: a warp stores its next rows over sums that are still added": (
            "  sync();\n}\n",
            "}\n"),
        "a line's warps add up the same channels": (
            "channel = 32 * warp + lane;",
            "channel = lane;"),
        "the second 64 channels of a head have the sums of the first": (
            "const int chunk = 8 * i + lane / 4;",
            "const int chunk = lane / 4;"),
    },
    ("kernels/attention/cuda/arguments.h", "kernels_attention_row_sums"): {
        "lines of all sequences of a batch are those of the first": (
            "std::int64_t{batch} * count + line;",
            "std::int64_t{batch * 0} * count + line;"),
    },
    ("kernels/attention/cuda/hopper/key_value_gradient.h", "kernels_attention_row_sums"): {
        "Hopper: sums of dV take the place of dK's": (
            "sum_rows_of(block, x.extents.heads + x.extents.kv_heads);",
            "sum_rows_of(block, x.extents.heads);"),
    },
    ("kernels/attention/cuda/key_value_gradient_mma.cu", "kernels_attention_row_sums --architecture=80"): {
        "sums of dV take the place of dK's": (
            "(makes_dv ? n.kv_heads : 0)",
            "(makes_dv ? 0 : n.kv_heads)"),
    },
    ("kernels/attention/cuda.cpp", "kernels_attention_row_sums"): {
        "packed documents have a place for lines": (
            "row_sums != nullptr && !first_key.defined()",
            "row_sums != nullptr"),
        "heads of 256 channels have a place for lines": (
            "q.head_size <= kMostSummedChannels",
            "q.head_size > 0"),
        "a padded head has a place for lines before it is rotated": (
            "&& !rotates_later &&",
            "&&"),
    },
    ("kernels/attention/op.cpp", "kernels_attention_row_sums"): {
        "keys and values may be packed in any order": (
            "x->offset == offset &&",
            "x->offset >= 0 &&"),
    },
    ("kernels/rope/device.h", "kernels_attention_rotary", "kernels_rope", "kernels_qk_norm"): {
        "a document's gradients are rotated back by positions in the row": (
            "(positions != nullptr ? positions[n] : token)",
            "(positions != nullptr && n < 0 ? positions[n] : token)"),
    },
    ("kernels/attention/cuda.cpp", "kernels_attention_16bit"): {
        "Hopper: gradients are made before the queries' statistics": (
            "    compute_statistics(call, statistics);\n"
            "    return backward_hopper(call, statistics);\n",
            "    backward_hopper(call, statistics);\n"
            "    return compute_statistics(call, statistics);\n"),
    },
    ("kernels/attention/cuda/hopper/work.h", "kernels_emulated_attention"): {
        "Hopper: the last section of a backward pass is taken to be whole": (
            "min(keys_of_section, keys.count() - first_key)",
            "keys_of_section"),
    },
    ("kernels/attention/cuda/hopper/query_gradient.h", "kernels_attention_16bit"): {
        "Hopper: the two parts of a backward pass count rows' tiles apart": (
            "  memory.queries.wait(rows);\n",
            "  memory.queries.wait(rows + 1);\n"),
        "Hopper: the gradient of queries is stored while its last tile is added": (
            "      gpu::wait_products<0>(dq.values[0]);\n",
            ""),
        "Hopper: the next tile's scores are taken for this one's": (
            "    gpu::wait_products<0>(p.values[0]);\n",
            ""),
        "Hopper: scores of the next tile do not wait for its keys": (
            "const auto keys = memory.keys.wait(tile);",
            "const auto keys = memory.keys.tile(tile);"),
        "Hopper: the gradient of queries releases the tile that it begins": (
            "    release_before(tile, memory.keys, memory.values);\n",
            "    release_before(tile + 1, memory.keys, memory.values);\n"),
        "Hopper: the last tile's gradient reads the keys of the next": (
            "ds_operand, memory.keys.tile(tile));",
            "ds_operand, memory.keys.tile(tile + 1));"),
        "Hopper: the gradient of queries masks one key too many": (
            "column <= row + of_warp;",
            "column < row + of_warp;"),
    },
    ("kernels/attention/cuda/hopper/query_gradient.h", "kernels_emulated_attention"): {
        "Hopper: scores of the next tile wait for dQ": (
            "      add_tile(p, tile, last_seen);\n",
            "      add_tile(p, tile, last_seen);\n"
            "      gpu::wait_products<0>(dq.values[0]);\n"),
    },
    ("kernels/attention/cuda/hopper/query_gradient.h", "kernels_attention_first_key"): {
        "Hopper: keys behind a document are cleared while scores are made from them": (
            "    if (kCut && count < kKeys) {  // 0 times NaN is NaN\n"
            "      gpu::clear_rows(count, keys, memory.values.wait(tile));\n"
            "    }\n"
            "    start_multiply(p, memory.queries.tile(0), rows.first(), keys);\n",
            "    start_multiply(p, memory.queries.tile(0), rows.first(), keys);\n"
            "    if (kCut && count < kKeys) {  // 0 times NaN is NaN\n"
            "      gpu::clear_rows(count, keys, memory.values.wait(tile));\n"
            "    }\n"),
        "Hopper: values behind a document are cleared before they arrive": (
            "memory.values.wait(tile));\n    }",
            "memory.values.tile(tile));\n    }"),
    },
    ("kernels/attention/cuda/hopper/backward_memory.h", "kernels_attention_16bit"): {
        "Hopper: a tile before the first is released": (
            "  if (tile == 0) return;\n",
            ""),
        "Hopper: the second ring's tiles are released when they are begun": (
            "  second.release(tile - 1);",
            "  second.release(tile);"),
        "Hopper: a tile's statistics have no room for an odd first query": (
            "kTileStatistics = kRowsOfBlock + 2;",
            "kTileStatistics = kRowsOfBlock;"),
    },
    ("kernels/attention/cuda/arguments.h", "kernels_attention_first_key"): {
        "Hopper: nothing is behind the last head's statistics": (
            "kStatisticsSlack = 128 + 2;",
            "kStatisticsSlack = 0;"),
    },
    ("kernels/cuda/tile_ring.h", "kernels_attention_16bit"): {
        "Hopper: the producer does not wait for a free stage": (
            "    gpu::wait(empty[number % kStages], parity(number) ^ 1);\n",
            ""),
        "Hopper: consumers do not wait for a tile": (
            "    gpu::wait(full[number % kStages], parity(number));\n",
            ""),
        "Hopper: a tile's barrier expects too few bytes": (
            "Tile::kBytes + more);",
            "Tile::kBytes + 0 * more);"),
    },
    ("kernels/attention/cuda/query_statistics.cu", "kernels_attention_16bit"): {
        "statistics of a head are made from the rows of another batch element": (
            "x, all_head / n.heads, all_head % n.heads,",
            "x, all_head / n.kv_heads, all_head % n.heads,"),
    },
    ("kernels/attention/cuda/pieces.h", "kernels_attention_first_key"): {
        "no barrier between the pieces of a block": (
            "    __syncthreads();  // all warps are done with the last piece\n",
            ""),
    },
    ("kernels/attention/cuda/runs.cu", "kernels_attention_first_key"): {
        "a document's tiles begin at the row's first key": (
            "min(max(key, 0), query + n.shift())",
            "0"),
        "a document's keys are seen by the queries after it": (
            "max(first_keys[end_query - 1] - n.shift(), 0), end_query,",
            "max(first_keys[end_query - 1] - n.shift(), 0), n.queries,"),
        "tiles of queries are counted from query 0": (
            "{end, max(first_keys[end_query - 1] - n.shift(), 0), end_query, 0}",
            "{end, 0, end_query, 0}"),
        "first keys are not checked": (
            "if (own[token] < least || own[token] >",
            "if (own[token] < least - n.keys || own[token] >"),
    },
    ("kernels/attention/cuda/fragments.h", "kernels_attention_first_key"): {
        "a piece is stored over the one before it": (
            "    if (first_token + row < range.first) continue;\n",
            ""),
    },
    ("kernels/attention/cuda/key_value_gradient_mma.cu", "kernels_attention_first_key --architecture=80"): {
        "the next document's queries are loaded": (
            "x.d_o.rows(batch, head), first_query, range.end);",
            "x.d_o.rows(batch, head), first_query, n.queries);"),
        "a document that begins at an odd query reads the statistics of the one before": (
            "memory.statistics_of(step) + odd;",
            "memory.statistics_of(step);"),
    },
    ("kernels/attention/cuda/forward_mma.cu", "kernels_attention_first_key --architecture=80"): {
        "the next document's keys are loaded": (
            "count = piece.end + n.shift();",
            "count = n.keys;"),
    },
    ("kernels/attention/cuda/tiles.h", "kernels_attention_16bit --architecture=80"): {
        "the last channels of heads of 80 are not loaded": (
            "chunk >= kHeadSize / 8) return;",
            "chunk >= kHeadSize / 8 - 1) return;"),
    },
    ("kernels/attention/cuda/hopper/pipeline.h", "kernels_attention_16bit"): {
        "Hopper: the consumers' first turn has no beginning": (
            "    if (group == 1) pass();",
            "    if (group == 2) pass();"),
    },
    ("kernels/attention/cuda/hopper/forward.cu", "kernels_attention_16bit"): {
        "Hopper: the first keys are released before their products are complete": (
            "    gpu::wait_products<0>(scores.values[0]);\n"
            "    memory.keys.release(tile);\n",
            "    memory.keys.release(tile);\n"
            "    gpu::wait_products<0>(scores.values[0]);\n"),
        "Hopper: values are released with the keys": (
            "    gpu::wait_products<0>(outputs.values[0]);\n"
            "    memory.values.release(tile - 1);\n"
            "    scale_rows",
            "    memory.values.release(tile - 1);\n"
            "    gpu::wait_products<0>(outputs.values[0]);\n"
            "    scale_rows"),
        "Hopper: outputs are corrected while they are summed": (
            "    gpu::wait_products<0>(outputs.values[0]);\n"
            "    memory.values.release(tile - 1);\n"
            "    scale_rows(outputs, corrections);\n",
            "    scale_rows(outputs, corrections);\n"
            "    gpu::wait_products<0>(outputs.values[0]);\n"
            "    memory.values.release(tile - 1);\n"),
        "Hopper: outputs are not corrected": (
            "    scale_rows(outputs, corrections);\n",
            "    static_cast<void>(corrections);\n"),
        "Hopper: all warps of a consumer have one mask": (
            "last_seen + ConsumerRows::of_warp();",
            "last_seen;"),
        "Hopper: a tile on the diagonal is not masked": (
            "last_seen >= kKeys - 1; ++step",
            "last_seen >= 0; ++step"),
    },
    ("kernels/attention/cuda/hopper/forward.cu", "kernels_attention_first_key"): {
        "Hopper: values behind a document are not cleared": (
            "    if (kCut && count < kKeys) gpu::clear_rows",
            "    if (kCut && count < 0) gpu::clear_rows"),
    },
    ("kernels/adamw/cpu.cpp", "kernels_adamw"): {
        "m and v are rounded by the same bits": (
            "new_v, word * kOfV >> 16",
            "new_v, word & 0xffffu"),
        "p and m are rounded by the same bits": (
            "new_m, word & 0xffffu",
            "new_m, word >> 16"),
        "moments in bf16 are rounded to nearest": (
            "store_rounded(v[i], new_v, word * kOfV >> 16);",
            "store_rounded(v[i], new_v, 0x7fffu + (word & 0u));"),
        "a range that begins within a Philox block takes its first words": (
            "words + skipped);",
            "words);"),
        "words that round are of ten rounds": (
            "fill_words<kRoundingRounds>(",
            "fill_words<10>("),
        "a run of columns takes the words of its place in the part": (
            "update_at_random<P, S, T>(t, factors, first, begin",
            "update_at_random<P, S, T>(t, factors, t.elements.first + begin + offset, begin"),
        "the copy is of p before the update": (
            "    if (factors) update<P, S>(t, *factors, begin, next);\n"
            "    if (copies) write_copy<P>(t, begin, next);\n",
            "    if (copies) write_copy<P>(t, begin, next);\n"
            "    if (factors) update<P, S>(t, *factors, begin, next);\n"),
        "a copy in 8 bits is not rounded to bf16 first": (
            "load(static_cast<bfloat16>(p[i]))",
            "load(p[i])"),
        "a copy in 8 bits records no magnitude": (
            "  raise(*t.to_8_bits.largest.data<float>(), most);\n",
            ""),
        "an update that is skipped leaves the copy in 8 bits": (
            "(factors || is_fp8(t.copy.dtype()))",
            "factors.has_value()"),
        "an update that is skipped writes every copy": (
            "(factors || is_fp8(t.copy.dtype()))",
            "(factors || !is_fp8(DType::f32))"),
    },
    ("kernels/adamw/cuda.cu", "kernels_adamw"): {
        "adamw: a GPU rounds a finite value to infinity": (
            "fabsf(value) < kLargest ? chance : 0",
            "isfinite(value) ? chance : 0"),
        "weight decay goes through the moments": (
            "const float g = gradient * f.gradient_scale;",
            "const float g = fmaf(f.decay, gpu::load(p), gradient * f.gradient_scale);"),
        "a run that ends within four neighbours goes on": (
            "if (place + 3 < elements.run)",
            "if (place < elements.run)"),
        "four neighbours are rounded by one random number": (
            "gradient.values[j], words[j], f);",
            "gradient.values[j], words[0], f);"),
        "v's bits are the lower half of the product": (
            "word * kOfV >> 16",
            "word * kOfV & 0xffffu"),
        "p moves by a rounded moment": (
            "new_m / root",
            "gpu::load(m) / root"),
        "the copy's address is not looked at": (
            "gpu::are_quads(p, m, v, gradient) && copy.has_quads()",
            "gpu::are_quads(p, m, v, gradient)"),
        "on a GPU a copy in 8 bits is not rounded to bf16 first": (
            "gpu::rounded<bfloat16>(given)",
            "given"),
        "on a GPU a copy in 8 bits records no magnitude": (
            "  if (t.copy.rounds()) gpu::raise(t.copy.largest, rounding.most);\n",
            ""),
        "on a GPU an update that is skipped leaves the copy in 8 bits": (
            "if (!updates && !t.copy.rounds()) return;",
            "if (!updates) return;"),
        "four numbers of 8 bits are written to any address": (
            "rounds() ? 4 :",
            "rounds() ? 1 :"),
        "a neighbour of the four in 8 bits takes its place": (
            "<< (8 * j);",
            "<< (8 * (j ^ 1));"),
        "the copy is f16 in every case": (
            "if (dtype == DType::bf16) return write_as<bfloat16>(p, i);",
            "if (dtype == DType::bf16) return write_as<float16>(p, i);"),
    },
    ("kernels/cuda/tile_ring.h", "kernels_attention_first_key"): {
        "Hopper: one thread fences for all that have cleared rows": (
            "  fence_shared_for_engines();\n",
            "  if (threadIdx.x == kWarpgroup) fence_shared_for_engines();\n"),
        "Hopper: cleared rows are not shown to the tensor cores": (
            "  fence_shared_for_engines();\n",
            ""),
    },
    ("kernels/cuda/panel_tile.h", "kernels_attention_16bit"): {
        "Hopper: a panel of 64 channels is taken for the whole row": (
            "step / kSteps * kRows + row",
            "row"),
    },
    ("kernels/attention/cuda/tiles.h", "kernels_attention_16bit"): {
        "a padded head has channels of its neighbour": (
            "const int end = chunk * 8 < source.channels ? count : 0;",
            "const int end = count;"),
        "heads of 256: all rows of a chunk are at the place of the first": (
            "(place ^ i % 8 * 8);",
            "place;"),
    },
    ("kernels/attention/cuda.cpp", "kernels_attention_rotary"): {
        "the pairs of a padded head are those of its tile": (
            "fills_a_tile(q.head_size) ? rotary : nullptr",
            "rotary"),
    },
    ("kernels/cuda/work_queue.h", "kernels_emulated_attention"): {
        "Hopper: the first draw skips a block of rows": (
            "    return drawn;\n",
            "    return drawn + 1;\n"),
    },
    ("kernels/cuda/work_queue.h", "kernels_attention_16bit"): {
        "Hopper: a launch leaves its count of draws to the next": (
            "    if (drawn + 1 == count + producers()) atomicExch(draws, 0u);\n",
            ""),
    },
    ("kernels/attention/cuda/hopper/work.h", "kernels_emulated_traffic"): {
        "Hopper: a block of queries visits the keys that are hidden from it": (
            "count(block.visible_keys(n, piece.end) - piece.first_key)",
            "count(0 * block.visible_keys(n, piece.end) + n.keys - piece.first_key)"),
    },
    ("kernels/cuda/last_block.h", "kernels_norms"): {
        "the first block of a group adds its lines": (
            "last = atomicAdd(ticket, 1u) + 1 == count;",
            "last = atomicAdd(ticket, 1u) == 0 && count > 0;"),
        "tickets are not given back": (
            "    if (last) atomicExch(ticket, 0u);\n",
            ""),
    },
    ("kernels/cuda/column_sums.h", "kernels_norms"): {
        "the last group of blocks is taken for a whole one": (
            "const unsigned size = min(blocks_of_group, count - first);",
            "const unsigned size = blocks_of_group;"),
        "the sum of groups reads the lines of the first groups' blocks": (
            "      to_next *= blocks_of_group;\n",
            ""),
    },
    ("kernels/cuda/column_sums.h", "kernels_emulated_traffic"): {
        "sums over rows have a line for every row": (
            "/*fewest_rows=*/8",
            "/*fewest_rows=*/1"),
    },
    ("kernels/attention/cuda/hopper/key_value_gradient.h", "kernels_attention_first_key"): {
        "Hopper: statistics are read from an even query on": (
            "+ half.first + (kCut ? queries.odd : 0);",
            "+ half.first;"),
        "Hopper: queries before a document's end are hidden": (
            "gpu::clear_rows(first + count, queries, d_output);",
            "gpu::clear_rows(count + 0 * first, queries, d_output);"),
        "Hopper: queries behind a document keep their statistics": (
            "thread >= count && thread < kQueries",
            "thread >= count && thread < 0"),
    },
    ("kernels/attention/cuda/hopper/key_value_gradient.h", "kernels_emulated_attention"): {
        "Hopper: every step waits for its dK": (
            "if (kCut && kHeadSize == 128) gpu::wait",
            "if (kHeadSize > 0) gpu::wait"),
    },
    ("kernels/attention/cuda/hopper/key_value_gradient.h", "kernels_attention_16bit"): {
        "Hopper: a query does not see its own key": (
            "key + of_warp <= query;",
            "key + of_warp < query;"),
        "Hopper: queries are released before their products are complete": (
            "    gpu::wait_products<kInFlight>(dk.values[0]);\n"
            "    if (half.first == 0) release_before(half.tile, memory.queries, memory.d_output);\n",
            "    if (half.first == 0) release_before(half.tile, memory.queries, memory.d_output);\n"
            "    gpu::wait_products<kInFlight>(dk.values[0]);\n"),
        "Hopper: the next step's dP is started before dK's wait": (
            "    end_step_before<1>(half);\n",
            "    end_step_before<2>(half);\n"),
        "Hopper: a step that a consumer leaves out does not wait for dK": (
            "          end_step_before<0>(half);\n",
            "          end_step_before<1>(half);\n"),
        "Hopper: a step that a consumer leaves out releases no tile": (
            "          end_step_before<0>(half);\n",
            "          gpu::wait_products<0>(dk.values[0]);\n"),
        "Hopper: a piece ends before dK's last products": (
            "    gpu::wait_products<0>(dk.values[0]);\n    tile = step / 2;\n",
            "    tile = step / 2;\n"),
        "Hopper: a tile is released by both of its steps": (
            "    if (half.first == 0) release_before(",
            "    if (half.first >= 0) release_before("),
        "Hopper: the next head begins in the last one's tile": (
            "      step += step % 2;  // the next head begins with a tile\n",
            ""),
        "Hopper: both steps of a tile have the scores of the first": (
            "rows().first(), queries, half.first);",
            "rows().first(), queries, 0 * half.first);"),
        "Hopper: both steps of a tile have dP of the first": (
            "rows().first(), d_output, half.first);",
            "rows().first(), d_output, 0 * half.first);"),
        "Hopper: both steps of a tile add the first one's dO": (
            "start_multiply_add(dv, operand, d_output, half.first);",
            "start_multiply_add(dv, operand, d_output, 0 * half.first);"),
        "Hopper: both steps of a tile add the first one's Q": (
            "start_multiply_add(dk, operand, queries, half.first);",
            "start_multiply_add(dk, operand, queries, 0 * half.first);"),
        "Hopper: both steps of a tile have the statistics of the first": (
            "memory.statistics_of(half.tile) + half.first +",
            "memory.statistics_of(half.tile) +"),
        "Hopper: dS takes the registers of P while dV reads them": (
            "    gpu::wait_products<0>(dv.values[0]);\n"
            "    pack<T>(operand, ds);\n",
            "    pack<T>(operand, ds);\n"
            "    gpu::wait_products<0>(dv.values[0]);\n"),
    },
    ("kernels/cuda/rows.h", "kernels_norms"): {
        "no barrier before the last call's partial sums are overwritten": (
            "    __syncthreads();  // the readers of an earlier call are done\n",
            ""),
    },
    ("kernels/cuda/row_ring.h", "kernels_emulated_row_ring"): {
        "a team does not wait for its row": (
            "stages_ > 0 ? gpu::wait(full(), turn_ >= stages_ ? 1 : 0) : fetch(n + step_);",
            "if (stages_ == 0) fetch(n + step_);"),
        "a team waits for a stage's last row": (
            "turn_ >= stages_ ? 1 : 0)",
            "turn_ >= stages_ ? 0 : 1)"),
        "all rows of a stage are in even phases": (
            "++turn_ == 2 * stages_",
            "++turn_ == stages_"),
        "a stage takes the next row before all threads have read the last": (
            "    team_barrier();\n    fetch(n_",
            "    fetch(n_"),
        "a team has no barrier after its first thread made the stages'": (
            "      turn_ = 0;\n      team_barrier();\n",
            "      turn_ = 0;\n"),
        "a row is expected of a matrix that is absent": (
            "count_ * bytes)",
            "kMatrices * bytes)"),
        "all rows of a stage are in the first one's place": (
            "copy_bytes(place(i),",
            "copy_bytes(place(0),"),
        "rows behind the team's last are copied": (
            "if (n >= end_ || !Layout",
            "if (!Layout"),
        "a ring of three stages copies a row twice": (
            "fetch(n_ + stages_ * step_);",
            "fetch(n_ + 2 * step_);"),
        "the room of a ring counts memory that is declared": (
            "if (declared + bytes <= room)",
            "if (0 * declared + bytes <= room)"),
        "rows of two tiles have a ring": (
            "columns > Layout::kTile ||",
            "columns > 2 * Layout::kTile ||"),
    },
    ("kernels/rms_norm/cuda.cu", "kernels_norms"): {
        "epsilon outside the root": (
            "1.0f / sqrtf(mean_square + p.epsilon)",
            "1.0f / (sqrtf(mean_square) + p.epsilon)"),
    },
    ("kernels/qk_norm/cuda.cu", "kernels_qk_norm"): {
        "keys are normalized with the weight of queries": (
            "p.weight + (head < p.queries ? 0 : size)",
            "p.weight + (head < p.heads ? 0 : size)"),
        "a head's sum of squares is that of all heads of a warp": (
            "warp_reduce<Sum>(squares, p.lanes)",
            "warp_reduce<Sum>(squares)"),
        "a team behind a chunk's last head takes another's": (
            "row < tokens * heads ? size : 0",
            "row <= tokens * heads ? size : 0"),
        "a chunk's later tokens are taken for its first": (
            "begin + row / heads",
            "begin + row / (heads * tokens)"),
        "the sums of keys overwrite those of queries": (
            "p.lines + (2 * blockIdx.x + kind) * p.stride",
            "p.lines + 2 * blockIdx.x * p.stride"),
        "a head's epsilon is outside the root": (
            "1.0f / sqrtf(mean_square + p.epsilon)",
            "1.0f / (sqrtf(mean_square) + p.epsilon)"),
        "every group of heads has the first keys on the GPU": (
            "static_cast<int>(heads) + number * keys}",
            "static_cast<int>(heads)}"),
    },
    ("kernels/cuda/rows.h", "kernels_qk_norm"): {
        "a head's sum of products is that of all heads of a warp": (
            "Layout::kTeam < kWarpSize ? Layout::kTeam : kWarpSize);",
            "kWarpSize);"),
    },
    ("kernels/rope/device.h", "kernels_qk_norm", "kernels_rope"): {
        "heads of an odd number of pairs are written beyond their end": (
            "if (i < count) gpu::store",
            "if (count > 0) gpu::store"),
    },
    ("kernels/layer_norm/cuda.cu", "kernels_norms"): {
        "the variance counts a column too many": (
            "column < columns ? x - mean",
            "column <= columns ? x - mean"),
        "sums over rows begin with what the workspace holds": (
            "dbias.resume(bias_line + c, p.C - c, n == begin);",
            "dbias.resume(bias_line + c, p.C - c, false);"),
    },
    ("kernels/round_sum/cuda.cu", "kernels_round_sum"): {
        "the GPU rounds a sum before it adds the residual": (
            "if (residual != nullptr) value += gpu::load(residual[i]);",
            "if (residual != nullptr) {\n"
            "    gpu::store(y[i], value);\n"
            "    value = gpu::load(y[i]) + gpu::load(residual[i]);\n"
            "  }"),
        "a row's number chooses its bias": (
            "bias[i % columns]",
            "bias[i / columns % columns]"),
    },
    ("kernels/bias/cuda.cu", "kernels_bias"): {
        "the last columns, fewer than a stripe, are left out": (
            "stripes(ceil_div(C, stripe)),",
            "stripes(C / stripe > 0 ? C / stripe : 1),"),
        "a second tile of columns is added to the first": (
            "of_tile.store(line + c, C - c);",
            "of_tile.store(line, C - c);"),
    },
    ("kernels/bias/cuda.cu", "kernels_norms"): {
        "rows of a bias's gradient are cut as those of RMS norm": (
            "chunks_for_summing<Layout, kSumsOfLayerNorm>(N)",
            "chunks_for_summing<Layout, 1>(N)"),
    },
    ("kernels/cuda/column_sums.cu", "kernels_bias"): {
        "sums over no rows are left as they were": (
            "if (sums.defined() && accumulate == Accumulate::no) sums.zero();",
            "static_cast<void>(accumulate);"),
    },
    ("autograd/engine.cpp", "autograd_gradient_total"): {
        "a total stays when another consumer adds to the gradient": (
            "  if (gradient_.defined()) empty_total();\n",
            ""),
        "a total stays when an operation adds up the gradient": (
            "  empty_total();\n  return std::exchange(gradient_, {});",
            "  return std::exchange(gradient_, {});"),
    },
    ("autograd/operations/linear.cpp", "autograd_gradient_total"): {
        "a bias takes the total of a gradient that was rounded to 8 bits": (
            "return factor.values.raw() == dy.raw() ? sum : Tensor();",
            "return dy.defined() && factor.defined() ? sum : Tensor();"),
    },
    ("autograd/operations/linear_gradients.cpp", "autograd_gradient_total"): {
        "a total overwrites the gradient of the pass before": (
            "sum_of_lines(total) : total, dbias.accumulate());",
            "sum_of_lines(total) : total, Accumulate::no);"),
        "lines overwrite the gradient of the pass before": (
            "bias_backward(window, total, dbias.accumulate());",
            "bias_backward(window, total, Accumulate::no);"),
        "lines of a gradient in 16 bits are added to what memory held": (
            "bias_backward(sum, lines, Accumulate::no);",
            "bias_backward(sum, lines, Accumulate::yes);"),
    },
    ("autograd/operations/attention.cpp", "autograd_gradient_total"): {
        "attention leaves lines of gradients that norms change later": (
            "norm.defined() ? nullptr : total_of_gradient(qkv);",
            "total_of_gradient(qkv);"),
        "attention leaves no lines": (
            "rotary.defined() ? &rotary : nullptr, total.get());",
            "rotary.defined() ? &rotary : nullptr, total == nullptr ? total.get() : nullptr);"),
    },
    ("autograd/operations/norm.cpp", "autograd_gradient_total"): {
        "a norm keeps its total": (
            "        if (sums_rows) *total = dx_total;\n",
            ""),
    },
    ("kernels/cuda/elementwise.h", "kernels_add"): {
        "the last vector is taken though it is not whole": (
            "  if (i + kWidth <= count) {",
            "  if (i < count) {"),
    },
    ("kernels/cuda/sigmoid.h", "kernels_swiglu"): {
        "a gradient is overwritten before its last reader": (
            "  gate = d * up * derivative;\n"
            "  up = d * value;\n",
            "  up = d * value;\n"
            "  gate = d * up * derivative;\n"),
        "gradients of weighed rows are those of rows that are not": (
            "dh[j] = d[i + j] * weight;",
            "dh[j] = d[i + j];"),
        "gradients of weighed rows are not rounded before those of gate and up": (
            "    round_all<T>(dh);\n",
            ""),
        "a weight's gradient is summed from h before it is rounded": (
            "    round_all<T>(h);\n",
            ""),
        "a weight's gradient is summed from weighed rows": (
            "dweight += d[i + j] * h[j];",
            "dweight += d[i + j] * h[j] * weight;"),
        "the rows of experts are made again without their weights": (
            "d[i + j] = h[j] * weight;",
            "d[i + j] = h[j];"),
    },
    ("kernels/swiglu/cuda.cu", "kernels_swiglu"): {
        "SwiGLU reads before its wait": (
            "Rows<const T> gate, Rows<const T> up, std::int64_t columns) {\n"
            "  gpu::wait_for_launch_ahead();\n",
            "Rows<const T> gate, Rows<const T> up, std::int64_t columns) {\n"
            "  float early[1];\n"
            "  gpu::load_all(early, gate.at(0, 0));\n"
            "  gpu::wait_for_launch_ahead();\n"),
        "vectors at addresses that are not multiples of 16": (
            "gpu::is_vectorizable(first, stride) && ",
            ""),
        "a row of experts has the weight of the slot with its number": (
            "const float weight = x.slots.weight(slot);",
            "const float weight = x.slots.weight(row);"),
    },
    ("kernels/grouped_matmul/hopper/tiles.h", "kernels_grouped_matmul"): {
        "up is gate's columns again": (
            "kSectionsOf<kResult> == kParts ? work.section : kCopied;",
            "kSectionsOf<kResult> == kParts ? 0 : kCopied;"),
        "grouped, Hopper: a block of a cluster keeps its half of b to itself": (
            "static_cast<std::uint16_t>((1 << blocks) - 1)",
            "static_cast<std::uint16_t>(1 << gpu::block_in_cluster())"),
        "grouped, Hopper: both consumers take the first one's columns of a": (
            "left().columns(step, group)",
            "left().columns(step)"),
    },
    ("kernels/grouped_matmul/hopper/consumer.h", "kernels_grouped_matmul"): {
        "grouped, Hopper: the next expert's rows count in a weight's gradient": (
            "kOfWeights && work.depth - depth < kStepDepth",
            "kOfWeights && work.depth - depth < 0"),
        "grouped, Hopper: of the next expert's rows only one operand's are cleared": (
            "gpu::clear_rows(work.depth - depth, tiles.left(), tiles.right());",
            "gpu::clear_rows(work.depth - depth, tiles.left());"),
        "grouped, Hopper: a step's tiles are released while their products are in flight": (
            "      gpu::wait_products<1>();\n",
            ""),
        "grouped, Hopper: a consumer without rows keeps the tiles": (
            "      wait(work, depth);\n"
            "      ring.release(tile);\n",
            "      wait(work, depth);\n"),
        "grouped, Hopper: a tile's sum begins with the last tile's": (
            "start_products(sum, rows.group, kBegun || depth > 0);",
            "start_products(sum, rows.group, true);"),
        "grouped, Hopper: a consumer hands over a gradient that is left alone": (
            "    if (is_left_alone(problem, work)) return;\n",
            ""),
    },
    ("kernels/grouped_matmul/hopper/consumer.h", "kernels_fp8_grouped_matmul"): {
        "8-bit experts: a step's sum begins with that of the step before": (
            "start_products(step, rows.group, false);",
            "start_products(step, rows.group, depth > 0);"),
        "8-bit experts: weights have the scale of the rows": (
            "inverse_b = *problem.inverse_b;",
            "inverse_b = *problem.inverse_a;"),
    },
    ("kernels/grouped_matmul/hopper/consumer.h", "kernels_emulated_fp8_sums"): {
        "8-bit experts: all steps are one sum of 14 bits": (
            "      Sums step;\n"
            "      wait(work, depth).start_products(step, rows.group, false);\n"
            "      gpu::wait_products<0>(step);\n"
            "      ring.release(tile);\n"
            "      for_each_sum([&](int i, int j) { sum[i][j] += step[i][j]; });\n",
            "      wait(work, depth).start_products(sum, rows.group, depth > 0);\n"
            "      gpu::wait_products<0>(sum);\n"
            "      ring.release(tile);\n"),
    },
    ("kernels/grouped_matmul/cuda.cu", "kernels_fp8_grouped_matmul"): {
        "8-bit experts: a row has as many pairs as numbers": (
            ".K = K / 2,",
            ".K = K,"),
        "8-bit experts: numbers of e5m2 are taken for e4m3": (
            "a.values.dtype() == DType::e4m3 && b",
            "b"),
        "8-bit experts: weights are read by columns as they are stored": (
            "transpose_b == Transpose::yes && K % 2 == 0",
            "(transpose_b == Transpose::yes || true) && K % 2 == 0"),
        "8-bit experts: swiglu's rows are not aligned": (
            "  if (y.defined() && !gpu::is_vectorizable(problem.activated, y.size(1))) return false;\n",
            ""),
    },
    ("kernels/grouped_matmul/factor.cpp", "kernels_emulated_grouped_matmul"): {
        "8-bit experts: swiglu is always a separate kernel": (
            "  if (multiply_fp8(y, c, a, b, offsets, transpose_b)) return;\n",
            ""),
    },
    ("kernels/grouped_matmul/hopper/epilogue.h", "kernels_grouped_matmul"): {
        "grouped, Hopper: rows behind the expert's last are stored": (
            "min(Staging::kRows, work.rows - Staging::kRows * group)",
            "Staging::kRows"),
        "grouped, Hopper: a row's last columns are followed by the next row's": (
            "if (column >= work.columns) return;",
            "if (column > work.columns) return;"),
        "grouped, Hopper: the epilogue waits for rows of a consumer that has none": (
            "        if (Staging::kRows * group >= work.rows) continue;\n",
            ""),
        "grouped, Hopper: both consumers' pieces are counted together": (
            "staging.wait(group, places[group]++);",
            "staging.wait(group, places[0]++);"),
        "grouped, Hopper: a tile of results is released before it is read": (
            "        store(work, group, piece * Staging::kPieceColumns, own, sums);\n",
            "        staging.release(group);\n"
            "        store(work, group, piece * Staging::kPieceColumns, own, sums);\n"),
        "swiglu of gate and gate": (
            "staging.chunk(group, row, kChunks + chunk);",
            "staging.chunk(group, row, chunk);"),
    },
    ("kernels/grouped_matmul/hopper/epilogue.h", "kernels_emulated_grouped_matmul"): {
        "SwiGLU's gradient: the rows of a batch have the first one's gate": (
            "gpu::Vector<S>::load_raw(gate_up + i * kStep * columns());",
            "gpu::Vector<S>::load_raw(gate_up);"),
        "SwiGLU's gradient: a batch goes on behind the expert's last row": (
            "      if (row + i * kStep >= rows) break;\n"
            "      gates[i]",
            "      gates[i]"),
        "SwiGLU's gradient: a row has the columns of its product": (
            "return kResultsOf<kResult> * problem.N;",
            "return problem.N;"),
        "weighed rows: lanes look after rows in the order of their chunks": (
            "i = chunk % kShare * kBatch + chunk / kShare;",
            "i = chunk;"),
        "weighed rows: the weight of the slot with the row's number": (
            "problem.weights[own.slot]",
            "problem.weights[work.a.token + row]"),
        "weighed rows: both consumers' rows have the slots of the first": (
            "problem.slots[work.a.token + Staging::kRows * group + row]",
            "problem.slots[work.a.token + row]"),
        "weighed rows: sums of rows behind the expert's last": (
            "row >= rows_of(work, group)) return own;",
            "row >= Staging::kRows) return own;"),
        "weighed rows: the rows of a batch have the first one's weight": (
            "own.weight, i * kShare + batch, kChunks);",
            "own.weight, batch, kChunks);"),
        "weighed rows: the last batch's sums are for all rows": (
            "if (chunk % kShare == batch) sum = part;",
            "sum = part;"),
        "weighed rows: all tiles' parts are the first one's": (
            "problem.sums[tile * problem.P + own.slot] = sum;",
            "problem.sums[0 * tile + own.slot] = sum;"),
        "weighed rows: lanes give away the sums that they keep": (
            "const float given = second ? parts[i] : parts[i + count];",
            "const float given = parts[i + count];"),
        "weighed rows: a lane's sum is the row's": (
            "return gpu::warp_reduce<gpu::Sum>(parts[0], kShare);",
            "return parts[0];"),
        "weighed rows: columns behind the last are there": (
            "const int end = column < work.columns ? rows : 0;",
            "const int end = rows;"),
        "weighed rows are stored as far apart as gate and up": (
            "d.store_at_once(gated + at(i));",
            "d.store_at_once(gated + 2 * at(i));"),
        "weighed rows: a batch has the gate of its first row": (
            "load_raw(gate_up + 2 * at(i)) :",
            "load_raw(gate_up + 2 * at(0)) :"),
    },
    ("kernels/grouped_matmul/hopper/epilogue.h", "kernels_emulated_gelu_epilogue"): {
        "GELU's gradient: a line is written before all lanes have read the room": (
            "    gpu::named_sync(kEpilogueBarrier, gpu::kEpilogueThreads);\n"
            "#pragma unroll\n"
            "    for (int i = 0; i < kFours; ++i) {\n",
            "#pragma unroll\n"
            "    for (int i = 0; i < kFours; ++i) {\n"),
        "GELU's gradient: sums of lanes are added before all are there": (
            "    gpu::named_sync(kEpilogueBarrier, gpu::kEpilogueThreads);\n"
            "    const int column = 4 * own;",
            "    const int column = 4 * own;"),
        "GELU's gradient: the last lane's sums are left out": (
            "for (int i = 1; i < kStep; ++i) {",
            "for (int i = 1; i < kStep - 1; ++i) {"),
        "GELU's gradient: the sums of another chunk are added": (
            "own % kFours * kPitch + own / kFours;",
            "own / kFours;"),
        "GELU's gradient: all sums go to the first line": (
            "const std::int64_t line = (problem.P - work.rows) / kRowsOfLine;",
            "const std::int64_t line = 0;"),
        "GELU's gradient: the sums are of numbers that are not rounded": (
            "const auto rounded = gpu::Vector<S>::unpack(d.pack());",
            "const auto& rounded = d;"),
        "GELU's gradient: only whole tiles have a line": (
            "Staging::kRows * (group + 1) >= min(kTileRows, work.rows);",
            "group == 1;"),
        "GELU's gradient: the value in place of the derivative": (
            "gpu::TanhGelu::both(x.values[j]).derivative;",
            "gpu::TanhGelu::both(x.values[j]).value;"),
        "GELU: pre is stored in place of y": (
            "    x.store_at_once(to_activated);",
            "    *reinterpret_cast<uint4*>(to_activated) = raw;"),
    },
    ("kernels/grouped_matmul/hopper/consumer.h", "kernels_emulated_gelu_epilogue"): {
        "GELU: all lanes begin with the first two of a fragment's biases": (
            "const int first = static_cast<int>(threadIdx.x % 4) * 2;",
            "const int first = 0;"),
        "GELU: every tile begins with the first columns' bias": (
            "problem.bias + (problem.N - work.columns) + first;",
            "problem.bias + first;"),
        "GELU: the first product overwrites the bias": (
            "start_products(sum, rows.group, kBegun || depth > 0);",
            "start_products(sum, rows.group, depth > 0);"),
    },
    ("kernels/grouped_matmul/cuda.cu", "kernels_emulated_gelu_epilogue"): {
        "GELU's gradient takes the epilogue in narrow layers": (
            "gpu::is_vectorizable(problem.pre, problem.N) && problem.N >= kFewestGeluColumns;",
            "gpu::is_vectorizable(problem.pre, problem.N);"),
    },
    ("kernels/linear/cuda.cpp", "kernels_emulated_gelu_epilogue"): {
        "GELU's gradient takes the epilogue that the rank has not chosen": (
            "  if (pre.defined() && matmul_options().gelu == GeluChoice::own &&\n",
            "  if (pre.defined() &&\n"),
    },
    ("kernels/linear/op.cpp", "kernels_emulated_gelu_epilogue"): {
        "GELU's gradient: the caller keeps the sums of another product": (
            "  if (row_sums != nullptr) *row_sums = {};\n",
            ""),
    },
    ("kernels/linear/cuda.cpp", "kernels_emulated_grouped_matmul"): {
        "SwiGLU's gradient takes the epilogue at any depth": (
            "  if (!takes_swiglu_epilogue(matmul_options().swiglu, dy.size(1))) return false;\n",
            ""),
        "a dense gated layer forgets the rank's choice": (
            "bias.defined() || !takes_swiglu_epilogue(matmul_options().swiglu, x.size(1))",
            "bias.defined()"),
        "the automatic choice is made by the layer's outputs": (
            "takes_swiglu_epilogue(matmul_options().swiglu, x.size(1))",
            "takes_swiglu_epilogue(matmul_options().swiglu, y.size(1))"),
    },
    ("kernels/grouped_matmul/hopper/gather.h", "kernels_gathered_matmul"): {
        "gathered rows: a slot is taken for a token": (
            "slot < 0 ? slot : slot / per_token;",
            "slot < 0 ? slot : slot;"),
        "gathered rows: slots behind the expert's last are read": (
            "row < count ? of_rows[first + row] : -1;",
            "row < count + kRows ? of_rows[first + row] : -1;"),
        "gathered rows: columns behind a row's end are the next token's": (
            "token >= 0 && from < columns;",
            "token >= 0 && from < columns + 8;"),
        "gathered rows: four rows have the first one's token": (
            "__shfl_sync(gpu::kFullWarp, own, j + lane / kChunks);",
            "__shfl_sync(gpu::kFullWarp, own, j);"),
        "gathered rows: wgmma reads copies that are in flight": (
            "    gpu::copy_async_wait<kLeft>();\n",
            ""),
        "gathered rows: copies are not fenced before they are announced": (
            "    gpu::fence_shared_for_engines();\n",
            ""),
        "gathered rows: the newest step arrives in place of the oldest": (
            "ring.filled(tile - count + 1)",
            "ring.filled(tile)"),
        "gathered rows: a step has the slots of the step before": (
            "rows_.load(slots_, place(work).token + next, work.depth - next);",
            "rows_.load(slots_, place(work).token + depth, work.depth - next);"),
        "gathered rows: an expert of few steps keeps the readers of its number waiting": (
            "    if (work.depth < under_way_.kMost * kStepDepth) finish(tile);\n",
            ""),
        "gathered rows: b's rows are as long as a's": (
            "static_cast<int>(!kOfA        ? problem.N",
            "static_cast<int>(!kOfA        ? problem.M"),
    },
    ("kernels/cuda/panel_tile.h", "kernels_gathered_matmul"): {
        "gathered rows: chunks are not swizzled": (
            "(chunk ^ row % 8) * (16",
            "(chunk ^ row * 0) * (16"),
    },
    ("kernels/grouped_matmul/hopper/kernel.h", "kernels_gathered_matmul"): {
        "gathered rows: the last steps of a thread block never arrive": (
            "  gatherer.finish(tile - 1);\n",
            ""),
    },
    ("kernels/grouped_matmul/cuda.cu", "kernels_gathered_matmul"): {
        "gathered rows: there are as many rows as tokens": (
            "  problem.P = rows.size(0);\n",
            ""),
        "gathered rows: those of b are taken for a's": (
            "a.of_tokens() ? Gathered::a : Gathered::b,",
            "a.of_tokens() ? Gathered::a : Gathered::a,"),
    },
    ("kernels/grouped_matmul/cuda.cu", "kernels_emulated_grouped_matmul"): {
        "rows are left to be gathered on GPUs that do not": (
            "sizeof(T) == 2 && gpu::has_hopper() &&",
            "sizeof(T) == 2 &&"),
        "weights' gradients: the second tile is left out": (
            "for (std::int64_t tile = 1; tile < tiles; ++tile) sum",
            "for (std::int64_t tile = 2; tile < tiles; ++tile) sum"),
        "weights' gradients: a tile's parts follow the first row's": (
            "sum += parts[tile * rows + row];",
            "sum += parts[tile + row];"),
        "weights' gradients: each tile has as many columns as a narrow one": (
            "const std::int64_t tiles = ceil_div(problem.N, groups::columns_of_tile(problem.N));",
            "const std::int64_t tiles = ceil_div(problem.N, 128);"),
    },
    ("kernels/grouped_matmul/gathered.cpp", "kernels_emulated_grouped_matmul"): {
        "rows of gate and up are dispatched though they could be gathered": (
            "    if (multiply_tokens(y, c, a, b.values, offsets, transpose_b)) return;\n",
            ""),
        "rows of a weight's gradient are dispatched though they could be gathered": (
            "    if (multiply_tokens_weight(c, a, b, offsets, accumulate)) return;\n",
            ""),
    },
    ("autograd/experts.cpp", "autograd_experts"): {
        "tokens that are weighed on their way in are gathered without their weights": (
            "!at.travel() && !weights.defined() &&",
            "!at.travel() &&"),
    },
    ("autograd/experts.cpp", "autograd_fp8"): {
        "rows of products in 8 bits are gathered, and not rounded": (
            "gathers_rows(tokens) && !multiplies_in_fp8(layer.weight);",
            "gathers_rows(tokens);"),
    },
    ("runtime/emulation/device/asynchronous_copy.cpp", "emulation_wgmma"): {
        "the emulator lets wgmma read copies that no thread has fenced": (
            "  block.shared().note_copy(copy.shared, SharedMemory::Copied::unfenced);\n",
            "  block.shared().note_copy(copy.shared, SharedMemory::Copied::seen);\n"),
        "the emulator lets wgmma read copies in flight": (
            "  block.shared().note_copy(copy.shared, SharedMemory::Copied::in_flight);\n",
            ""),
        "the emulator lets cp.async write what wgmma reads": (
            "if (warpgroups_read(copy.shared, 16)) {",
            "if (copy.bytes > 16 && warpgroups_read(copy.shared, 16)) {"),
    },
    ("kernels/grouped_matmul/hopper/staging.h", "kernels_grouped_matmul"): {
        "grouped, Hopper: consumers do not wait until a tile of results is stored": (
            "      gpu::wait(empty[group], place % 2 ^ 1);\n",
            ""),
        "grouped, Hopper: the second piece of sums is the first one again": (
            "sum + piece * (kPieceColumns / 8)",
            "sum"),
        "grouped, Hopper: a fragment's lower rows are its upper ones": (
            "fragment[i % 2 * 2], fragment[i % 2 * 2 + 1]",
            "fragment[0], fragment[1]"),
    },
    ("kernels/grouped_matmul/hopper/staging.h", "kernels_emulated_traffic"): {
        "grouped, Hopper: rows of results are not swizzled": (
            "return row % 4 * 2 + row / 4 % 2;",
            "return row * 0;"),
        "grouped, Hopper: four neighbouring rows of sums share banks": (
            "return row % 4 * 2 + row / 4 % 2;",
            "return row % 8;"),
    },
    ("kernels/grouped_matmul/hopper/work.h", "kernels_grouped_matmul"): {
        "grouped, Hopper: an expert without tokens keeps its old gradient": (
            "return work.depth == 0 && p.accumulate;",
            "return work.depth == 0 && p.of_weights;"),
        "a tile of gate and up moves on by all of its columns": (
            "static_cast<int>(tile) * (kColumns / kSectionsOf<kResult>)",
            "static_cast<int>(tile) * kColumns"),
        "grouped, Hopper: both blocks of a cluster have the upper tile of an expert": (
            "static_cast<int>(tile.tile) * height() + own_row();",
            "static_cast<int>(tile.tile) * height();"),
        "grouped, Hopper: groups of rows from other ranks take the next matrix in memory": (
            "tile.expert % p.matrices);",
            "tile.expert);"),
    },
    ("kernels/cuda/work_queue.h", "kernels_grouped_matmul"): {
        "grouped, Hopper: one lane alone has the number of a drawn tile": (
            "      number = __shfl_sync(kFullWarp, number, 0);\n",
            ""),
        "grouped, Hopper: both blocks of a cluster count as producers of the queue": (
            "return thread_blocks() / blocks_of_cluster();",
            "return thread_blocks();"),
        "grouped, Hopper: the other producer of a cluster does not count as a reader of numbers": (
            "NumberRing::initialize(blocks * (readers + 1) - 1);",
            "NumberRing::initialize(blocks * readers);"),
    },
    ("kernels/cuda/cluster_ring.h", "kernels_grouped_matmul"): {
        "grouped, Hopper: a stage is free when the own consumers have read it": (
            "Ring::initialize(kConsumerThreads + others * kConsumerThreads / 32, kFills);",
            "Ring::initialize(kConsumerThreads + others * 0, kFills);"),
        "grouped, Hopper: the other block of a cluster does not learn that a stage is free": (
            "    if (threadIdx.x % 32 == 0) arrive(this->empty[number % kStages], block_in_cluster() ^ 1);\n",
            ""),
    },
    ("kernels/grouped_matmul/hopper/kernel.h", "kernels_grouped_matmul"): {
        "grouped, Hopper: a block ends while the other one of its cluster may arrive at its barriers": (
            "    gpu::sync_cluster();  // the other block may still arrive at this one's barriers\n",
            ""),
    },
    ("kernels/grouped_matmul/hopper/kernel.h", "kernels_emulated_traffic"): {
        "grouped, Hopper: no thread blocks share b": (
            "return 16 * idle <= tiles ? 2 : 1;",
            "return 16 * idle <= tiles ? 1 : 1;"),
    },
    ("kernels/grouped_matmul/hopper/work.h", "kernels_emulated_grouped_matmul"): {
        "weighed rows of a tile begin at the first column": (
            "p.activated + row * std::int64_t{section} + column,",
            "p.activated + row * std::int64_t{section},"),
        "a band's tiles go down as far as in a full one": (
            "min(most, tiles(p.P, height()) - band * most)",
            "most"),
    },
    ("kernels/grouped_matmul/op.cpp", "kernels_emulated_grouped_matmul"): {
        "gradients of weights in parts are an epilogue, too": (
            "(slots.defined() && dweights.rank() == 2);",
            "slots.defined();"),
        "rows whose slots are unknown are an epilogue's": (
            "(slots.defined() && dweights.rank() == 2);",
            "dweights.rank() == 2;"),
    },
    ("kernels/grouped_matmul/cuda.cu", "kernels_grouped_matmul"): {
        "swiglu's rows are aligned though the result's are not": (
            "      if (y.defined() && !gpu::is_vectorizable(problem.activated, y.size(1))) return;\n",
            ""),
        "no barrier after the tiles have been read": (
            "    __syncthreads();  // all threads have read the tiles\n",
            ""),
    },
    ("kernels/linear_cross_entropy/options.cpp", "kernels_linear_cross_entropy"): {
        "the rank's choice of a chunk does nothing": (
            "if (chunk == kAutomaticChunk) chunk = head_options().chunk;",
            ""),
    },
    ("kernels/linear/cuda.cpp", "kernels_fp8_product"): {
        "a factor of 8 bits has the scale of the other": (
            ".a_scale = scales(a, transposes_a)",
            ".a_scale = scales(b, transposes_b)"),
        "factors of 8 bits are multiplied along their rows": (
            "transposes_b = transpose_b == Transpose::no",
            "transposes_b = transpose_b == Transpose::no && c.numel() == 0"),
    },
    ("kernels/cuda/gemm.cpp", "kernels_fp8_blocks_product"): {
        "both factors have the blocks of one": (
            "CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(g.a_blocks)",
            "CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(g.b_blocks)"),
    },
    ("runtime/emulation/toolkit/cublas_lt.cpp", "kernels_emulated_fp8_blocks"): {
        "cuBLASLt takes squares for both matrices": (
            "         !both_squares && ",
            "         (!both_squares || a == b) && "),
        "cuBLASLt takes scales anywhere": (
            "(scales != nullptr && aligned(scales, 16))",
            "scales != nullptr"),
    },
    ("kernels/linear/cuda.cpp", "kernels_fp8_blocks_product"): {
        "a copy with other blocks is transposed": (
            "there.defined() || factor.blocks != Fp8Blocks::tensor",
            "there.defined()"),
    },
    ("kernels/fp8/cuda.cu", "kernels_fp8_blocks"): {
        "a block of columns has the largest number of one warp": (
            "max(of_column[j], most_of[w][4 * lane + j])",
            "max(of_column[j], 0 * most_of[w][4 * lane + j])"),
        "a block of threads rounds one tile": (
            "at < parts * down * across; at += gridDim.x)",
            "at < parts * down * across; at += parts * down * across)"),
        "all parts have the scales of the first": (
            "yt.inverses[number * scales_of_part",
            "yt.inverses[0 * number * scales_of_part"),
        "the scales of rows are those of the first part": (
            "y.places.at(first + row_of_warp + lane, column)",
            "y.places.at(row_of_warp + lane, column)"),
    },
    ("kernels/fp8/cuda.cu", "kernels_fp8"): {
        "the last row of a square is not transposed": (
            "    if (r >= rows || c >= columns) return 0;",
            "    if (r + 1 >= rows || c >= columns) return 0;"),
        "a second square of a row is not transposed": (
            "column = at % across * kSquare;",
            "column = 0 * across;"),
        "a block transposes one square": (
            "at < squares; at += gridDim.x)",
            "at < squares; at += squares)"),
        "four neighbours are read where rows do not begin aligned": (
            "rows % 4 == 0 && columns % 4 == 0 &&",
            "rows % 4 == 0 &&"),
        "four neighbours are read in memory that is not aligned": (
            "columns % 4 == 0 && is_aligned(x, 4);",
            "columns % 4 == 0;"),
        "rows are not written in the pass that writes columns": (
            "    if (y != nullptr) matrix",
            "    if (y != nullptr && matrix.rows < 0) matrix"),
        "the pass that writes columns finds no largest magnitude": (
            "    return bytes;\n  });\n  gpu::raise(largest, rounding.most);\n",
            "    return bytes;\n  });\n  gpu::raise(largest, 0 * rounding.most);\n"),
        "f32 numbers are rounded to 8 bits at once": (
            "value = gpu::rounded<bfloat16>(given);",
            "value = given;"),
    },
    ("kernels/linear/factor.cpp", "kernels_fp8_product"): {
        "columns are expanded as rows": (
            "  fp8_transpose(rows, factor.columns);\n",
            "  rows.copy_from(factor.columns.reshape(rows.shape()));\n"),
    },
    ("autograd/fp8.cpp", "autograd_fp8"): {
        "an evaluation makes columns": (
            "role == Fp8Role::gradient || gradients_enabled()",
            "role == Fp8Role::gradient || role == Fp8Role::input"),
        "the input of a frozen weight has columns": (
            "!weight.trainable() || ",
            ""),
        "an input has columns though its rows do not suit": (
            "{rows.size(0), extents[0], extents[1]}",
            "{extents[0], extents[1]}"),
        "a weight is rounded to rows where columns are read": (
            "if (transpose == Transpose::no && multiplies",
            "if (transpose == Transpose::no && kFp8Roles == 0 && multiplies"),
    },
    ("autograd/operations/linear.cpp", "autograd_fp8"): {
        "backward keeps the rows of an input next to its columns": (
            "layers.proj_weight.trainable() ? hidden.by_columns()",
            "layers.proj_weight.trainable() ? hidden"),
        "the weight's columns are made forward": (
            "weight_factor(weight, dtype, transpose)",
            "weight_factor(weight, dtype, opposite(transpose))"),
    },
    ("autograd/operations/travelling_rows.cpp", "autograd_fp8"): {
        "a gradient's columns are kept behind their product": (
            "  rows_.columns = {};\n",
            ""),
    },
    ("kernels/linear/cuda.cpp", "kernels_linear"): {
        "a dense gated layer forgets its bias": (
            "bias.defined() || !takes_swiglu_epilogue",
            "(false && bias.defined()) || !takes_swiglu_epilogue"),
        "f32 results take gelu's approximate epilogue": (
            "return size_of(product.out) == 2 && product.N % 8 == 0;",
            "return product.N % 8 == 0;"),
    },
    ("kernels/columns/cuda.cu", "kernels_columns"): {
        "columns are copied in vectors though rows do not begin aligned": (
            "gpu::is_vectorizable(to, columns) && gpu::is_vectorizable(from, stride) &&",
            "gpu::is_vectorizable(to, columns) &&"),
    },
    ("kernels/cuda/gemm.cpp", "kernels_linear"): {
        "a product adds to its old result in place of the residual": (
            "at.addend ? at.addend : at.c",
            "at.c"),
        "products add the bias of the first call": (
            "    plan->problem.point_to(at);\n",
            ""),
    },
    ("kernels/cast/device.h", "kernels_cast"): {
        "bf16 is cut off instead of rounded": (
            "  gpu::store(to, value);\n"
            "  if ((bits & 0x7fffffffu) > 0x7f800000u) to.bits = static_cast<std::uint16_t>(bits >> 16 | 0x40u);",
            "  to.bits = static_cast<std::uint16_t>(bits >> 16);\n"
            "  if ((bits & 0x7fffffffu) > 0x7f800000u) to.bits |= 0x40u;"),
    },
    ("kernels/cast/cuda.cu", "kernels_cast"): {
        "a copy between equal dtypes quiets signalling NaNs": (
            "if constexpr (std::is_same_v<To, From>) {",
            "if constexpr (std::is_same_v<To, From> && sizeof(To) == 4) {"),
    },
    ("kernels/nf4/cuda.cu", "kernels_nf4"): {
        "a group is counted from its row": (
            "(n % rows * row.blocks % kNf4Group + block)",
            "(0 * n * rows + block)"),
    },
    ("kernels/add/cuda.cu", "kernels_add"): {
        "add_all overwrites its sums": (
            "gpu::store(sum, gpu::load(sum) + gpu::load(addend));",
            "gpu::store(sum, gpu::load(addend));"),
    },
    ("kernels/cuda/multi_tensor.h", "kernels_cast", "kernels_adamw"): {
        "the tensors of the last launch are left out": (
            "    list.chunks += chunks;\n"
            "  }\n"
            "  flush();\n",
            "    list.chunks += chunks;\n"
            "  }\n"),
    },
    ("kernels/dropout/cuda.cu", "kernels_dropout"): {
        "a vector's second half repeats the first's dropout mask": (
            "random.block(static_cast<std::uint64_t>(first + i) / kWords);",
            "random.block(static_cast<std::uint64_t>(first) / kWords);"),
    },
    ("kernels/rope/cuda.cu", "kernels_rope"): {
        "positions continue from one sequence to the next": (
            "const unsigned batch = n / of.tokens, token = n % of.tokens;",
            "const unsigned batch = n / of.tokens, token = n;"),
    },
    ("kernels/rope/table.cpp", "kernels_rope"): {
        "YaRN's amplitude is forgotten": (
            "if (!in_f32) return value * frequencies.amplitude;",
            "if (!in_f32) return value;"),
        "YaRN's ramp counts channels, not pairs": (
            "return 2.0 * pairs * logarithm(waves) / (2.0 * logarithm(theta));",
            "return 2.0 * pairs * logarithm(waves) / logarithm(theta);"),
        "angles in f32 are not rounded": (
            "in_f32 ? static_cast<float>(angle) : angle",
            "angle"),
    },
    ("kernels/reduce/cuda.cu", "kernels_reduce"): {
        "no barrier between the warps' results and their reader": (
            "  __syncthreads();\n",
            ""),
    },
    ("kernels/gradient_norm/cuda.cu", "kernels_gradient_norm"): {
        "no barrier between the words of the warps and their sum": (
            "  __syncthreads();\n",
            ""),
        "a shuffle of half a warp": (
            "max(value, __shfl_xor_sync(gpu::kFullWarp, value, distance))",
            "max(value, __shfl_xor_sync(0xffffu, value, distance))"),
        "numbers far below the warp's largest are left out": (
            "    if (!squares.add(words, x)) return;\n",
            "    squares.add(words, x);\n    return;\n"),
        "a total that is not set to zero": (
            "  words.zero();\n",
            ""),
    },
    ("kernels/gradient_norm/f64_squares.h", "kernels_gradient_norm"): {
        "the window of f64 is a bit too wide": (
            "top_ - 18u",
            "top_ - 20u"),
        "the lower parts of squares are lost on a GPU": (
            "rests += fma(value, value, sum - next);",
            "rests += 0.0 * fma(value, value, sum - next);"),
        "elements that wait are added, too": (
            "some_wait && is_too_small(x[k]) ? 0.0f : x[k]",
            "x[k]"),
        "only the first lane's small elements wait": (
            "__any_sync(gpu::kFullWarp, is_too_small(smallest))",
            "__shfl_sync(gpu::kFullWarp, is_too_small(smallest), 0)"),
        "sums of subnormal numbers are counted below the first word": (
            "top_ = max(largest >> 23, kLowest);",
            "top_ = max(largest >> 23, 1);"),
    },
    ("kernels/gradient_norm/integer_squares.h", "kernels_gradient_norm --architecture=89"): {
        "a mixed product is counted once": (
            "shifted(high_low, 23)",
            "shifted(high_low, 22)"),
        "the scale of denormal numbers is infinite": (
            "top_ = max(largest >> 23, kLowest);",
            "top_ = largest >> 23;"),
    },
    ("kernels/tree_reduce/cuda.cu", "kernels_tree_reduce"): {
        "elements before the window are written": (
            "return begin + j >= 0 && begin + j < count;",
            "return begin + j < count;"),
        "the last run of sources, fewer than 128, is left out": (
            "begin < sources.size(); begin += kRun",
            "begin + kRun <= sources.size(); begin += kRun"),
    },
    ("kernels/cross_entropy/row.h", "kernels_cross_entropy"): {
        "the sum of exponentials is not scaled down when the maximum rises": (
            "      sum *= exponential<T>(maximum - largest);\n",
            ""),
    },
    ("kernels/cross_entropy/cuda.cu", "kernels_cross_entropy"): {
        "every row's gradient is scaled by the first row's": (
            "1.0f, dloss[n]",
            "1.0f, dloss[0]"),
        "ignore_index is not ignored": (
            "return row.ignored() || target < 0",
            "return (target < 0 && !row.ignored())"),
    },
    ("kernels/cross_entropy/cuda.cu", "kernels_linear_cross_entropy"): {
        "the target's logit is read after others have written": (
            "  in_share.correct(share, at_targets, gradient);\n",
            "  targets.keep_logits(at_targets, row);\n"
            "  in_share.correct(share, at_targets, gradient);\n"),
        "gradients of ignored rows stay logits": (
            "    return gpu::zero_row(share, parts);\n",
            "    return;\n"),
    },
    ("kernels/cross_entropy/row.h", "kernels_cuda_shared_rows"): {
        "a block writes to shared memory of blocks that may not have begun": (
            "      sync_cluster();  // all blocks have begun\n",
            ""),
        "a block adds sums that others have not written": (
            "      }\n      sync_cluster();\n",
            "      }\n"),
        "every block adds its own sum several times": (
            "in_block(&of_blocks[0], threadIdx.x)",
            "in_block(&of_blocks[0], block_in_cluster())"),
        "each block adds its own sum first": (
            "OnlineSum{of_blocks[i].x, of_blocks[i].y}",
            "OnlineSum{of_blocks[i ^ block_in_cluster()].x, of_blocks[i ^ block_in_cluster()].y}"),
        "sums of blocks are relative to their own maxima": (
            "OnlineSum{of_blocks[i].x, of_blocks[i].y}.relative_to(whole.maximum)",
            "of_blocks[i].y"),
        "targets of all shares are at the first one's columns": (
            "part.first_class += first;",
            "part.first_class += 0 * first;"),
        "gradients of targets are overwritten": (
            "gradient) const {\n    __syncthreads();\n",
            "gradient) const {\n"),
    },
    ("kernels/cross_entropy/cuda.cu", "kernels_cuda_shared_rows"): {
        "losses alone are sums in another order": (
            "  const Shares shares = shares_of<T>(rows.classes);\n  gpu::launch(forward",
            "  const Shares shares{1, rows.classes};\n  gpu::launch(forward"),
        "the last share ends behind the row": (
            "return min(columns, classes - first());",
            "return columns + 0 * classes;"),
        "what a block does not keep is read from the row's first share": (
            "Vector::load_raw(share + parts.first_of(j));",
            "Vector::load_raw(row + parts.first_of(j));"),
        "shares of a row begin anywhere": (
            "round_up(ceil_div(classes, shares.blocks), kColumnsTogether);",
            "classes / shares.blocks;"),
    },
    ("kernels/cross_entropy/cuda.cu", "kernels_emulated_traffic"): {
        "four blocks never share a row": (
            "shares.blocks < gpu::kMostBlocksOfRow",
            "2 * shares.blocks < gpu::kMostBlocksOfRow"),
        "every block writes the gradients of all targets": (
            "in_share.correct(share, at_targets, gradient);",
            "targets.correct(row, at_targets, gradient);"),
    },
    ("kernels/linear_cross_entropy/cuda.cpp", "kernels_linear_cross_entropy"): {
        "the last tokens, fewer than a chunk, are left out": (
            "begin < tokens; begin += chunk",
            "begin + chunk <= tokens; begin += chunk"),
        "every chunk's weight gradient overwrites the last one's": (
            "begin == 0 ? accumulate_dweight : Accumulate::yes",
            "accumulate_dweight"),
        "rows of logits are written without their padding": (
            ",\n"
            "            .c_stride = logits_.size(1)",
            ""),
        "the last classes of a large vocabulary are left out": (
            "{{0, classes - rest}, {classes - rest, rest}}",
            "{{0, classes - rest}}"),
        "the last classes' part of dx overwrites the rest": (
            ".accumulate = part.first > 0,",
            ".accumulate = false,"),
    },
    ("kernels/cuda/radix_sort.cu", "kernels_emulated_traffic"): {
        "a tile's words come behind themselves": (
            "      if (first + i <= tiles) of_digit[std::size_t{first + i} * kDigits] = sum;\n"
            "      sum += words[i];\n",
            "      sum += words[i];\n"
            "      if (first + i <= tiles) of_digit[std::size_t{first + i} * kDigits] = sum;\n"),
        "there is no line of all counts where the tiles fill the loads": (
            "first <= tiles; first += kTogether",
            "first < tiles; first += kTogether"),
    },
    ("kernels/cuda/radix_sort.cu", "kernels_embedding"): {
        "the sort is not stable": (
            "    const unsigned peers = lanes_with(digit);\n"
            "    rank[round] = places[warp][digit] + __popc(peers & ((1u << lane) - 1));\n"
            "    __syncwarp();\n"
            "    if (peers >> lane == 1) places[warp][digit] = rank[round] + 1;  // the last of them\n"
            "    __syncwarp();\n",
            "    rank[round] = atomicAdd(&places[warp][digit], 1u);\n"),
        "no __syncwarp between reading a count and raising it": (
            "    __syncwarp();\n"
            "    if (peers >> lane == 1)",
            "    if (peers >> lane == 1)"),
    },
    ("kernels/embedding/cuda.cu", "kernels_embedding"): {
        "every run of an id adds what the table held": (
            "if (first && accumulate) gpu::load_all",
            "if (accumulate) gpu::load_all"),
        "the table's row of padding gets a gradient on the GPU": (
            "rows.has(id) && id != padding_id;",
            "rows.has(id) && (id >= 0 || id != padding_id);"),
        "rows of a table that others have stay as they were on the GPU": (
            "  y[n * units + item] = rows.has(id)",
            "  if (rows.has(id)) y[n * units + item] = rows.has(id)"),
        "a part of a table has the next one's first row": (
            "id < first + rows; }",
            "id <= first + rows; }"),
    },
    ("kernels/matmul/cuda.cpp", "kernels_matmul_parts"): {
        "all subtrees are the first": (
            "parts.subspan(i * size, size)",
            "parts.subspan(0 * i, size)"),
        "a range of b begins where it would if b were transposed": (
            "first(b_, range.first, product.transpose_b)",
            "first(b_, range.first, !product.transpose_b)"),
    },
    ("kernels/vocabulary_cross_entropy/cuda.cu", "kernels_vocabulary_cross_entropy"): {
        "a part's statistics are those of another row": (
            "(n * parts + part) * classes;",
            "(n * parts + 0 * part) * classes;"),
        "neighbours of pairs are combined": (
            "from[(2 * pair + 1) * rows + n]",
            "from[(pair + 1) * rows + n]"),
        "ignored rows of divided classes have a gradient": (
            "  if (targets.ignored()) return gpu::zero_row(to, gpu::RowParts<G>(to, classes));\n",
            ""),
    },
    ("kernels/matmul/cuda.cpp", "kernels_matmul"): {
        "products never add to what is there": (
            ".accumulate = accumulate == Accumulate::yes,",
            ".accumulate = false,"),
    },
    ("kernels/cuda/gemm.cpp", "kernels_matmul"): {
        "a transposed product finds the plan of one that is not": (
            "g.K, g.transpose_a, g.transpose_b, g.accumulate,",
            "g.K, g.transpose_b, g.accumulate,"),
        "streams share a workspace": (
            "workspaces_[current_stream().id()]",
            "workspaces_[0]"),
    },
    ("kernels/linear/op.cpp", "kernels_linear"): {
        "the exact form of gelu takes tanh's epilogue": (
            "if (form == GeluForm::tanh &&\n          cuda::linear_gelu_forward",
            "if (cuda::linear_gelu_forward"),
        "the exact form of gelu takes the gradient of tanh's epilogue": (
            "if (form == GeluForm::tanh &&\n          cuda::linear_backward_input",
            "if (cuda::linear_backward_input"),
    },
    ("kernels/gelu/cuda.cu", "kernels_gelu"): {
        "the exact form of gelu has no density in its gradient": (
            "x * kDensity * expf(-0.5f * x * x)",
            "0.0f * kDensity * expf(-0.5f * x * x)"),
    },
    ("kernels/cuda/gemm.cpp", "kernels_emulated_algorithms"): {
        "a given choice of an algorithm is measured again": (
            "  choices_ = algorithms.choices;\n",
            ""),
        "plans outlive the choices they were made by": (
            "  choices_ = algorithms.choices;\n  plans_.clear();\n",
            "  choices_ = algorithms.choices;\n"),
        "a plan for the whole GPU is kept when NCCL holds multiprocessors": (
            "g.epilogue,\n                    alignments, held_multiprocessors());",
            "g.epilogue,\n                    alignments);"),
    },
    ("kernels/matmul/fastest_way.cpp", "kernels_fastest_way"): {
        "the slowest algorithm is chosen": (
            "if (time < best_time) best_time",
            "if (way == 0 || time > best_time) best_time"),
        "cold runs choose the algorithm": (
            "    seconds_of(way, count);\n",
            ""),
    },
    ("tools/train/runner.cpp", "tools_emulated_algorithms"): {
        "a run that continues measures its algorithms again": (
            "      restore_algorithms(path);\n",
            ""),
    },
    ("tools/train/algorithms.cpp", "tools_emulated_algorithms"): {
        "every rank takes the first rank's algorithms": (
            "ranks[static_cast<std::size_t>(rank) % ranks.size()]",
            "ranks[static_cast<std::size_t>(rank) % 1]"),
    },
    ("kernels/router/cuda.cu", "kernels_router"): {
        "of equal logits the higher expert is chosen": (
            "if (has(i) || (any && value <= largest)) return;",
            "if (has(i) || (any && value < largest)) return;"),
        "among lanes with equal logits the highest expert is chosen": (
            "const unsigned candidate = any && largest == winner ? best : 0xffffffffu;\n"
            "      const unsigned expert = ~warp_max(~candidate);",
            "const unsigned candidate = any && largest == winner ? best : 0u;\n"
            "      const unsigned expert = warp_max(candidate);"),
        "the bias is part of the softmax's sum only": (
            "(kind == RouterWeights::sigmoid ? sigmoid(l) : softmax(l)) + bias[e];",
            "(kind == RouterWeights::sigmoid ? sigmoid(l) : softmax(l + bias[e]));"),
        "normalized weights sum over all experts": (
            "softmax(token, kind == RouterWeights::softmax) {}",
            "softmax(token, true) {}"),
        "logits that were not chosen have no gradient": (
            "const bool counts = token.has(i) || kind == RouterWeights::softmax;",
            "const bool counts = token.has(i);"),
    },
    ("kernels/dispatch/cuda.cu", "kernels_dispatch"): {
        "the first experts without tokens have no offset": (
            "const std::int64_t first = p == 0 ? 0 : expert_of(sorted[p - 1]) + 1;",
            "const std::int64_t first = p == 0 ? expert_of(sorted[0]) : expert_of(sorted[p - 1]) + 1;"),
        "combine adds the slots backwards": (
            "    gpu::load_all(values, x + slots.place(s) * columns + column);\n"
            "    const float weight = slots.weight(s);",
            "    const std::int64_t t = (2 * n + 1) * slots.per_token - 1 - s;\n"
            "    gpu::load_all(values, x + slots.place(t) * columns + column);\n"
            "    const float weight = slots.weight(t);"),
        "a weight's gradient is that of another slot": (
            "if (threadIdx.x == 0) gpu::store(dweights[slot], dot);",
            "if (threadIdx.x == 0) gpu::store(dweights[slots.place(slot)], dot);"),
        "dispatched rows are weighed by the token's first slot": (
            "    scale(values, slots.weight(s));\n",
            "    scale(values, slots.weight(n * slots.per_token));\n"),
    },
    ("kernels/grouped_matmul/groups.h", "kernels_grouped_matmul"): {
        "tiles of the second 32 experts begin at 0": (
            "    before += __shfl_sync(gpu::kFullWarp, end, 31);\n",
            ""),
        "grouped: tiles of 32 lanes' experts are not added up": (
            "    count += __shfl_xor_sync(gpu::kFullWarp, count, distance);\n",
            ""),
    },
    ("kernels/grouped_matmul/groups.h", "kernels_grouped_matmul --architecture=80"): {
        "the grid has no tile for an expert's last rows": (
            "static_cast<unsigned>(P / side + experts)",
            "static_cast<unsigned>(ceil_div(P, side))"),
        "an expert without tokens keeps its old gradient": (
            "return count > 0 || !accumulate;",
            "return count > 0;"),
        "groups of rows from other ranks take the next matrix in memory": (
            "tile.expert % matrices * K * N",
            "tile.expert * K * N"),
    },
    ("kernels/grouped_matmul/tensor_core_tile.h", "kernels_grouped_matmul --architecture=80"): {
        "a tile reads on into the next expert's rows": (
            "const bool inside = has_column && i < rows;",
            "const bool inside = has_column && i <= rows;"),
        "the tile's operands are copied without a wait": (
            "    gpu::copy_async_wait<0>();\n",
            ""),
    },
    ("runtime/emulation/device/cluster.cpp", "emulation_cluster"): {
        "emulator: a block that has ended can be reached": (
            "  if (block.has_ended(rank)) refuse(\", which has ended\");\n",
            ""),
    },
    ("runtime/emulation/device/shared_barriers.cpp", "emulation_cluster"): {
        "emulator: another block's arrival is forgotten": (
            "  record(EventKind::barrier_arrived, barrier, bytes);\n"
            "  note(barrier);\n",
            "  record(EventKind::barrier_arrived, barrier, bytes);\n"),
    },
    ("runtime/emulation/device/cluster.h", "emulation_cluster"): {
        "emulator: a copy to several blocks is read once for each": (
            "    start_copy(copy, in_block(barrier, rank, site), site);\n",
            "    start_copy(copy, in_block(barrier, rank, site), site);\n"
            "    if (rank > 0) count_bulk_copy(copy);\n"),
    },
    ("runtime/emulation/device/block.cpp", "emulation_cluster"): {
        "emulator: the barrier of a cluster waits for threads that have ended": (
            "  --unfinished_;\n"
            "  end_cluster_barrier_if_complete();\n",
            "  --unfinished_;\n"),
    },
    ("runtime/emulation/device/block.cpp", "emulation_early_launch"): {
        "emulator: a thread of an early launch need not wait": (
            "  if (early_ && !running_->has_waited) {",
            "  if (false) {"),
        "emulator: the launch ahead ends at the first switch of threads": (
            "  if (ready_warps_ == 0 && end_of_launch_ahead_) {",
            "  if (end_of_launch_ahead_) {"),
    },
    ("runtime/emulation/toolkit/device_queue.cpp", "emulation_early_launch"): {
        "emulator: a launch that failed lets the next one be early": (
            "    if (item.early) begin_early(nullptr);",
            "   "),
    },
    ("runtime/emulation/toolkit/capture.cpp", "emulation_early_launch"): {
        "emulator: no launch of a graph is early": (
            ".devices = shared->devices, .early = shared->early}",
            ".devices = shared->devices}"),
    },
    ("kernels/cuda/early_launch.h", "emulation_early_launch"): {
        "launches are early on GPUs that cannot": (
            "kernel_options().early_launch && has_early_launches();",
            "kernel_options().early_launch;"),
    },
    ("kernels/cuda/tile_ring.h", "kernels_grouped_matmul"): {
        "kernels with roles do not wait for the launch ahead": (
            "  __syncthreads();\n  wait_for_launch_ahead();\n",
            "  __syncthreads();\n"),
    },
    ("runtime/emulation/device/shared_memory.cpp", "emulation_hopper"): {
        "rows are cleared under a product in flight": (
            "  if (warpgroups_read(data, bytes)) {",
            "  if (false) {"),
        "a proxy fence shows the writes of all threads": (
            "  block.shared().show_writes_to_engines(block.thread().number);\n",
            "  for (unsigned i = 0; i < 1024; ++i) block.shared().show_writes_to_engines(i);\n"),
    },
    ("runtime/emulation/device/matrix_store.cpp", "emulation_matrix_store"): {
        "stmatrix exchanges rows and columns of lanes": (
            "stores[4 * i + j]->fragment[matrix]",
            "stores[4 * j + i % 4]->fragment[matrix]"),
    },
    ("runtime/emulation/device/warpgroup_tiles.cpp", "emulation_wgmma"): {
        "wgmma: the second number of a pair of a is the first": (
            "value_of[a.bits[m][k] >> 8]",
            "value_of[a.bits[m][k] & 0xff]"),
        "wgmma: sums of 8-bit numbers keep all bits": (
            "(kValuesOf<T> == 1 ? add_truncated : add_narrow)",
            "(kValuesOf<T> >= 1 ? add_truncated : add_narrow)"),
    },
    ("runtime/emulation/device/warpgroup.cpp", "emulation_wgmma"): {
        "the emulator takes columns of a wgmma's left operand for rows": (
            "(first.a_by_columns ? read_left_columns : read_left_rows)(a,",
            "read_left_rows(a,"),
        "the emulator does not watch a left operand of columns": (
            "ranges_.push_back({first.a.start, kDepth * kRowBytes, committed_});",
            ""),
    },
    ("runtime/emulation/device/accesses.cpp", "emulation_counts"): {
        "the emulator counts sectors of 64 bytes": (
            "kSector = 32,",
            "kSector = 64,"),
        "the emulator counts a warp's sector once for each lane": (
            "  sectors_.erase(std::unique(sectors_.begin(), sectors_.end()), sectors_.end());\n",
            ""),
        "the emulator reads what the launch has written from memory": (
            "} else if ((last_page_->written[word] & bit) == 0) {",
            "} else {"),
        "the emulator counts distinct sectors of all launches together": (
            "  pages_.clear();\n",
            ""),
        "a lane's later visit to a place replaces its first": (
            "visits[access.place]++",
            "visits[access.place]"),
        "instructions of lanes that diverge are counted in the order of their addresses": (
            "instruction.turn = std::max(instruction.turn, i);",
            "instruction.turn = std::max<std::size_t>(instruction.turn, 0 * i);"),
        "lanes that end early are not merged with the others": (
            "if (i >= warp.lanes[lane].size()) continue;",
            "if (longest.size() != warp.lanes[lane].size()) continue;"),
        "fields of a structure are accesses of their own": (
            "last.address / 16 == access.address / 16;",
            "last.address / 4 == access.address / 4;"),
        "a bank conflict is two lanes in a bank, even at one word": (
            "std::find(words[bank].begin(), known, word) != known",
            "known == nullptr"),
        "16 bytes a lane conflict with other quarters of the warp": (
            "bytes <= 4 ? 32 : bytes <= 8 ? 16 : 8;",
            "bytes <= 4 ? 32 : 16;"),
    },
    ("runtime/emulation/device/asynchronous_copy.h", "emulation_counts"): {
        "the emulator's own reads for cp.async are counted": (
            "    const Unnoted unnoted;\n    auto* to",
            "    auto* to"),
    },
    ("runtime/emulation/device/launch.cpp", "emulation_counts"): {
        "a launch in the list has the counts of those before it": (
            "counter.of(entry.work) -= counter.of(before);",
            "static_cast<void>(counter), static_cast<void>(before);"),
    },
    ("runtime/emulation/device/threads.cpp", "emulation_counts"): {
        "the emulator does not count atomic operations": (
            "  ++block.statistics.atomics;\n",
            ""),
    },
    ("runtime/emulation/toolkit/graph.cpp", "runtime_emulated_graph"): {
        "a graph begins before the stream's earlier work": (
            "wait_in(*lane, begin);",
            "static_cast<void>(lane);"),
        "a stream's later work overtakes a graph": (
            "    wait_in(stream, executable.ends.back());\n",
            ""),
        "two launches of an executable graph overlap": (
            "(const PointHandle& end : executable.ends) wait_in(stream, end);",
            "(const PointHandle& end : executable.ends) static_cast<void>(end);"),
        "a node does not wait for those of a later lane": (
            "if (earlier->lane != node.lane) wait_in",
            "if (earlier->lane < node.lane) wait_in"),
        "marks of memory count as nodes": (
            "if (!node->mark) found",
            "if (!node->mark || node->lane > 0) found"),
    },
    ("runtime/emulation/toolkit/capture.cpp", "runtime_emulated_graph"): {
        "a captured stream that waits forgets its own work": (
            "== 0) stream.ends.push_back(node);",
            "== 0) stream.ends = {node};"),
        "a graph may use freed device memory": (
            "    if (exists) continue;",
            "    if (exists || use.block != 0) continue;"),
    },
    ("runtime/emulation/toolkit/capture.cpp", "runtime_emulated_capture"): {
        "a refused call leaves the capture valid": (
            "if (capture.broken.empty()) capture.broken = why;",
            "if (capture.ended) capture.broken = why;"),
        "a fork need not be joined": (
            "return node->mark;",
            "return node->mark || node->lane > 0;"),
        "a global capture lets other threads allocate": (
            "if (!own && !global) continue;",
            "if (!own && !(own && global)) continue;"),
    },
    ("runtime/emulation/toolkit/cuda_memory.cpp", "runtime_emulated_capture"): {
        "a capture copies pageable memory": (
            "if (stream->capture != nullptr && pageable) {",
            "if (stream->capture != nullptr && pageable && bytes > 64) {"),
    },
    ("runtime/emulation/toolkit/nccl_exchange.cpp", "runtime_emulated_nccl_graph"): {
        "a captured all-reduce reads buffers that are not ready": (
            "    add_waits(items, halves.sources, runs[i]->ready);\n",
            ""),
        "a captured all-reduce writes buffers that others read": (
            "    add_waits(items, halves.readers, runs[i]->read);\n",
            ""),
    },
    ("runtime/emulation/toolkit/nccl_comm.cpp", "runtime_emulated_nccl_graph"): {
        "one rank captures a call that another queues": (
            " || other->captured != mine.captured ||\n",
            " ||\n"),
    },
    ("kernels/router_loss/cuda.cu", "kernels_router_loss"): {
        "the router's loss sees the factors' mean over experts": (
            "dloss[n] * p(e) * (factors[e] - mean + slope)",
            "dloss[n] * p(e) * (factors[e] - mean / experts + slope)"),
        "the router's loss squares a lane's share of logsumexp": (
            "    sum = gpu::warp_reduce<gpu::Sum>(sum);\n",
            ""),
    },
    ("runtime/emulation/device/events.cpp", "emulation_events"): {
        "every lane of a warp is an event": (
            "if (is_of_lanes(event.kind) &&",
            "if (false && is_of_lanes(event.kind) &&"),
        "a list of events goes on after it was taken": (
            "  is_on_ = false;\n",
            ""),
    },
    ("runtime/emulation/device/block.cpp", "emulation_events"): {
        "an event has its thread's number": (
            "events_.add({kind, index, running_->number / kWarpSize - first_warp(), number",
            "events_.add({kind, index, running_->number, number"),
        "a block leaves out the events that the block before had": (
            "  events_.begin_block();\n",
            ""),
    },
    ("runtime/emulation/device/block.cpp", "emulation_hopper"): {
        "one warp of a warpgroup may change its registers": (
            "warps_[warp].registers != warps_[warp / 4 * 4].registers",
            "warps_[warp].registers == 0"),
        "a thread that lets others go runs on": (
            "if (schedule_.threads != Order::shuffled) return;",
            "return;"),
    },
    ("runtime/emulation/device/shared_barriers.cpp", "emulation_events"): {
        "barriers have one number": (
            "created.number = static_cast<int>(number);",
            "created.number = 0 * static_cast<int>(number);"),
        "a wait is an event of the phase that begins": (
            "barrier.number, barrier.current_phase() - 1);",
            "barrier.number, barrier.current_phase());"),
        "a barrier completes in the phase that begins": (
            "  record(EventKind::barrier_completed, barrier);\n"
            "  ++barrier.phase;\n",
            "  ++barrier.phase;\n"
            "  record(EventKind::barrier_completed, barrier);\n"),
        "a wait at a named barrier is an arrival too": (
            "if (!waits) {",
            "{"),
    },
    ("runtime/emulation/device/warpgroup.cpp", "emulation_events"): {
        "a wait for products names a group that is under way": (
            "static_cast<int>(committed_ - in_flight) - 1, 0,",
            "static_cast<int>(committed_) - 1, 0,"),
    },
    ("kernels/adamw/factors.h", "kernels_adamw"): {
        "the bias correction is a step late": (
            "1.0 - power(s.beta1, s.step)",
            "1.0 - power(s.beta1, s.step + 1)"),
    },
    ("kernels/cpu/random_words.h", "kernels_adamw", "kernels_dropout"): {
        "all rounds of Philox have one key": (
            "    key1 += 0xBB67AE85u;\n",
            ""),
    },
    ("kernels/sgd/cuda.cu", "kernels_sgd"): {
        "the clipping factor is ignored": (
            "    f.gradient_scale = *gradient_scale;\n"
            "    if (!isfinite(f.gradient_scale)) return;",
            "    if (!isfinite(*gradient_scale)) return;"),
    },
    ("kernels/cuda/multi_tensor.h", "kernels_sgd"): {
        "a tail shorter than four is taken as four": (
            "begin + ((end - begin) & ~std::int64_t{3})",
            "begin + ((end - begin + 3) & ~std::int64_t{3})"),
    },
    ("runtime/cuda/stream.cpp", "runtime_cuda_stream"): {
        "a stream does not wait for another's event": (
            "    check_status(cudaStreamWaitEvent(stream_, point->native(), 0), \"cudaStreamWaitEvent\");\n",
            ""),
        "a side stream's tensors are released while it works": (
            "if (for_host || id() != kComputeStream) work_->add",
            "if (for_host) work_->add"),
    },
    ("tools/train/world_options.cpp", "tools_cuda_nccl"): {
        "sharding.deterministic does nothing": (
            ".deterministic = config.sharding.deterministic ||",
            ".deterministic ="),
    },
}

NEON_FAULTS = {
    ("kernels/matmul/cpu/neon.cpp", "kernels_matmul_cpu"): {
        "NEON rounds the product before the sum": (
            "sum = vfmaq_f32(sum, a, b);",
            "sum = vaddq_f32(sum, vmulq_f32(a, b));"),
        "NEON rounds the product of doubles before the sum": (
            "sum = vfmaq_f64(sum, a, b);",
            "sum = vaddq_f64(sum, vmulq_f64(a, b));"),
    },
    ("kernels/matmul/cpu/isa.cpp", "kernels_matmul_cpu"): {
        "an AArch64 CPU has no level of its own": (
            "return Isa::neon;",
            "return Isa::portable;"),
    },
    ("kernels/matmul/cpu/chains.h", "kernels_matmul_cpu"): {
        "NEON's instructions are not found, so std::fma is taken": (
            "requires { &S::multiply_add; }",
            "requires { &S::multiply_add; } && S::kVectors != 6"),
    },
}

SYSROOT = "build-aarch64/sysroot"


# ---- the CPU, as the release is optimized: the sanitizers' build keeps the order of sums
OPTIMIZED_FAULTS = {
    ("kernels/rms_norm/row.h", "kernels_instruction_sets"): {
        "the compiler chooses the order of a sum": (
            "  const Real squares = sum_of<Real>(C, [&](std::int64_t c) { return load(x[c]) * load(x[c]); });\n",
            "  Real squares = 0;\n"
            "#pragma omp simd reduction(+ : squares)\n"
            "  for (std::int64_t c = 0; c < C; ++c) squares += load(x[c]) * load(x[c]);\n"),
    },
}

BATCHES = [
    planting.Batch(planting.faults_of(OPTIMIZED_FAULTS), folder="build/planted_faults", preset="release"),
    planting.Batch(planting.faults_of(CPU_FAULTS), folder="build-asan/planted_faults", preset="asan",
                   options=("-D", "TESSERA_WERROR=ON")),
    planting.Batch(planting.faults_of(FAULTS), folder="build-emulated/planted_faults", preset="emulated",
                   options=("-D", "TESSERA_WERROR=ON"), selection=("~[cpu]",)),
    planting.Batch(planting.faults_of(NEON_FAULTS), folder="build-aarch64/planted_faults", preset="aarch64",
                   options=("-D", "TESSERA_WERROR=ON", "-D",
                            f"CMAKE_SYSROOT={planting.ROOT / SYSROOT}"),
                   emulator=("qemu-aarch64", "-L", planting.ROOT / SYSROOT), needs=SYSROOT)]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
