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
// They arrive sorted by (source rank, expert, token). So the rows of one source and one expert are a
// group of neighbours in the order that they have on a rank with all experts. A row's products do not
// depend on the other rows. With ExpertSums::exact a weight's gradient is formed for each source
// alone: the bits are those of ranks that each hold all experts. With ExpertSums::fast the rows are
// sorted once more, by (expert, source rank, token), so that each expert has one group:
//
//   fast   0.0 0.0 | 1.0 1.1                   2.0 2.1 2.1 | 3.0 3.1
//
// With ExpertCopies::each_rank a token whose experts are on one rank travels there once. The rank gets the
// number of the copy that each row is of, and makes the rows.
//
// Rows travel next to the compute stream, so their sender gets a Journey, and waits for it before the
// rows are used.
//
// Where ranks do not share out the experts, there is one source, and rows stay where they are.
#pragma once

#include <memory>
#include <optional>

#include "autograd/expert_exchange.h"
#include "autograd/routing.h"
#include "autograd/token_copies.h"
#include "kernels/grouped_matmul/gathered.h"

namespace tessera {

/// In a dry run the host cannot read where rows go. It assumes that every rank's tokens take
///   even        all experts equally often, any of them together;
///   in_turn     all experts equally often, neighbours together, as moe.force_balance has it;
///   all_here    the experts of this rank as often as they can: no rank gets more rows.
/// An option of the calling thread's rank: context().state<AssumedLoad>().
struct AssumedLoad {
  enum class Kind { even, in_turn, all_here } kind = Kind::even;
};

/// Rows on their way. Without an arrival they are there.
struct Journey {
  Tensor rows;
  std::optional<Event> arrival = {};
  /// They are copies of tokens.
  bool copies = false;
  /// They are the tokens' own, which products gather.
  bool of_tokens = false;
};

class ExpertRows {
 public:
  /// The ways of several pieces of this rank's tokens. With an exchange a collective, in which the host
  /// waits for the device once; null: all experts are here.
  static std::vector<ExpertRows> of_pieces(const std::vector<DispatchOrder>& pieces,
                                           const std::shared_ptr<ExpertExchange>& exchange);

  bool travel() const { return exchange_ != nullptr; }
  /// The rows [N, C] of tokens, times `weights` [N, k] if these are defined, on their way to the experts. A
  /// collective.
  Journey tokens_to_experts(const Tensor& tokens, const Tensor& weights) const;
  /// Those rows by group, [P, C].
  Tensor at_experts(Journey journey) const;
  /// [N k, C] by (expert, token) to [P, C] by (source, expert, token). A collective.
  Journey to_experts(const Tensor& rows) const;
  /// The reverse. A collective.
  Journey to_tokens(const Tensor& rows) const;
  /// The rows of a journey, once the compute stream has waited for them.
  Tensor arrived(Journey journey) const;

  /// From the order of groups to that of arrival at the experts: [P, C].
  Tensor by_arrival(const Tensor& rows) const;

  /// Groups of rows at the experts, [G n + 1] i32: group g * n + e has rows for the e-th of n experts
  /// here, of source g, or with G = 1 of all.
  const Tensor& offsets() const { return offsets_; }
  /// The gradients of each expert's weights that are formed: G.
  int sums() const { return static_cast<int>(offsets_of_.size()); }
  /// The rows of one of them, of rows [P, C] at the experts. (Those of tokens do not travel.)
  RoutedRows rows_of(const RoutedRows& rows, int sum) const;
  /// The offsets among these of the experts here, [n + 1] i32.
  const Tensor& offsets_of(int sum) const { return offsets_of_[static_cast<std::size_t>(sum)]; }
  /// [P, 1] i32: the place among the groups of each row that has arrived. Only where rows travel.
  const Tensor& places() const { return places_; }
  /// [P] i32: the reverse of the places at the experts, or of the tokens' if no rows travel. Only on GPUs.
  const Tensor& slots() const { return slots_; }

 private:
  /// `own` [E + 1] and `received` [R, n + 1]: offsets of this rank's rows, and of those for the experts
  /// here.
  ExpertRows(std::shared_ptr<ExpertExchange> exchange, const DispatchOrder& order,
             const std::vector<std::int32_t>& own, const std::vector<std::int32_t>& received);
  /// All experts are here.
  explicit ExpertRows(const DispatchOrder& order)
      : order_(order), offsets_(order.offsets), slots_(order.slots), offsets_of_({order.offsets}) {}

  bool sorts_again() const;
  /// Makes the copies known to their ranks, which get `received` copies. Returns the numbers on their way.
  Journey announce(const TokenCopies& copies, std::vector<std::int64_t> received);
  Tensor by_group(const Tensor& arrived) const;
  Tensor rows_of_copies(const Tensor& copies) const;

  std::shared_ptr<ExpertExchange> exchange_;
  /// Rows for, and from, each rank.
  std::vector<std::int64_t> sent_rows_, received_rows_, sent_copies_, received_copies_;
  DispatchOrder order_;
  Tensor offsets_, places_, slots_;
  /// The tokens of the copies that this rank sends, and the numbers of the copies that arrived rows are of
  /// among those of their source: i32. Undefined without copies.
  Tensor copied_, copy_of_;
  std::vector<Tensor> offsets_of_;
};

}  // namespace tessera
