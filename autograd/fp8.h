// FP8: the factors of linear layers' products, rounded to 8 bits with scales (docs/fp8.md).
//
//   Fp8State fp8(weights, options);
//   { Fp8Scope scope(fp8); the passes of a step }
//   ... the ranks take the maximum of fp8.largest() ...
//   fp8.end_step();
//
// In the scope a linear layer multiplies 8-bit factors in each of its products:
//
//   y = [x] [W]^T      dx = [dy] [W]      dW = [dy]^T [x]      dbias = the sum of [dy]'s rows
//
// Fp8Scales::tensor is delayed scaling. x, W and dy have a scale each, by their largest magnitudes in earlier steps, of
// all ranks and micro-batches. A maximum is exact in any order. So a step has the same bits for every number of ranks
// and every strategy. A tensor without earlier steps, or with zeros alone in them, has the scale of a guess.
// Fp8Scales::blocks takes scales from the numbers of now: x and dy have one for 128 numbers along the depth of the sum,
// and W one for 128 x 128. So dW has other numbers of x and dy than y and dx have. Blocks of tokens end with a leaf
// (context_axis.h). There is no history, and nothing passes between ranks.
// Experts' weights are a tensor for a layer, and so are the rows that its experts multiply. Everything else stays in
// bf16: embeddings, the head, routers, norms, attention and adapters.
//
// A weight is rounded by Parameter::round: where it is used, or, part by part, where a strategy gathers it. Both give
// the same numbers, and either records the largest magnitude. So the state is made before the strategy, and scales
// change only when the strategy is about to write the masters, after which nothing gathered before is used. With blocks
// a strategy gathers bf16.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autograd/fp8_scales.h"
#include "autograd/joined_parameters.h"
#include "kernels/fp8/op.h"
#include "kernels/linear/factor.h"
#include "runtime/tensor.h"

namespace tessera {

/// The factors of a layer's products.
enum class Fp8Role : std::uint8_t { input, weight, gradient };
inline constexpr std::int64_t kFp8Roles = 3;

struct Fp8Options {
  /// The format of dy. x and W are e4m3.
  DType gradients = DType::e5m2;
  Fp8Scales scales = Fp8Scales::tensor;
  /// The steps that a scale depends on.
  std::int64_t history = 16;
};

/// The tensor of a step that was cut most.
struct Fp8Cut {
  /// Tensors with numbers beyond the format's largest.
  std::int64_t tensors = 0;
  /// "transformer.h.0.mlp.c_fc.weight, gradient".
  std::string name = {};
  /// Its largest magnitude over the largest that its scale allows.
  float ratio = 0.0f;
};

class Fp8State {
 public:
  /// For products with these weights, and sets their rounding. Those that are joined have the scales of the first.
  Fp8State(const std::vector<Parameter>& weights, const Fp8Options& options);

  /// The format and the places of a factor's numbers, each [1]. With blocks the format alone.
  struct Place {
    DType format;
    Tensor scale = {}, inverse = {}, largest = {};
    bool has_blocks() const { return !scale.defined(); }
  };
  /// None if products with this weight are not in 8 bits.
  std::optional<Place> place(const Parameter& weight, Fp8Role role) const;

  /// With blocks it does not, and the tensors below have no numbers.
  bool has_history() const { return history_.numel() > 0; }
  /// f32 [weights * kFp8Roles]: the largest magnitudes of the step so far.
  const Tensor& largest() const { return largest_; }
  /// Forgets them, in every write of the masters: a strategy rounds weights again after it.
  void forget_largest() { largest_.zero(); }
  /// `largest`, of all ranks now, enters the history, and scales are those of the next step.
  void end_step();
  /// f32 [weights * kFp8Roles]: largest() over the limit, of the step that has ended.
  const Tensor& excess() const { return excess_; }
  /// `excess`: values of excess().
  Fp8Cut cut_of(const std::vector<float>& excess) const;

  /// f32 [steps, weights * kFp8Roles]: with it a run continues.
  const Tensor& history() const { return history_; }
  /// A tensor with zeros alone keeps its guess. Raises Error unless there are as many numbers.
  void set_history(std::vector<float> values);

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::int64_t> number_;
  Fp8Options options_;
  Tensor scales_, inverses_, largest_, excess_, limits_, history_;
};

/// Linear layers that run in the current context during the scope have 8-bit factors.
class Fp8Scope {
 public:
  /// Whether the step's largest inputs and gradients are kept; not in an evaluation.
  enum class Keeps : bool { nothing, largest };
  explicit Fp8Scope(Fp8State& state, Keeps keeps = Keeps::largest);
  ~Fp8Scope();
  Fp8Scope(const Fp8Scope&) = delete;
  Fp8Scope& operator=(const Fp8Scope&) = delete;

 private:
  Fp8State* previous_;
  Tensor previous_unread_;
};

/// Whether products with `weight` are in 8 bits.
bool multiplies_in_fp8(const JoinedParameters& weight);
/// `values` [bf16], an input or a gradient, in 8 bits for products with `weight`, or `values` itself where these are
/// not in 8 bits. The same pass writes the columns for a weight's gradient that reads them. With blocks rows that
/// tensor ranks gather stay as they are, too: blocks of columns have rows of other ranks.
Factor fp8_factor(const JoinedParameters& weight, Fp8Role role, const Tensor& values);
/// The rows, or the columns, of such rows that have been gathered; `values` itself with other scales.
Factor gathered_fp8_factor(const JoinedParameters& weight, Fp8Role role, const Tensor& values,
                           Transpose columns);
/// The weight for products with op(weight) and rows of this dtype, in workspace memory if it is a copy. A product that
/// reads columns gets them alone, if they take one pass.
Factor weight_factor(const JoinedParameters& weight, DType dtype,
                     Transpose transpose = Transpose::yes);

}  // namespace tessera
