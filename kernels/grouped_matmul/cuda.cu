// Grouped products: a block computes a square tile of one expert's result.
//
// Three kernels. The tensor cores take 16-bit operands with rows aligned to 16 bytes: by Hopper's
// instructions where the GPU has them (hopper/kernel.h), otherwise by mma.sync. Hopper's take 8-bit
// operands, too. The general kernel takes the others, f32 among them, in f32 without tensor cores. None
// splits a sum, and each runs over the depth in order, so the bits are the same in every run.
//
// The gradients of rows' weights are sums over the columns of several tiles. Each tile stores its part, 4
// bytes for a row, and one more kernel adds them.
#include "kernels/cuda/device_attributes.h"
#include "kernels/grouped_matmul/gathered.h"
#include "kernels/grouped_matmul/groups.h"
#include "kernels/grouped_matmul/hopper/launch.h"
#include "kernels/grouped_matmul/tensor_core_tile.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

using groups::ExpertProduct;
using groups::Gathered;
using groups::Operand;
using groups::Problem;

// ---- The general kernel: 256 threads, 4 x 4 elements each

constexpr int kSide = 64;
constexpr int kDepth = 16;
constexpr int kPitch = kSide + 4;

/// Copies depths [depth, depth + kDepth) of kSide kept indices; 0 outside the operand. Neighbouring
/// threads read neighbouring elements.
template <typename T>
__device__ void load_tile(float (&tile)[kDepth][kPitch], const Operand<T>& from, std::int64_t kept,
                          std::int64_t kept_end, std::int64_t depth, std::int64_t depth_end) {
  for (int i = static_cast<int>(threadIdx.x); i < kSide * kDepth; i += gpu::kThreads) {
    const int x = from.depth_contiguous ? i / kDepth : i % kSide;
    const int k = from.depth_contiguous ? i % kDepth : i / kSide;
    const bool inside = kept + x < kept_end && depth + k < depth_end;
    tile[k][x] = inside ? gpu::load(*from.at(kept + x, depth + k)) : 0.0f;
  }
}

template <typename T, typename U>
__global__ void __launch_bounds__(gpu::kThreads) general_kernel(Problem<T, U> problem) {
  TESSERA_SHARED(float, left, [kDepth][kPitch]);
  TESSERA_SHARED(float, right, [kDepth][kPitch]);
  ExpertProduct<T, U> p;
  if (!problem.find(p, kSide)) return;
  const int row = static_cast<int>(threadIdx.x) / 16 * 4;
  const int column = static_cast<int>(threadIdx.x) % 16 * 4;
  float sum[4][4] = {};
  for (std::int64_t depth = 0; depth < p.depth; depth += kDepth) {
    load_tile(left, p.a, p.row, p.rows, depth, p.depth);
    load_tile(right, p.b, p.column, p.columns, depth, p.depth);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += left[k][row + i] * right[k][column + j];
      }
    }
    __syncthreads();  // all threads have read the tiles
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const std::int64_t m = p.row + row + i, n = p.column + column + j;
      if (m >= p.rows || n >= p.columns) continue;
      U& to = p.c[m * p.columns + n];
      gpu::store(to, (problem.accumulate ? gpu::load(to) : 0.0f) + sum[i][j]);
    }
  }
}

// ---- The weights' gradients

/// dweights [rows] = the sum of the tiles' parts [tiles, rows], in the order of the tiles.
template <typename T>
__global__ void __launch_bounds__(gpu::kThreads)
    sum_tiles_kernel(T* dweights, const float* parts, std::int64_t rows, std::int64_t tiles) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = parts[row];
  for (std::int64_t tile = 1; tile < tiles; ++tile) sum += parts[tile * rows + row];
  gpu::store(dweights[row], sum);
}

// ---- The choice of the kernel

/// Are the rows of 16-bit operands and of c aligned to 16 bytes?
template <typename T, typename U>
bool suits_tensor_cores(const Problem<T, U>& problem) {
  const std::int64_t rows = problem.of_weights ? problem.M : problem.K;
  constexpr std::int64_t kWidth = gpu::Vector<T>::kSize;
  if (!problem.of_weights && (problem.first_depth % kWidth != 0 || problem.depths % kWidth != 0)) {
    return false;
  }
  return gpu::is_vectorizable(problem.a, rows) && gpu::is_vectorizable(problem.b, problem.N) &&
         gpu::is_vectorizable(problem.c, problem.N);
}

