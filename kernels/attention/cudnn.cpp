// Attention by cuDNN's fused kernels, selected by `kernels.attention: cudnn`.
//
// A plan is an operation graph compiled for one set of shapes, strides and scale. Compiling takes
// long, so a rank keeps its plans. A plan's workspace comes from our allocator. The backward one is
// large: the deterministic algorithm writes dS to memory (B heads Tq Tkv elements). Benchmarks may
// choose the other one.
#include <cudnn.h>

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

// The one file that sees the frontend: it takes half a minute to compile.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "kernels/attention/backend.h"
#include "kernels/attention/cuda/launchers.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/stream.h"
#include "runtime/describe.h"

namespace tessera::cuda::attention {
namespace {

namespace frontend = cudnn_frontend;
using frontend::graph::Tensor_attributes;
using Tensors = std::unordered_map<std::int64_t, void*>;

/// Names of a graph's tensors.
enum Name : std::int64_t { kQ = 1, kK, kV, kO, kStatistics, kDO, kDQ, kDK, kDV };

void check_cudnn(cudnnStatus_t status, const char* call) {
  check(status == CUDNN_STATUS_SUCCESS, "{}: {}", call, cudnnGetErrorString(status));
}

void check_frontend(frontend::error_t status, const char* step) {
  check(status.is_good(), "attention by cuDNN: {}: {}; use kernels.attention: tessera", step,
        status.get_message());
}

/// Calls that differ in addresses alone share a plan.
using Key = std::vector<std::int64_t>;

Key key_of(std::initializer_list<const Heads*> all, float scale) {
  Key key{static_cast<std::int64_t>((*all.begin())->tensor.dtype()),
          static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(scale))};
  for (const Heads* x : all) {
    key.insert(key.end(),
               {x->batch, x->tokens, x->heads, x->head_size, x->batch_stride, x->token_stride});
  }
  return key;
}

struct Plan {
  frontend::graph::Graph graph;
  std::int64_t workspace_bytes = 0;
};

/// A rank's handle and its plans.
class Library {
 public:
  Library() { check_cudnn(cudnnCreate(&handle_), "cudnnCreate"); }
  ~Library() {
    plans_.clear();  // they were made with the handle
    cudnnDestroy(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// The plan of this key. If it is new, `describe(graph)` builds its operation graph.
  template <typename F>
  Plan& plan(const Key& key, F describe) {
    std::unique_ptr<Plan>& plan = plans_[key];
    if (plan) return *plan;
    auto made = std::make_unique<Plan>();
    const bool is_bf16 = key.front() == static_cast<std::int64_t>(DType::bf16);
    made->graph
        .set_io_data_type(is_bf16 ? frontend::DataType_t::BFLOAT16 : frontend::DataType_t::HALF)
        .set_intermediate_data_type(frontend::DataType_t::FLOAT)
        .set_compute_data_type(frontend::DataType_t::FLOAT);
    describe(made->graph);
    check_frontend(made->graph.build(handle_, {frontend::HeurMode_t::A}), "no plan");
    check_frontend(made->graph.get_workspace_size(made->workspace_bytes), "workspace");
    plan = std::move(made);
    return *plan;
  }

  void run(const Plan& plan, Tensors tensors) {
    check_cudnn(cudnnSetStream(handle_, native(current_stream())), "cudnnSetStream");
    const CategoryScope scope(Category::workspace);
    const Tensor workspace = Tensor::empty({plan.workspace_bytes}, DType::u8);
    if (context().is_dry()) return;
    check_frontend(plan.graph.execute(handle_, tensors, workspace.raw()), "execution");
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

Tensor_attributes heads_attributes(const Heads& x, Name name) {
  return Tensor_attributes()
      .set_uid(name)
      .set_dim({x.batch, x.heads, x.tokens, x.head_size})
      .set_stride({x.batch_stride, x.head_size, x.token_stride, 1});
}

/// logsumexp [B, heads, Tq], as cuDNN calls it.
Tensor_attributes statistics_attributes(const Heads& q) {
  return Tensor_attributes()
      .set_uid(kStatistics)
      .set_dim({q.batch, q.heads, q.tokens, 1})
      .set_stride({q.heads * q.tokens, q.tokens, 1, 1})
      .set_data_type(frontend::DataType_t::FLOAT);
}

/// Marks a result as an output with the layout of `like`.
void set_output(const std::shared_ptr<Tensor_attributes>& result, const Tensor_attributes& like) {
  result->set_output(true)
      .set_uid(like.get_uid())
      .set_dim(like.get_dim())
      .set_stride(like.get_stride())
      .set_data_type(like.get_data_type());
}

/// The queries are the last positions of the keys.
template <typename Attributes>
void set_causal(Attributes& attributes, const Heads& q, const Heads& k) {
  using frontend::DiagonalAlignment_t;
  attributes.set_diagonal_alignment(q.tokens == k.tokens ? DiagonalAlignment_t::TOP_LEFT
                                                         : DiagonalAlignment_t::BOTTOM_RIGHT);
  attributes.set_diagonal_band_right_bound(0);
}

void* address(const Heads& x) {
  return x.tensor.raw() + x.offset * static_cast<std::int64_t>(size_of(x.tensor.dtype()));
}

void describe_forward(frontend::graph::Graph& graph, const ForwardCall& x) {
  const auto q = graph.tensor(heads_attributes(x.q, kQ));
  const auto k = graph.tensor(heads_attributes(x.k, kK));
  const auto v = graph.tensor(heads_attributes(x.v, kV));
  auto attributes =
      frontend::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(x.scale);
  set_causal(attributes, x.q, x.k);
  const auto [o, statistics] = graph.sdpa(q, k, v, attributes);
  set_output(o, heads_attributes(x.o, kO));
  set_output(statistics, statistics_attributes(x.q));
}

void describe_backward(frontend::graph::Graph& graph, const BackwardCall& x) {
  const auto q = graph.tensor(heads_attributes(x.q, kQ));
  const auto k = graph.tensor(heads_attributes(x.k, kK));
  const auto v = graph.tensor(heads_attributes(x.v, kV));
  const auto o = graph.tensor(heads_attributes(x.o, kO));
  const auto d_o = graph.tensor(heads_attributes(x.d_o, kDO));
  const auto statistics = graph.tensor(statistics_attributes(x.q));
  auto attributes = frontend::graph::SDPA_backward_attributes()
                        .set_deterministic_algorithm(cudnn_order() == CudnnOrder::same)
                        .set_attn_scale(x.scale);
  set_causal(attributes, x.q, x.k);
  const auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, d_o, statistics, attributes);
  set_output(dq, heads_attributes(x.dq, kDQ));
  set_output(dk, heads_attributes(x.dk, kDK));
  set_output(dv, heads_attributes(x.dv, kDV));
}

}  // namespace

void forward_cudnn(const ForwardCall& x) {
  Library& library = context().state<Library>();
  const Plan& plan =
      library.plan(key_of({&x.q, &x.k, &x.v, &x.o}, x.scale),
                   [&](frontend::graph::Graph& graph) { describe_forward(graph, x); });
  library.run(plan, {{kQ, address(x.q)},
                     {kK, address(x.k)},
                     {kV, address(x.v)},
                     {kO, address(x.o)},
                     {kStatistics, x.logsumexp.raw()}});
}

void backward_cudnn(const BackwardCall& x) {
  Library& library = context().state<Library>();
  Key key = key_of({&x.q, &x.k, &x.v, &x.o, &x.d_o, &x.dq, &x.dk, &x.dv}, x.scale);
  key.push_back(static_cast<std::int64_t>(cudnn_order()));
  const Plan& plan =
      library.plan(key, [&](frontend::graph::Graph& graph) { describe_backward(graph, x); });
  library.run(plan, {{kQ, address(x.q)},
                     {kK, address(x.k)},
                     {kV, address(x.v)},
                     {kO, address(x.o)},
                     {kDO, address(x.d_o)},
                     {kStatistics, x.logsumexp.raw()},
                     {kDQ, address(x.dq)},
                     {kDK, address(x.dk)},
                     {kDV, address(x.dv)}});
}

}  // namespace tessera::cuda::attention
