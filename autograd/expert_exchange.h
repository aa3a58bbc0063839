// ExpertExchange: moves rows between the ranks that share out the experts of a layer.
//
// Of R ranks, rank r holds the experts [r E / R, (r + 1) E / R) whole. Each rank has tokens of its
// own, and sends the rows that these dispatch to the ranks that hold the experts. A sharding
// strategy implements it (sharding/strategy/expert_axis.h) and gives it to the stacked parameters;
// the models know nothing of it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/enum_names.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace tessera {

/// The gradients of a weight that are formed from the rows of all ranks.
///   exact   one for the rows of each rank. They are added later, in the tree of all sums over ranks: the
///           bits do not depend on the number of ranks that share out the experts.
///   fast    one for all rows, in the order of their ranks: less memory and less work.
enum class ExpertSums { exact, fast };

template <>
inline constexpr EnumNames<ExpertSums> kEnumNames<ExpertSums> = {"sums of experts",
                                                                 {"exact", "fast"}};

/// The copies of a token's row that travel to its experts.
///   each_expert   one for each expert
///   each_rank     one for each rank that has any of them, and the rank makes the others
enum class ExpertCopies { each_expert, each_rank };

template <>
inline constexpr EnumNames<ExpertCopies> kEnumNames<ExpertCopies> = {"copies for experts",
                                                                     {"each_expert", "each_rank"}};

/// How the rows of a layer travel and are summed.
struct ExpertChoices {
  ExpertSums sums = ExpertSums::exact;
  ExpertCopies copies = ExpertCopies::each_expert;
  /// A rank's tokens travel in this many pieces, a power of two: one computes while another travels. The
  /// gradients of the pieces are added in a binary tree.
  std::int64_t pieces = 1;
};

/// Whether the gradients' bits depend on the ranks that share out experts.
inline bool changes_sums(const ExpertChoices& choices) {
  return choices.sums == ExpertSums::fast || choices.pieces > 1;
}

class ExpertExchange {
 public:
  explicit ExpertExchange(const ExpertChoices& choices) : choices_(choices) {}
  virtual ~ExpertExchange() = default;

  const ExpertChoices& choices() const { return choices_; }
  /// R.
  virtual int ranks() const = 0;
  /// r: this rank's place among them.
  virtual int rank() const = 0;

  /// `sent` [R, n] i32: row r goes to rank r. Returns the rows that this rank received, [R, n], one
  /// after another. A collective. The host reads them, so it waits for the device.
  virtual std::vector<std::int32_t> swap(const Tensor& sent) = 0;

  /// Rows of one rank after those of the other, in the order of ranks: of `sent` [S, C],
  /// sent_rows[r] go to rank r; of `received` [P, C], received_rows[r] come from rank r. A
  /// collective behind the work of the compute stream so far. Returns the point at which the rows have
  /// arrived.
  virtual Event move(const Tensor& received, const std::vector<std::int64_t>& received_rows,
                     const Tensor& sent, const std::vector<std::int64_t>& sent_rows) = 0;

  /// Makes the compute stream wait for rows.
  virtual void wait(const Event& arrival) = 0;

 private:
  const ExpertChoices choices_;
};

}  // namespace tessera
