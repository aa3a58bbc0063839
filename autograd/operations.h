// The differentiable operations: kernels that record their backward pass.
//
// Each takes Variables (and Parameters, which stay handles in the graph) and returns a Variable.
// The formulas are in kernels/<operation>/op.h. Results and gradients are charged to
// `activations`, except weight gradients, which go straight into the Parameters' windows.
#pragma once

#include <optional>
#include <string>

#include "autograd/joined_parameters.h"
#include "autograd/parameter.h"
#include "autograd/row_objective.h"
#include "autograd/variable.h"
// These five operations have the names of their kernels. Each op.h takes the type of the kernel's
// name, so it comes before the operation that overloads the name.
#include "kernels/add/op.h"
#include "kernels/cast/op.h"
#include "kernels/cross_entropy/op.h"
#include "kernels/dropout/op.h"
#include "kernels/gelu/op.h"
#include "kernels/linear_cross_entropy/op.h"
#include "kernels/matmul/op.h"
#include "kernels/op.h"
#include "kernels/rope/op.h"
#include "kernels/scale/op.h"
#include "kernels/swiglu/op.h"
#include "runtime/random.h"

namespace tessera {

/// x [..., in] -> [..., out], plus `residual` [..., out] if it is defined. `bias` [out] may be an
/// undefined Parameter. With joined weights [out, in] the results lie side by side, as q, k and v do
/// in packed heads. A weight with an adapter (autograd/adapter.h) adds to its results, here and below.
Variable linear(const Variable& x, const JoinedParameters& weight, const JoinedParameters& bias,
                WeightLayout layout = WeightLayout::out_in, const Variable& residual = {});

/// gelu(x fc + fc_bias) proj + proj_bias, the transformer's two linear layers in one node; plus
/// `residual`, of the result's shape, if it is defined. Where the device can fuse them, gelu and its
/// derivative are part of the products (kernels/linear/op.h). Biases may be undefined.
Variable gelu_mlp(const Variable& x, const Parameter& fc_weight, const Parameter& fc_bias,
                  const Parameter& proj_weight, const Parameter& proj_bias,
                  WeightLayout layout = WeightLayout::out_in, const Variable& residual = {},
                  GeluForm form = GeluForm::tanh);

/// swiglu(x gate_up + gate_up_bias) down + down_bias, in the same way, with weights stored as
/// [out, in]. `gate` is the activation.
Variable swiglu_mlp(const Variable& x, const JoinedParameters& gate_up_weight,
                    const JoinedParameters& gate_up_bias, const Parameter& down_weight,
                    const Parameter& down_bias, const Variable& residual = {},
                    Gate gate = Gate::silu);

/// op(a) op(b) for 2-D or batched 3-D variables.
Variable matmul(const Variable& a, const Variable& b, Transpose transpose_a = Transpose::no,
                Transpose transpose_b = Transpose::no);

/// Rows of `table` [V, C] at `ids` (i32, any shape S): S + [C]. The row `padding_id` gets no gradient.
Variable embedding(const Tensor& ids, const Parameter& table,
                   std::optional<std::int64_t> padding_id = std::nullopt);

Variable layer_norm(const Variable& x, const Parameter& weight, const Parameter& bias,
                    float epsilon);
/// `offset` is added to the weight (kernels/rms_norm/op.h).
Variable rms_norm(const Variable& x, const Parameter& weight, float epsilon, float offset = 0.0f);
/// Without a weight, as Llama 4 normalizes queries and keys.
Variable rms_norm(const Variable& x, float epsilon);

/// A residual stream with a branch added to it, and the sum normalized for the next branch.
struct SumAndNorm {
  Variable sum;
  Variable norm;
};
/// sum = x + branch and its norm, in one pass over memory. The sum is written over `branch` if that
/// is a temporary, as in add_rms_norm(x, linear(...), ...).
SumAndNorm add_layer_norm(const Variable& x, Variable branch, const Parameter& weight,
                          const Parameter& bias, float epsilon);
SumAndNorm add_rms_norm(const Variable& x, Variable branch, const Parameter& weight, float epsilon,
                        float offset = 0.0f);

Variable gelu(const Variable& x, GeluForm form = GeluForm::tanh);
/// silu(gate) * up for two variables [..., F], or for one [..., 2F] that holds gate, then up.
Variable swiglu(const Variable& gate, const Variable& up);
Variable swiglu(const Variable& gate_up, Gate gate = Gate::silu);
Variable add(const Variable& a, const Variable& b);
Variable scale(const Variable& x, double factor);
Variable cast(const Variable& x, DType dtype);
Variable reshape(const Variable& x, const Shape& shape);

/// The mask is addressed by `random`; x begins at element `first` of the tensor that it is for. Identity if
/// probability is 0. Where ranks share out tokens (context_axis.h), an element of these pieces has the mask
/// of its place in the whole rows [B, T, C].
Variable dropout(Variable x, float probability, const RandomStream& random, std::int64_t first = 0);
/// The same with the mask of a place in the model, which `site` names: it is addressed by the context's random
/// position too, so a recomputed forward pass drops the same elements.
Variable dropout_at(Variable x, float probability, const std::string& site, std::int64_t first = 0);

/// The norms of the heads of queries and of keys.
struct QkNorm {
  /// The weight of queries' heads and that of keys', [head_size] each; undefined without norms.
  JoinedParameters weights = Parameter();
  float epsilon = 0.0f;
  /// Is added to the weights (kernels/qk_norm/op.h).
  float offset = 0.0f;

