#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/muon/op.h"
#include "kernels/newton_schulz/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/stream_log.h"

namespace tessera {
namespace {

/// The piece's elements of a shard's tensor.
Tensor part_of(const Tensor& shard, const MatrixPiece& piece) {
  return shard.reshape({shard.numel()}).slice(piece.first, piece.first + piece.count);
}

void orthogonalize(const Tensor& matrix) {
  const Span span("newton-schulz", SpanUse::trace);
  newton_schulz(matrix);
  log_work(
      {.kind = Work::Kind::forward, .amount = newton_schulz_flops(matrix.size(0), matrix.size(1))});
}

}  // namespace

double update_ratio(UpdateScale scale, std::int64_t outputs, std::int64_t inputs) {
  const auto a = static_cast<double>(outputs), b = static_cast<double>(inputs);
  return scale == UpdateScale::original ? std::sqrt(std::max(1.0, a / b))
                                        : 0.2 * std::sqrt(std::max(a, b));
}

Muon::Muon(std::vector<ParameterShard> shards, std::unique_ptr<MatrixExchange> matrices,
           const MuonOptions& options)
    : Optimizer(std::move(shards)), options_(options), matrices_(std::move(matrices)) {
  for (std::size_t i = 0; i < this->shards().size(); ++i) {
    const ParameterShard& shard = this->shards()[i];
    index_of_[shard.name] = i;
    check(shard.data.device() == context().device(),
          "muon: the values of {} are in the host's memory; matrices are orthogonalized on the "
          "device, so set sharding.offload=none",
          shard.name);
  }
  momentum_ = zeros_like_shards();
}

NamedTensors Muon::state() const {
  NamedTensors tensors;
  for (std::size_t i = 0; i < momentum_.size(); ++i) {
    tensors.emplace_back(shards()[i].name + ".momentum", momentum_[i]);
  }
  return tensors;
}

void Muon::update(const std::vector<std::size_t>&, double learning_rate,
                  const GradientScale& gradient_scale) {
  matrices_->run(
      {.write = [&](const auto& pieces) { write_directions(pieces, gradient_scale); },
       .transform = orthogonalize,
       .read = [&](const auto& pieces) { apply(pieces, learning_rate, gradient_scale); }});
}

void Muon::write_directions(const std::vector<MatrixPiece>& pieces,
                            const GradientScale& scale) const {
  std::vector<MuonDirection> ranges;
  for (const MatrixPiece& piece : pieces) {
    const std::size_t i = index_of_.at(piece.parameter);
    ranges.push_back({.m = part_of(momentum_[i], piece),
                      .gradient = part_of(shards()[i].gradient, piece),
                      .direction = piece.values});
  }
  muon_direction(ranges,
                 {.momentum = options_.momentum,
                  .nesterov = options_.nesterov,
                  .gradient_scale = scale.number},
                 scale.tensor);
}

void Muon::apply(const std::vector<MatrixPiece>& pieces, double learning_rate,
                 const GradientScale& scale) const {
  std::vector<MuonUpdate> ranges;
  std::vector<Copied> copies;
  for (const MatrixPiece& piece : pieces) {
    const ParameterShard& shard = shards()[index_of_.at(piece.parameter)];
    ranges.push_back({.p = part_of(shard.data, piece),
                      .update = piece.values,
                      .ratio = update_ratio(options_.scale, piece.outputs, piece.inputs),
                      .decay = shard.decay});
    const Tensor copy = shard.copy.defined() ? part_of(shard.copy, piece) : Tensor();
    copies.push_back({copy, ranges.back().p, shard.rounding});
  }
  muon_apply(
      ranges,
      {.learning_rate = learning_rate, .weight_decay = options_.weight_decay, .optimizer = place()},
      scale.tensor);
  write_copies(copies);
}

}  // namespace tessera
