// Muon: momentum, orthogonalized (Jordan et al. 2024), in the conventions of torch.optim.Muon.
//
// The direction of a weight matrix is its momentum with all singular values brought near 1
// (kernels/newton_schulz/op.h). Formulas of the elementwise parts are in kernels/muon/op.h. It is for
// the matrices of layers and of experts; tables, norms and biases are left to another optimizer. A
// parameter that holds several projections side by side is orthogonalized whole.
//
// An update needs whole matrices, which the ranks exchange (runtime/matrix_exchange.h). Directions are
// rounded to the dtype of the exchange even on one rank, so the bits do not depend on the number of ranks.
//
// State: the momentum, 4 bytes per element, allocated at construction.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "optim/update_scale.h"
#include "runtime/matrix_exchange.h"

namespace tessera {

/// PyTorch's names and defaults.
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;
  UpdateScale scale = UpdateScale::original;
};

class Muon final : public Optimizer {
 public:
  /// `matrices` has the pieces of these shards, all of them f32. Raises Error if a shard is in the host's
  /// memory while the rank's device is a GPU.
  Muon(std::vector<ParameterShard> shards, std::unique_ptr<MatrixExchange> matrices,
       const MuonOptions& options = {});

  /// "<parameter>.momentum".
  NamedTensors state() const override;

 private:
  void update(const std::vector<std::size_t>& shards, double learning_rate,
              const GradientScale& gradient_scale) override;
  void write_directions(const std::vector<MatrixPiece>& pieces, const GradientScale& scale) const;
  void apply(const std::vector<MatrixPiece>& pieces, double learning_rate,
             const GradientScale& scale) const;

  const MuonOptions options_;
  const std::unique_ptr<MatrixExchange> matrices_;
  std::vector<Tensor> momentum_;
  std::map<std::string, std::size_t> index_of_;
};

}  // namespace tessera