template <typename T, typename U>
void multiply(const Problem<T, U>& problem) {
  if constexpr (sizeof(T) == 2) {
    if (suits_tensor_cores(problem)) {
      if (groups::suits_hopper(problem)) return groups::multiply_on_hopper(problem);
      return groups::multiply_on_tensor_cores(problem);
    }
  }
  gpu::launch(general_kernel<T, U>, problem.grid(kSide), dim3(gpu::kThreads), 0, gpu::stream(),
              problem);
}

template <typename T, typename U>
Problem<T, U> problem_of_weights(const Tensor& c, const Tensor& a, const Tensor& b,
                                 const Tensor& offsets, Accumulate accumulate) {
  return {.a = a.data<T>(),
          .b = b.data<T>(),
          .c = c.data<U>(),
          .offsets = offsets.data<std::int32_t>(),
          .experts = static_cast<int>(c.size(0)),
          .matrices = static_cast<int>(c.size(0)),
          .P = a.size(0),
          .M = c.size(1),
          .N = c.size(2),
          .K = 0,
          .first_depth = 0,
          .depths = 0,
          .of_weights = true,
          .transpose_b = false,
          .accumulate = accumulate == Accumulate::yes};
}

/// The operand has the rows of tokens.
template <typename T, typename U>
void gather(Problem<T, U>& problem, Gathered operand, const RoutedRows& rows) {
  problem.gathered = operand;
  problem.slots = rows.slots.data<std::int32_t>();
  problem.per_token = static_cast<int>(rows.places.size(1));
  problem.P = rows.size(0);
}

/// False, and nothing is done, if the operands do not suit Hopper's kernel.
template <typename T, typename U>
bool multiplies_on_hopper(const Problem<T, U>& problem) {
  if (!suits_tensor_cores(problem) || !groups::suits_hopper(problem)) return false;
  groups::multiply_on_hopper(problem);
  return true;
}

/// The products of rows. Without offsets one expert has all of them.
template <typename T, typename U = T>
Problem<T, U> problem_of_rows(const Tensor& c, const Tensor& a, const Tensor& b,
                              const Tensor& offsets, Transpose transpose_b) {
  const bool grouped = offsets.defined();
  return {.a = a.data<T>(),
          .b = b.data<T>(),
          .c = c.data<U>(),
          .offsets = grouped ? offsets.data<std::int32_t>() : nullptr,
          .experts = grouped ? static_cast<int>(offsets.numel() - 1) : 1,
          .matrices = static_cast<int>(b.size(0)),
          .P = a.size(0),
          .M = 0,
          .N = c.size(1),
          .K = a.size(1),
          .first_depth = 0,
          .depths = a.size(1),
          .of_weights = false,
          .transpose_b = transpose_b == Transpose::yes,
          .accumulate = false};
}

template <typename T>
void point(T*& to, const Tensor& tensor) {
  to = tensor.data<std::remove_const_t<T>>();
}

/// Multiplies on Hopper with all rows in one group. complete(problem) sets the operands of the epilogue, and tells
/// whether they suit. False, and nothing is done, if something does not.
template <typename F>
bool launch_dense(Out c, const Tensor& a, const Tensor& b, Transpose transpose_b, F complete) {
  if (c.numel() == 0) return false;
  bool launched = false;
  gpu::visit(c.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      const Tensor matrix = b.reshape({1, b.size(0), b.size(1)});
      Problem<T, T> problem = problem_of_rows<T>(c, a, matrix, /*offsets=*/{}, transpose_b);
      launched = complete(problem) && multiplies_on_hopper(problem);
    }
  });
  return launched;
}

/// Fewer are for the library: there are kernels for wide tiles only.
constexpr std::int64_t kFewestGeluColumns = 256;

}  // namespace

void grouped_matmul(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                    Transpose transpose_b) {
  if (c.numel() == 0 || b.size(0) == 0) return;
  gpu::visit(c.dtype(), [&](auto type) {
    multiply(problem_of_rows<decltype(type)>(c, a, b, offsets, transpose_b));
  });
}

