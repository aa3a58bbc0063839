// Parameter: a named, trainable leaf that owns no memory.
//
// Its data and its gradient are windows onto memory that a sharding strategy owns. The strategy
// opens a window before the parameter is used and may close it after. An operation that saves a
// weight for backward saves the Parameter (a handle), never its tensor, so the strategy can release
// weights after forward and gather them again for backward.
//
// Gradients are added straight into the gradient window by the operations (a matrix product with
// beta = 1). The first contribution of a step overwrites instead, so gradients are never cleared.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/cut.h"
#include "autograd/expert_exchange.h"
#include "autograd/tensor_axis.h"
#include "kernels/fp8/op.h"
#include "kernels/op.h"
#include "runtime/elements.h"
#include "runtime/tensor.h"

namespace tessera {

struct Adapter;

/// How a linear layer's weight is stored: [out, in] as in torch.nn.Linear, or [in, out] as in
/// GPT-2's Conv1D.
enum class WeightLayout { out_in, in_out };

/// How a parameter is initialized. Values are addressed by (seed, name, flat index), so any rank can
/// make any part of them.
struct Initializer {
  enum class Kind { constant, normal, uniform } kind = Kind::constant;
  /// The constant, the normal distribution's standard deviation (its mean is 0), or the bound b of the
  /// uniform distribution on [-b, b).
  double value = 0.0;
  /// A row, counted along the first dimension, that starts with zeros instead.
  std::optional<std::int64_t> zero_row = std::nullopt;

  static Initializer constant(double value) { return {Kind::constant, value}; }
  static Initializer zeros() { return constant(0.0); }
  static Initializer ones() { return constant(1.0); }
  static Initializer normal(double standard_deviation) {
    return {Kind::normal, standard_deviation};
  }
  static Initializer uniform(double bound) { return {Kind::uniform, bound}; }
};

class Parameter {
 public:
  Parameter() = default;
  /// `name` is the parameter's name in a Hugging Face checkpoint.
  Parameter(std::string name, const Shape& shape, Initializer initializer);

  bool defined() const { return state_ != nullptr; }
  const std::string& name() const;
  const Shape& shape() const;
  std::int64_t numel() const { return shape().numel(); }
  bool trainable() const;
  /// A frozen parameter gets no gradient.
  void set_trainable(bool trainable) const;

  /// The matrices of a layer's experts, stacked: ranks may share them out (autograd/experts.h).
  void set_stacked() const;
  bool stacked() const;
  /// Ranks share out the experts by `exchange`: this one holds its part of the first dimension.
  /// Null: it holds all. Only for a stacked parameter.
  void share_out(std::shared_ptr<ExpertExchange> exchange) const;
  const std::shared_ptr<ExpertExchange>& exchange() const;
  /// How tensor-parallel ranks may share out its elements.
  void set_cut(const Cut& cut) const;
  const Cut& cut() const;
  /// The tensor-parallel ranks: they share this parameter out as its cut says, and hold it whole if the
  /// cut divides nothing. `held` is the shape of this rank's part. Null, with stored_shape(): there are none.
  void share_out(std::shared_ptr<TensorAxis> axis, const Shape& held) const;
  const std::shared_ptr<TensorAxis>& tensor_axis() const;
  /// shape(), or that of this rank's part: the shape of data(), unless it is packed.
  Shape held_shape() const;

  /// It is held as packed rows (kernels/nf4/op.h), which the operations of linear layers unpack. For a frozen
  /// weight, before a strategy takes it over.
  void set_packed() const;
  bool packed() const;
  /// The shape of its memory: shape(), or u8 [..., bytes of a row] if it is packed.
  Shape stored_shape() const;

  /// Linear layers multiply it in 8 bits, e4m3 (autograd/fp8.h). A strategy that gathers it may gather these.
  void set_rounded() const;
  bool rounded() const;
  void set_rounding(const Fp8Rounding& rounding) const;
  const Fp8Rounding& rounding() const;
  /// Writes some of the parameter's values, f32 or bf16, to as many numbers of 8 bits. Raises Error if there is no
  /// rounding.
  void round(Out numbers, const Tensor& values) const;

  /// The name of the first of the parameters that operations use as one with this (joined_parameters.h): its own
  /// if there are no others.
  const std::string& first_of_join() const;
  void set_first_of_join(const std::string& name) const;

  /// The low-rank addition to this weight of a linear layer (autograd/adapter.h); null if it has none.
  void set_adapter(std::shared_ptr<const Adapter> adapter) const;
  const std::shared_ptr<const Adapter>& adapter() const;
  /// Whether it is a factor of an adapter.
  bool in_adapter() const;

  /// All elements of the parameter that this rank holds, or their packed rows. Raises Error while the window is
  /// closed.
  const Tensor& data() const;
  bool is_open() const;
  /// Raises Error if the shape differs.
  void open(const Tensor& data) const;
  void close() const;

  /// The window that gradients are written to, of the shape of data(). Raises Error while closed.
  const Tensor& gradient() const;
  /// With an exchange there may be a window for each rank that rows come from (ExpertSums).
  const std::vector<Tensor>& gradients() const;
  void open_gradient(const Tensor& gradient) const { open_gradients({gradient}); }
  void open_gradients(std::vector<Tensor> gradients) const;
  void close_gradient() const;
  /// Has anything been written since reset_gradient()?
  bool has_gradient() const;
  /// Marks the gradient as not written: the next contribution overwrites.
  void reset_gradient() const;
  /// For operations: `no` for the first contribution since reset_gradient(), `yes` after.
  Accumulate next_contribution() const;

  /// The gradients of the first of two uses for each leaf of a rank's tokens (leaf_sum.h), which the second
  /// use takes and adds to. They have the window's dtype.
  void leave_leaf_gradients(std::vector<Tensor> gradients) const;
  /// None if no use has left any.
  std::vector<Tensor> take_leaf_gradients() const;

  /// Writes initial values of `elements` of the parameter into `part`. They are made on the host, so that
  /// they have the same bits on every device. The `elements` of a packed parameter are bytes of its rows.
  void initialize(const Tensor& part, const Elements& elements, std::uint64_t seed) const;
  void initialize(const Tensor& part, std::int64_t first, std::uint64_t seed) const {
    initialize(part, Elements{.first = first}, seed);
  }

  /// Two handles on one parameter, as tied weights are.
  bool operator==(const Parameter& other) const { return state_ == other.state_; }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera
