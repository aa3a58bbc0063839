// Rung 11, context parallelism: each rank has 1/N of the tokens of every row, and all weights.
//
// Only attention needs other ranks' tokens. Their keys and values are gathered before it; backward
// reduce-scatters their gradients. A row is cut into 2 N pieces, and rank r has the pieces r and 2 N - 1 - r: a
// late token has many keys to see, an early one few, so the pairs are equally much work. The queries of a
// piece see the keys up to its end.
//
// These sums are divided among ranks: the gradients of all weights, which are sums over tokens, and those of
// keys and values, which are sums over queries. Each is added in the tree of rung 1 (1_dense.cpp).
#include "examples/ladder/dense.h"

using namespace tessera;

namespace {

class Training final : public ladder::Rung {
 public:
  Training(Communicator& world, int parts, ladder::Losses& losses)
      : Rung(world, parts, losses, /*model=*/nullptr) {}

 private:
  void prepare() override {
    // In the order of the tree the pieces of a rank are neighbours.
    pieces_ = ladder::kPieces / ranks_;
    first_ = rank_ * pieces_;
    model_.emplace(0, ladder::kSlices);
    optimizer_.emplace(model_->shards(), ladder::kAdamW);
  }

  void step(int step) override {
    const ladder::PieceTokens tokens = ladder::tokens_of(step, parts_, first_, first_ + pieces_);
    Variable x = ladder::embed(tokens.inputs, model_->embedding);
    for (const ladder::DenseBlock& block : model_->blocks) x = forward(block, x);
    const Variable logits = ladder::by_columns(ladder::norm(x, model_->norm), model_->head);
    const Tensor losses = Tensor::empty({parts_}, DType::f32);
    backward(ladder::loss(logits, tokens.targets, losses));
    std::vector<Tensor> sums = model_->sliced_gradients();
    for (const Tensor& gradient : model_->whole_gradients()) sums.push_back(gradient);
    sums.push_back(losses);
    world_.all_reduce(sums, context().compute_stream());
    write_losses(step, losses);
    optimizer_->step(ladder::kLearningRate);
  }

  Variable forward(const ladder::DenseBlock& block, Variable x) {
    const Variable qkv = ladder::by_columns(ladder::norm(x, block.norm), block.qkv);
    const Variable q = ladder::third(qkv, 0);
    const Variable k = gather(ladder::third(qkv, 1)), v = gather(ladder::third(qkv, 2));
    x = add(x, ladder::by_rows(ladder::attend(q, k, v, first_), block.out));
    const Variable gate_up = ladder::by_columns(ladder::norm(x, block.mlp_norm), block.gate_up);
    return add(x, ladder::by_rows(ladder::gated(gate_up), block.down));
  }

  /// The keys or values of all pieces. Backward adds the gradients that the ranks' queries give them.
  Variable gather(const Variable& x) {
    const Tensor all = activation({ladder::kPieces, x.shape()[1], x.shape()[2]}, DType::f32);
    all.slice(first_, first_ + pieces_).copy_from(x.data());
    world_.all_gather({all}, context().compute_stream());
    return differentiable(all, {x}, /*uses_parameters=*/false,
                          [this, shape = x.shape()](const Tensor& dy) -> Gradients {
                            const Tensor own = activation(shape, DType::f32);
                            world_.reduce_scatter({own}, {dy}, context().compute_stream());
                            return {own};
                          });
  }

  int pieces_ = 0, first_ = 0;
  std::optional<ladder::DenseModel> model_;
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
