// Rung 1 for the model of rungs 10 and 11 (dense.h): one rank has all slices of the channels and all pieces
// of the tokens.
//
// It computes all rows of the batch in one pass. Rungs 10 and 11 have its losses, bit for bit.
#include "examples/ladder/dense.h"

using namespace tessera;

namespace {

class Training final : public ladder::Rung {
 public:
  Training(Communicator& world, int parts, ladder::Losses& losses)
      : Rung(world, parts, losses, /*model=*/nullptr) {}

 private:
  void prepare() override {
    model_.emplace(0, ladder::kSlices);
    optimizer_.emplace(model_->shards(), ladder::kAdamW);
  }

  void step(int step) override {
    const ladder::PieceTokens tokens = ladder::tokens_of(step, parts_, 0, ladder::kPieces);
    Variable x = ladder::embed(tokens.inputs, model_->embedding);
    for (const ladder::DenseBlock& block : model_->blocks) x = forward(block, x);
    const Variable logits = ladder::by_columns(ladder::norm(x, model_->norm), model_->head);
    const Tensor losses = Tensor::empty({parts_}, DType::f32);
    backward(ladder::loss(logits, tokens.targets, losses));
    write_losses(step, losses);
    optimizer_->step(ladder::kLearningRate);
  }

  static Variable forward(const ladder::DenseBlock& block, Variable x) {
    const Variable qkv = ladder::by_columns(ladder::norm(x, block.norm), block.qkv);
    const Variable q = ladder::third(qkv, 0), k = ladder::third(qkv, 1), v = ladder::third(qkv, 2);
    x = add(x, ladder::by_rows(ladder::attend(q, k, v, 0), block.out));
    const Variable gate_up = ladder::by_columns(ladder::norm(x, block.mlp_norm), block.gate_up);
    return add(x, ladder::by_rows(ladder::gated(gate_up), block.down));
  }

  std::optional<ladder::DenseModel> model_;
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments, ladder::Ranks::one);
}
