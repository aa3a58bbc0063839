// ExpertExchange: moves rows between the ranks that share out the experts of a layer.
//
// Of R ranks, rank r holds the experts [r E / R, (r + 1) E / R) whole. Each rank has tokens of its
// own, and sends the rows that these dispatch to the ranks that hold the experts. A sharding
// strategy implements it (sharding/strategy/expert_axis.h) and gives it to the stacked parameters;
// the models know nothing of it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/tensor.h"

namespace tessera {

class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;

  /// R.
  virtual int ranks() const = 0;
  /// r: this rank's place among them.
  virtual int rank() const = 0;

  /// `sent` [R, n] i32: row r goes to rank r. Returns the rows that this rank received, [R, n], one
  /// after another. A collective. The host reads them, so it waits for the device.
  virtual std::vector<std::int32_t> swap(const Tensor& sent) = 0;

  /// Rows of one rank after those of the other, in the order of ranks: of `sent` [S, C],
  /// sent_rows[r] go to rank r; of `received` [P, C], received_rows[r] come from rank r. A
  /// collective on the compute stream.
  virtual void move(const Tensor& received, const std::vector<std::int64_t>& received_rows,
                    const Tensor& sent, const std::vector<std::int64_t>& sent_rows) = 0;
};

}  // namespace tessera