void grouped_matmul_part(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                         Transpose transpose_b, const DepthPart& depths) {
  if (c.numel() == 0 || b.size(0) == 0) return;
  gpu::visit(a.dtype(), [&](auto type) {
    auto problem = problem_of_rows<decltype(type), float>(c, a, b, offsets, transpose_b);
    for (const DepthRange& range : depths) {
      problem.first_depth = range.first;
      problem.depths = range.count;
      multiply(problem);
      problem.accumulate = true;
    }
  });
}

bool grouped_matmul_swiglu(Out y, Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Transpose transpose_b) {
  return gathered_grouped_matmul(y, c, Factor(a), b, offsets, transpose_b);
}

bool gathers_rows(const Tensor& tokens) {
  bool gathers = false;
  gpu::visit(tokens.dtype(), [&](auto type) {
    using T = decltype(type);
    gathers = sizeof(T) == 2 && gpu::has_hopper() &&
              gpu::is_vectorizable(tokens.data<T>(), tokens.size(1));
  });
  return gathers;
}

bool gathered_grouped_matmul(Out y, Out c, const RoutedRows& a, const Tensor& b,
                             const Tensor& offsets, Transpose transpose_b) {
  if (c.numel() == 0 || b.size(0) == 0) return false;
  bool launched = false;
  gpu::visit(c.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      Problem<T, T> problem = problem_of_rows<T>(c, a.values.values, b, offsets, transpose_b);
      if (a.of_tokens()) gather(problem, Gathered::a, a);
      if (y.defined()) problem.activated = y.data<T>();
      if (y.defined() && !gpu::is_vectorizable(problem.activated, y.size(1))) return;
      launched = multiplies_on_hopper(problem);
    }
  });
  return launched;
}

bool fp8_grouped_matmul(Out y, Out c, const Factor& a, const Factor& b, const Tensor& offsets,
                        Transpose transpose_b) {
  const std::int64_t E = b.values.size(0), P = a.values.size(0), K = a.values.size(1);
  const std::int64_t groups = offsets.numel() - 1, N = c.size(1);
  const bool fits = b.values.shape() == Shape{E, N, K} && c.shape() == Shape{P, N} && E > 0 &&
                    groups % E == 0 && (!y.defined() || y.shape() == Shape{P, N / 2});
  const bool along_depth = transpose_b == Transpose::yes && K % 2 == 0 &&
                           a.values.dtype() == DType::e4m3 && b.values.dtype() == DType::e4m3;
  if (!fits || !along_depth || c.dtype() != DType::bf16 || c.numel() == 0) return false;
  const auto pairs = [](const Factor& x) {
    return reinterpret_cast<const E4m3Pair*>(x.values.raw());
  };
  const Problem<E4m3Pair, bfloat16> problem{.a = pairs(a),
                                            .b = pairs(b),
                                            .c = c.data<bfloat16>(),
                                            .activated = y.defined() ? y.data<bfloat16>() : nullptr,
                                            .inverse_a = a.inverse_scale.data<float>(),
                                            .inverse_b = b.inverse_scale.data<float>(),
                                            .offsets = offsets.data<std::int32_t>(),
                                            .experts = static_cast<int>(groups),
                                            .matrices = static_cast<int>(E),
                                            .P = P,
                                            .M = 0,
                                            .N = N,
                                            .K = K / 2,
                                            .first_depth = 0,
                                            .depths = K / 2,
                                            .of_weights = false,
                                            .transpose_b = true,
                                            .accumulate = false};
  if (y.defined() && !gpu::is_vectorizable(problem.activated, y.size(1))) return false;
  return multiplies_on_hopper(problem);
}

bool grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const Tensor& a,
                                    const Tensor& b, const Tensor& gate_up, const Tensor& offsets,
                                    const Tensor& slots, const Tensor& weights,
                                    Transpose transpose_b) {
  return gathered_grouped_matmul_swiglu_backward(y, dweights, dgate_up, Factor(a), b, gate_up,
                                                 offsets, slots, weights, transpose_b);
}

