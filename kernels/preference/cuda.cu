// A block has a row, and goes from pair to pair. Traffic: 20 R T bytes, very little next to the head's products.
//
// A document's end is found by adding: thread t takes tokens t, t + blockDim, ... from its beginning and stops at
// the first that belongs to another document.
#include "kernels/cross_entropy/op.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/preference/op.h"
#include "kernels/preference/pair.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSums = kPreferenceSums;

struct Math {
  __device__ static float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
  __device__ static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
};

/// Tokens of one row. Undefined outputs are null.
struct Row {
  float *factors, *sequences;
  const float *losses, *reference;
  const std::int32_t *targets, *starts;
  int length;
};

/// Tokens [first, last) of a row.
struct Document {
  int first, last;
  AnswerSums<float> sums;
};

template <typename F>
__device__ void for_each_token(int first, int last, F f) {
  for (int t = first + static_cast<int>(threadIdx.x); t < last; t += blockDim.x) f(t);
}

/// The document that begins at `first`, in every thread.
__device__ Document document_at(const Row& row, int first) {
  float sum = 0.0f, targets = 0.0f, tokens = 0.0f;
  const std::int32_t start = row.starts[first];
  for (int t = first + static_cast<int>(threadIdx.x); t < row.length && row.starts[t] == start;
       t += blockDim.x) {
    sum -= row.losses[t];
    targets += row.targets[t] == kIgnoreIndex ? 0.0f : 1.0f;
    tokens += 1.0f;
  }
  Document document{first, 0, {}};
  document.sums.sum = gpu::block_reduce<gpu::Sum>(sum);
  document.sums.targets = gpu::block_reduce<gpu::Sum>(targets);
  document.last = first + static_cast<int>(gpu::block_reduce<gpu::Sum>(tokens));
  document.sums.reference = row.reference[first];
  if (row.sequences == nullptr) return document;
  for_each_token(first, document.last,
                 [&](int t) { row.sequences[t] = t == first ? document.sums.sum : 0.0f; });
  return document;
}

/// of_rows [R, 4]: the sums of each row.
__global__ void __launch_bounds__(kThreads)
    rows_kernel(float* of_rows, Row all, PreferenceLoss options, float scale) {
  const std::int64_t offset = static_cast<std::int64_t>(blockIdx.x) * all.length;
  const Row row = {all.factors == nullptr ? nullptr : all.factors + offset,
                   all.sequences == nullptr ? nullptr : all.sequences + offset,
                   all.losses + offset,
                   all.reference + offset,
                   all.targets + offset,
                   all.starts + offset,
                   all.length};
  float sums[kSums] = {};
  for (int first = 0; first < row.length;) {
    const Document chosen = document_at(row, first);
    first = chosen.last;
    if (first == row.length) {
      if (row.factors == nullptr) break;
      for_each_token(chosen.first, first, [&](int t) { row.factors[t] = 0.0f; });
      break;
    }
    const Document rejected = document_at(row, first);
    first = rejected.last;
    const PairTerms<float> terms = terms_of<Math>(chosen.sums, rejected.sums, options);
    sums[kPairLoss] += terms.loss;
    sums[kPairAccuracy] += terms.chosen_reward > terms.rejected_reward ? 1.0f : 0.0f;
    sums[kChosenReward] += terms.chosen_reward;
    sums[kRejectedReward] += terms.rejected_reward;
    if (row.factors == nullptr) continue;
    for_each_token(chosen.first, rejected.last, [&](int t) {
      row.factors[t] = scale * (t < chosen.last ? terms.chosen_factor : terms.rejected_factor);
    });
  }
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kSums; ++i) of_rows[blockIdx.x * kSums + i] = sums[i];
}

/// Thread i adds number i of all rows.
__global__ void __launch_bounds__(kSums)
    add_rows_kernel(float* sums, const float* of_rows, std::int64_t rows, float scale) {
  float sum = 0.0f;
  for (std::int64_t row = 0; row < rows; ++row) sum += of_rows[row * kSums + threadIdx.x];
  sums[threadIdx.x] = scale * sum;
}

float* data_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<float>() : nullptr;
}

}  // namespace

void preference_loss(Out sums, Out factors, Out sequences, const Tensor& losses,
                     const Tensor& targets, const Tensor& starts, const Tensor& reference,
                     const PreferenceLoss& options, double scale) {
  const CategoryScope scope(Category::workspace);
  const std::int64_t rows = losses.size(0);
  const Tensor of_rows = Tensor::empty({rows, kPreferenceSums}, DType::f32);
  const Row all = {data_of(factors),
                   data_of(sequences),
                   losses.data<float>(),
                   reference.data<float>(),
                   targets.data<std::int32_t>(),
                   starts.data<std::int32_t>(),
                   static_cast<int>(losses.size(1))};
  const auto factor = static_cast<float>(scale);
  if (rows > 0) {
    gpu::launch(rows_kernel, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, gpu::stream(),
                of_rows.data<float>(), all, options, factor);
  }
  gpu::launch(add_rows_kernel, dim3(1), dim3(kSums), 0, gpu::stream(), sums.data<float>(),
              of_rows.data<float>(), rows, factor);
}

}  // namespace tessera::cuda
