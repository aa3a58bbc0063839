// Rung 10, tensor and sequence parallelism: each rank has 1/N of the channels inside a layer, and between
// layers 1/N of the tokens (Shoeybi et al. 2019; Korthikanti et al. 2023).
//
// The first matrix of a layer is cut by its results, the second by its inputs. So a rank computes its heads,
// or its inner channels, for all tokens, from beginning to end. An all-gather brings the tokens to a layer. A
// reduce-scatter adds the ranks' summands of its result and leaves each rank its tokens. Backward does the
// opposite. Norms, residual stream, embedding and head are whole, and work on the rank's tokens.
//
// These sums are divided among ranks: the results of out and down, the gradients of the inputs of qkv and
// gate_up, and the gradients of the whole weights. Each is added in the tree of rung 1 (1_dense.cpp).
#include "examples/ladder/dense.h"

using namespace tessera;

namespace {

class Training final : public ladder::Rung {
 public:
  Training(Communicator& world, int parts, ladder::Losses& losses)
      : Rung(world, parts, losses, /*model=*/nullptr) {}

 private:
  void prepare() override {
    const int slices = ladder::kSlices / ranks_;
    model_.emplace(rank_ * slices, (rank_ + 1) * slices);
    optimizer_.emplace(model_->shards(), ladder::kAdamW);
  }

  void step(int step) override {
    const int pieces = ladder::kPieces / ranks_;
    const ladder::PieceTokens tokens =
        ladder::tokens_of(step, parts_, rank_ * pieces, (rank_ + 1) * pieces);
    Variable x = ladder::embed(tokens.inputs, model_->embedding);
    for (const ladder::DenseBlock& block : model_->blocks) x = forward(block, x);
    const Variable logits = ladder::by_columns(ladder::norm(x, model_->norm), model_->head);
    const Tensor losses = Tensor::empty({parts_}, DType::f32);
    backward(ladder::loss(logits, tokens.targets, losses));
    std::vector<Tensor> sums = model_->whole_gradients();
    sums.push_back(losses);
    world_.all_reduce(sums, context().compute_stream());
    write_losses(step, losses);
    optimizer_->step(ladder::kLearningRate);
  }

  Variable forward(const ladder::DenseBlock& block, Variable x) {
    const Variable qkv = ladder::by_columns(gather(ladder::norm(x, block.norm)), block.qkv);
    const Variable q = ladder::third(qkv, 0), k = ladder::third(qkv, 1), v = ladder::third(qkv, 2);
    x = add(x, scatter(ladder::by_rows(ladder::attend(q, k, v, 0), block.out)));
    const Variable h = gather(ladder::norm(x, block.mlp_norm));
    const Variable inner = ladder::gated(ladder::by_columns(h, block.gate_up));
    return add(x, scatter(ladder::by_rows(inner, block.down)));
  }

  /// From this rank's tokens to all tokens, before a layer.
  Variable gather(const Variable& x) {
    return differentiable(gathered(x.data()), {x}, /*uses_parameters=*/false,
                          [this](const Tensor& dy) -> Gradients { return {scattered(dy)}; });
  }
  /// From a summand for all tokens to the sum for this rank's, behind a layer.
  Variable scatter(const Variable& x) {
    return differentiable(scattered(x.data()), {x}, /*uses_parameters=*/false,
                          [this](const Tensor& dy) -> Gradients { return {gathered(dy)}; });
  }

  Tensor gathered(const Tensor& x) {
    const std::int64_t pieces = x.size(0);
    const Tensor all = activation({pieces * ranks_, x.size(1), x.size(2)}, DType::f32);
    all.slice(rank_ * pieces, (rank_ + 1) * pieces).copy_from(x);
    world_.all_gather({all}, context().compute_stream());
    return all;
  }
  Tensor scattered(const Tensor& x) {
    const Tensor own = activation({x.size(0) / ranks_, x.size(1), x.size(2)}, DType::f32);
    world_.reduce_scatter({own}, {x}, context().compute_stream());
    return own;
  }

  std::optional<ladder::DenseModel> model_;
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