bool gathered_grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const RoutedRows& a,
                                             const Tensor& b, const Tensor& gate_up,
                                             const Tensor& offsets, const Tensor& slots,
                                             const Tensor& weights, Transpose transpose_b) {
  if (dgate_up.numel() == 0 || b.size(0) == 0) return false;
  bool launched = false;
  gpu::visit(dgate_up.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      Problem<T, T> problem =
          problem_of_rows<T>(dgate_up, a.values.values, b, offsets, transpose_b);
      problem.N = dgate_up.size(1) / 2;
      problem.gate_up = gate_up.data<T>();
      problem.activated = gpu::pointer<T>(y);
      if (a.of_tokens()) gather(problem, Gathered::a, a);
      if (!gpu::is_vectorizable(problem.gate_up, problem.N) ||
          !gpu::is_vectorizable(problem.activated, problem.N)) {
        return;
      }
      const std::int64_t tiles = ceil_div(problem.N, groups::columns_of_tile(problem.N));
      const CategoryScope scope(Category::workspace);
      Tensor parts;
      if (weights.defined()) {
        parts = Tensor::empty(Shape{tiles, problem.P}, DType::f32);
        problem.slots = slots.data<std::int32_t>();
        problem.weights = weights.data<T>();
        problem.sums = parts.data<float>();
      }
      launched = multiplies_on_hopper(problem);
      if (!launched || !weights.defined()) return;
      gpu::launch(sum_tiles_kernel<T>, dim3(gpu::blocks_for(problem.P, gpu::kThreads, INT32_MAX)),
                  dim3(gpu::kThreads), 0, gpu::stream(), dweights.data<T>(), problem.sums,
                  problem.P, tiles);
    }
  });
  return launched;
}

bool matmul_gelu(Out y, Out pre, const Tensor& x, const Tensor& b, const Tensor& bias,
                 Transpose transpose_b) {
  return launch_dense(pre, x, b, transpose_b, [&](auto& problem) {
    point(problem.activated, y);
    point(problem.bias, bias);
    return gpu::is_vectorizable(problem.activated, problem.N) &&
           gpu::is_vectorizable(problem.bias, problem.N) && problem.N >= kFewestGeluColumns;
  });
}

bool matmul_gelu_backward(Out dpre, Tensor* row_sums, const Tensor& dy, const Tensor& b,
                          const Tensor& pre, Transpose transpose_b) {
  Tensor lines;
  const bool launched = launch_dense(dpre, dy, b, transpose_b, [&](auto& problem) {
    point(problem.pre, pre);
    if (row_sums != nullptr) {
      const std::int64_t count = ceil_div(problem.P, std::int64_t{groups::kRowsOfLine});
      lines = Tensor::empty(Shape{count, problem.N}, DType::f32);
      problem.lines = lines.data<float>();
    }
    return gpu::is_vectorizable(problem.pre, problem.N) && problem.N >= kFewestGeluColumns;
  });
  if (launched && row_sums != nullptr) *row_sums = lines;
  return launched;
}

void grouped_matmul_weight(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Accumulate accumulate) {
  if (c.numel() == 0) return;
  gpu::visit(a.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto to = [&](auto result) {
      using U = decltype(result);
      multiply(problem_of_weights<T, U>(c, a, b, offsets, accumulate));
    };
    if (c.dtype() == a.dtype()) return to(type);
    to(float{});
  });
}

bool gathered_grouped_matmul_weight(Out c, const RoutedRows& a, const RoutedRows& b,
                                    const Tensor& offsets, Accumulate accumulate) {
  if (c.numel() == 0 || a.of_tokens() == b.of_tokens()) return false;
  const Tensor &left = a.values.values, &right = b.values.values;
  bool launched = false;
  gpu::visit(left.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      const auto to = [&](auto result) {
        using U = decltype(result);
        auto problem = problem_of_weights<T, U>(c, left, right, offsets, accumulate);
        gather(problem, a.of_tokens() ? Gathered::a : Gathered::b, a.of_tokens() ? a : b);
        launched = multiplies_on_hopper(problem);
      };
      c.dtype() == left.dtype() ? to(type) : to(float{});
    }
  });
  return launched;
}

}  // namespace tessera::cuda
