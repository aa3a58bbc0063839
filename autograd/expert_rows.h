// ExpertRows: the way of dispatched rows to the ranks that hold their experts, and back.
//
// A rank's dispatched rows lie sorted by (expert, token), so the rows for each rank's experts are
// neighbours. With two ranks and four experts, two on each (a row is its expert, and the rank that
// its token is on):
//
//          rank 0                              rank 1
//   rows   0.0 0.0 1.0 | 2.0 3.0               1.1 | 2.1 2.1 3.1
//                 to_experts                          to_experts
//          0.0 0.0 1.0 | 1.1                   2.0 3.0 | 2.1 2.1 3.1
//          source 0      source 1              source 0  source 1
//
// At the experts they lie sorted by (source rank, expert, token). So the rows of one source and one
// expert are a group of neighbours in the order that they have on a rank with all experts. A row's
// products do not depend on the other rows, and a weight's gradient is formed for each source alone:
// the bits are those of ranks that each hold all experts.
//
// Where ranks do not share out the experts, there is one source, and rows stay where they are.
#pragma once

#include <memory>

#include "autograd/expert_exchange.h"

namespace tessera {

/// In a dry run the host cannot read where rows go. It assumes that every rank's tokens take
///   even        all experts equally often, as moe.force_balance has it;
///   all_here    the experts of this rank as often as they can: no rank gets more rows.
/// An option of the calling thread's rank: context().state<AssumedLoad>().
struct AssumedLoad {
  enum class Kind { even, all_here } kind = Kind::even;
};

class ExpertRows {
 public:
  ExpertRows() = default;
  /// `offsets` [E + 1] i32 of this rank's dispatched rows, and the `places` [N, k] i32 of its tokens
  /// among them (kernels/dispatch/op.h). With an exchange a collective, in which the host waits for
  /// the device; null: all experts are here.
  ExpertRows(const Tensor& offsets, const Tensor& places, std::shared_ptr<ExpertExchange> exchange);

  bool travel() const { return exchange_ != nullptr; }
  /// [N k, C] by (expert, token) to [P, C] by (source, expert, token). A collective.
  Tensor to_experts(const Tensor& rows) const;
  /// The reverse. A collective.
  Tensor to_tokens(const Tensor& rows) const;

  /// Groups of rows at the experts, [sources n + 1] i32: group s * n + e has the rows of source s for
  /// the e-th of n experts here.
  const Tensor& offsets() const { return offsets_; }
  int sources() const { return static_cast<int>(offsets_of_.size()); }
  /// The rows of one source, of tensors [P, C] at the experts.
  Tensor of_source(const Tensor& rows, int source) const;
  /// The offsets among these of the experts here, [n + 1] i32.
  const Tensor& offsets_of(int source) const {
    return offsets_of_[static_cast<std::size_t>(source)];
  }
  /// [P, 1] i32: 0, 1, 2, ...: each row at the experts in its own place. Only where rows travel.
  const Tensor& places() const { return places_; }

 private:
  std::shared_ptr<ExpertExchange> exchange_;
  /// Rows for, and from, each rank.
  std::vector<std::int64_t> sent_rows_, received_rows_;
  Tensor offsets_, places_;
  std::vector<Tensor> offsets_of_;
};

}  // namespace tessera
