// Chooses the GPU kernel for each call of attention.
#include <algorithm>
#include <initializer_list>

#include "kernels/attention/backend.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/attention/tensor_core_heads.h"
#include "kernels/cuda/device_attributes.h"
#include "kernels/rope/op.h"
#include "runtime/backends.h"
#include "runtime/check.h"
#include "runtime/integer.h"

namespace tessera::cuda {
namespace attention {

bool has_aligned_rows(const Heads& x) {
  const auto aligned = [&](std::int64_t elements) {
    return elements * static_cast<std::int64_t>(size_of(x.tensor.dtype())) % 16 == 0;
  };
  return reinterpret_cast<std::uintptr_t>(x.tensor.raw()) % 16 == 0 && aligned(x.offset) &&
         aligned(x.batch_stride) && aligned(x.token_stride) && aligned(x.head_size);
}

void check_shared_memory(const char* op, std::int64_t head_size, std::size_t bytes) {
  tessera::check(bytes <= gpu::shared_memory_limit(),
                 "{}: heads of {} channels take {} bytes of shared memory per block, and this GPU "
                 "has {}; use smaller heads, or another GPU",
                 op, head_size, bytes, gpu::shared_memory_limit());
}

namespace {

bool are_aligned(std::initializer_list<const Heads*> heads) {
  return std::ranges::all_of(heads, [](const Heads* x) { return has_aligned_rows(*x); });
}

/// The models' heads have aligned rows and a scale above 0: there the size alone decides, and a note at the
/// start of a run names one that does not suit.
bool suit_tensor_cores(std::initializer_list<const Heads*> heads, float scale) {
  const Heads& q = **heads.begin();
  return q.tensor.dtype() != DType::f32 && suits_tensor_cores(q.head_size) && scale > 0.0f &&
         are_aligned(heads);
}

/// For calls that suit tensor cores.
bool suits_hopper(const Heads& q) {
  return gpu::has_hopper() && std::ranges::find(kHopperHeads, q.head_size) != kHopperHeads.end();
}

/// A batch element's single query over a cache: too few rows for the other kernels.
bool suits_decoding(std::initializer_list<const Heads*> heads, const Heads& k) {
  const Heads& q = **heads.begin();
  return q.tokens == 1 && k.tokens > kKeysOfSplit && are_aligned(heads);
}

/// cuDNN's backward pass refuses a single query. Its kernels know no first_key.
[[maybe_unused]] bool suits_cudnn(std::initializer_list<const Heads*> heads,
                                  const Tensor& first_key) {
  if (first_key.defined()) return false;
  const Heads& q = **heads.begin();
  return attention_backend() == AttentionBackend::cudnn && q.tensor.dtype() != DType::f32 &&
         q.head_size <= 128 && q.tokens > 1 && are_aligned(heads);
}

/// As many lines of sums as the kernels write.
Tensor memory_for_lines(const Heads& q, const Heads& k) {
  return Tensor::empty({q.batch * ceil_div(q.tokens, std::int64_t{kTokensOfLine}),
                        (q.heads + 2 * k.heads) * q.head_size},
                       DType::f32);
}

void check_head_size(std::string_view op, std::int64_t head_size) {
  check(head_size <= kMostChannels, "{}: heads of {} channels; on a GPU they have at most {}", op,
        head_size, kMostChannels);
}

}  // namespace
}  // namespace attention

void attention_forward(const Heads& o, Out logsumexp, const Heads& q, const Heads& k,
                       const Heads& v, float scale, const Tensor& first_key) {
  using namespace attention;
  check_head_size("attention_forward", q.head_size);
  if (q.batch == 0 || q.tokens == 0) return;
  const RunTensors runs = find_runs(Pass::forward, first_key, q, k);
  const ForwardCall call{o, logsumexp, q, k, v, scale, runs};
  if constexpr (kHasCudnn) {
    if (suits_cudnn({&q, &k, &v, &o}, first_key)) return forward_cudnn(call);
  }
  if (suits_decoding({&q, &k, &v, &o}, k)) return forward_decoding(call);
  if (!suit_tensor_cores({&q, &k, &v, &o}, scale)) return forward_general(call);
  suits_hopper(q) ? forward_hopper(call) : forward_mma(call);
}

void attention_backward(const Heads& dq, const Heads& dk, const Heads& dv, const Heads& d_o,
                        const Heads& q, const Heads& k, const Heads& v, const Heads& o,
                        const Tensor& logsumexp, float scale, const Tensor& first_key,
                        const Rotary* rotary, Tensor* row_sums) {
  using namespace attention;
  Tensor none;
  Tensor& lines = row_sums != nullptr ? *row_sums : none;
  lines = {};
  check_head_size("attention_backward", q.head_size);
  if (k.batch == 0 || k.tokens == 0) return;
  // The rotation of a head that is padded would cross the lanes' registers.
  const Rotary* const in_tiles = fills_a_tile(q.head_size) ? rotary : nullptr;
  const RunTensors runs = find_runs(Pass::backward, first_key, q, k);
  const BackwardCall call{dq, dk, dv, d_o, q, k, v, o, logsumexp, scale, runs, in_tiles, lines};
  const auto rotate_back = [&] {
    if (rotary != nullptr) rope_backward(dq, dk, *rotary);
  };
  if constexpr (kHasCudnn) {
    if (suits_cudnn({&q, &k, &v, &o, &d_o, &dq, &dk, &dv}, first_key)) {
      backward_cudnn(call);
      return rotate_back();
    }
  }
  const Tensor statistics = memory_for_statistics(q);
  if (!suit_tensor_cores({&q, &k, &v, &o, &d_o, &dq, &dk, &dv}, scale)) {
    backward_general(call, statistics);
    return rotate_back();
  }
  const bool rotates_later = rotary != nullptr && in_tiles == nullptr;
  if (row_sums != nullptr && !first_key.defined() && !rotates_later &&
      q.head_size <= kMostSummedChannels) {
    lines = memory_for_lines(q, k);
  }
  if (suits_hopper(q) && q.tokens > 0) {
    compute_statistics(call, statistics);
    return backward_hopper(call, statistics);
  }
  if (q.tokens > 0) query_gradient_mma(call, statistics);
  key_value_gradient_mma(call, statistics);
  if (rotates_later) rotate_back();
}

}  // namespace tessera::cuda