  bool defined() const { return weights.defined(); }
};

/// Causal self-attention over packed heads: x [B, T, (heads + 2 kv_heads) * head_size] holds the
/// queries' heads, then the keys', then the values'. Result [B, T, heads * head_size]. The scale is
/// 1 / sqrt(head_size) unless it is given. `first_key` (i32 [B, T]) is the first key that each query sees
/// (kernels/attention/first_key.h); undefined for the first of all.
///
/// With `rotary`, queries and keys are rotated first, in place if `qkv` is a temporary. The result is
/// that of attention(rope(qkv, ...), ...). The backward pass rotates them back in the kernels that
/// sum them (kernels/attention/op.h). With `norm` too, every head of queries and keys is normalized
/// before it is rotated, in the same pass (kernels/qk_norm/op.h); `norm` needs `rotary`.
Variable attention(Variable qkv, std::int64_t heads, std::int64_t kv_heads,
                   const Tensor& first_key = Tensor(), const Rotary& rotary = {},
                   const QkNorm& norm = {}, std::optional<double> scale = {});
/// Causal self-attention of separate queries [B, T, heads * head_size] and keys and values
/// [B, T, kv_heads * head_size].
Variable attention(const Variable& q, const Variable& k, const Variable& v, std::int64_t heads,
                   std::int64_t kv_heads, const Tensor& first_key = Tensor());

/// Rotates the first `heads` heads of `head_size` of x [B, T, C] by their positions' angles; the
/// other channels are copied. With packed heads, one call rotates queries and keys and leaves the
/// values. In place if x is a temporary, as in attention(rope(linear(...), ...), ...).
Variable rope(Variable x, std::int64_t heads, std::int64_t head_size, const RopeTable& table,
              const RopePositions& positions = {});

/// Mean cross-entropy of logits [N, V] over the targets [N] that are not `ignore_index`; a scalar
/// [1]. Zero if no target counts.
Variable cross_entropy(const Variable& logits, const Targets& targets,
                       int ignore_index = kIgnoreIndex);

/// loss_scale * (sum of the cross-entropies of x weight^T against targets): the end of a graph. x
/// [..., C] seen as [N, C], weight [V, C], targets [N] of any shape; a scalar [1]. Targets equal to
/// `ignore_index` add nothing; for the mean, pass loss_scale = 1 / (number of the others).
///
/// The gradients are computed here, in the forward pass, so backward must start from this variable
/// with seed 1; another seed raises Error.
///
/// FurtherUse::yes: `embedding` of the weight gets its gradient later in the same pass, as where both ends
/// of a model are tied. With leaves of tokens (context_axis.h) it then adds to each of them.
enum class FurtherUse { no, yes };

/// With an `objective` its loss takes the place of the scaled sum, and loss_scale is up to it. The logits are
/// then computed twice, because its factors need the cross-entropies of all rows. Raises Error then if
/// there are leaves of tokens.
Variable linear_cross_entropy(const Variable& x, const Parameter& weight, const Targets& targets,
                              double loss_scale, int ignore_index = kIgnoreIndex,
                              std::int64_t chunk = kAutomaticChunk,
                              FurtherUse further_use = FurtherUse::no,
                              const RowObjective& objective = {});

}  // namespace tessera
