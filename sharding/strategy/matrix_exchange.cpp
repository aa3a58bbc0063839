#include "sharding/strategy/matrix_exchange.h"

#include <map>
#include <optional>
#include <utility>

#include "kernels/cast/op.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {
namespace {

/// The elements [first, first + count) of a tensor's memory.
Tensor flat_part(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  return tensor.reshape({tensor.numel()}).slice(first, first + count);
}

/// The dimension of a stored matrix that counts the layer's outputs: 0 for rows. Layers set it with the cut.
int output_dimension(const Parameter& parameter) {
  const Cut& cut = parameter.cut();
  const int dimension = cut.dimension - (parameter.stacked() ? 1 : 0);
  const bool is_of_outputs = cut.divided == Divided::outputs || cut.divided == Divided::vocabulary;
  return is_of_outputs ? dimension : 1 - dimension;
}

/// The parts of a message from every rank to every other, in the order of ranks.
class MessageLayout {
 public:
  explicit MessageLayout(int ranks) : counts_(static_cast<std::size_t>(ranks)) {}

  /// The place of the next part to, or from, `rank`. Parts are added rank by rank.
  std::int64_t add(int rank, std::int64_t count) {
    counts_[static_cast<std::size_t>(rank)] += count;
    return std::exchange(elements_, elements_ + count);
  }
  Parts in_memory(DType dtype) const {
    const CategoryScope scope(Category::workspace);
    return {Tensor::empty({elements_}, dtype), counts_};
  }

 private:
  std::vector<std::int64_t> counts_;
  std::int64_t elements_ = 0;
};

/// A part of a matrix in a message.
struct Place {
  std::size_t matrix = 0;  // of the bucket
  std::int64_t first = 0;
  MatrixPart part;
};

/// The exchange of one bucket's matrices.
class BucketExchange {
 public:
  /// `ranks` is null where no rank has others to exchange with.
  BucketExchange(const GroupPlan& group, std::vector<WholeMatrix> matrices, int rank,
                 Communicator* ranks)
      : group_(group),
        matrices_(std::move(matrices)),
        rank_(rank),
        ranks_(ranks),
        sent_(group.matrices.ranks),
        received_(group.matrices.ranks),
        results_sent_(group.matrices.ranks),
        results_received_(group.matrices.ranks) {
    for (const WholeMatrix& matrix : matrices_) {
      own_.push_back(part_of(group_, matrix, rank_));
      gathers_ = gathers_ || (ranks_ != nullptr && matrix.is_cut);
    }
    scatters_ = ranks_ != nullptr &&
                (group_.placement.layout != Layout::tensors || group_.matrices.tensors > 1);
    for (int other = 0; other < group_.matrices.ranks; ++other) {
      for (std::size_t i = 0; i < matrices_.size(); ++i) add_messages(i, other);
    }
  }

  void write(const MatrixExchange::Work& work) {
    allocate();
    Parts sent, received;
    if (gathers_) sent = sent_.in_memory(dtype()), received = received_.in_memory(dtype());
    std::vector<Tensor> values(matrices_.size());
    for (const Place& place : sends_) {
      values[place.matrix] = flat_part(sent.tensor, place.first, place.part.count);
    }
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      if (has_all(i)) values[i] = flat_part(wholes_[i], 0, own_[i].count);
    }
    work.write(pieces(values));
    if (gathers_) exchange(received, sent, " directions");
  }

  void transform(const MatrixExchange::Work& work) {
    wait_for_message();
    copy_runs(receives_, message_.tensor, /*to_matrices=*/true);
    message_ = {};
    for (const Tensor& whole : wholes_) {
      if (whole.defined()) work.transform(whole);
    }
    if (!scatters_) return;
    const Parts sent = results_sent_.in_memory(dtype());
    copy_runs(results_of_owner_, sent.tensor, /*to_matrices=*/false);
    exchange(results_received_.in_memory(dtype()), sent, " updates");
  }

  void read(const MatrixExchange::Work& work) {
    wait_for_message();
    std::vector<Tensor> values(matrices_.size());
    for (const Place& place : results_) {
      values[place.matrix] = flat_part(message_.tensor, place.first, place.part.count);
    }
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      if (has_all(i)) values[i] = flat_part(wholes_[i], 0, own_[i].count);
    }
    work.read(pieces(values));
    message_ = {};
    wholes_.clear();
  }

 private:
  DType dtype() const { return matrices_.front().dtype; }
  const BucketLayout& bucket() const {
    return group_.buckets()[static_cast<std::size_t>(matrices_.front().bucket)];
  }
  bool owns(std::size_t i) const { return matrices_[i].owner == rank_; }
  /// Whether this rank owns the matrix and has all of it: nothing is copied.
  bool has_all(std::size_t i) const { return owns(i) && own_[i].count == matrices_[i].numel(); }

  /// The parts of matrix i in messages to and from rank `other`, which may be this rank. Ranks add the parts
  /// of a message in one order, that of the matrices.
  void add_messages(std::size_t i, int other) {
    const WholeMatrix& matrix = matrices_[i];
    const MatrixPart& own = own_[i];
    if (has_all(i) && other == rank_) return;
    const bool is_owner = matrix.owner == other;
    if (is_owner && own.count > 0 && (owns(i) || sends_part(group_, matrix, rank_))) {
      sends_.push_back({i, sent_.add(other, own.count), own});
    }
    if (is_owner && own.count > 0) {
      results_.push_back({i, results_received_.add(other, own.count), own});
    }
    if (!owns(i)) return;
    const MatrixPart part = other == rank_ ? own : part_of(group_, matrix, other);
    if (part.count == 0) return;
    if (other == rank_ || sends_part(group_, matrix, other)) {
      if (!has_all(i)) receives_.push_back({i, received_.add(other, part.count), part});
    }
    results_of_owner_.push_back({i, results_sent_.add(other, part.count), part});
  }

  /// Memory for the matrices that this rank owns.
  void allocate() {
    const CategoryScope scope(Category::workspace);
    wholes_.resize(matrices_.size());
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      if (!owns(i)) continue;
      wholes_[i] = Tensor::empty({matrices_[i].rows, matrices_[i].columns}, dtype());
    }
  }

  std::vector<MatrixPiece> pieces(const std::vector<Tensor>& values) const {
    std::vector<MatrixPiece> pieces;
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      const WholeMatrix& matrix = matrices_[i];
      if (own_[i].count == 0) continue;
      const Parameter& parameter = bucket().parameters[static_cast<std::size_t>(matrix.parameter)];
      const bool rows_are_outputs = output_dimension(parameter) == 0;
      pieces.push_back({.parameter = parameter.name(),
                        .first = own_[i].first - first_of_shard(matrix),
                        .count = own_[i].count,
                        .outputs = rows_are_outputs ? matrix.rows : matrix.columns,
                        .inputs = rows_are_outputs ? matrix.columns : matrix.rows,
                        .values = values[i]});
    }
    return pieces;
  }

  /// The element of the held part at which this rank's shard begins.
  std::int64_t first_of_shard(const WholeMatrix& matrix) const {
    if (group_.placement.layout == Layout::whole) return 0;
    return group_.partition.owned(matrix.bucket, matrix.parameter, rank_ / group_.matrices.tensors)
        .first;
  }

  /// Copies parts between a message and the matrices, in one call.
  void copy_runs(const std::vector<Place>& places, const Tensor& message, bool to_matrices) const {
    std::vector<Tensor> of_message, of_matrices;
    for (const Place& place : places) {
      place.part.elements.for_each_run(
          place.part.count, [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
            of_message.push_back(flat_part(message, place.first + offset, count));
            of_matrices.push_back(flat_part(wholes_[place.matrix], element, count));
          });
    }
    to_matrices ? cast_all(of_matrices, of_message) : cast_all(of_message, of_matrices);
  }

  void exchange(Parts received, Parts sent, const char* label) {
    const Stream& stream = communication_stream();
    stream.wait(context().compute_stream().record());
    arrival_ = ranks_->all_to_all_parts(received, sent, stream, bucket().name + label);
    message_ = std::move(received);
    sent_message_ = std::move(sent);
  }
  /// A message is kept until it has arrived, so that its memory is released at the same moment in every run.
  void wait_for_message() {
    wait_for_communication(arrival_);
    sent_message_ = {};
  }

  const GroupPlan& group_;
  const std::vector<WholeMatrix> matrices_;
  const int rank_;
  Communicator* const ranks_;
  /// Whether any rank sends parts to owners, and results back.
  bool gathers_ = false, scatters_ = false;
  std::vector<MatrixPart> own_;
  MessageLayout sent_, received_, results_sent_, results_received_;
  std::vector<Place> sends_, receives_, results_of_owner_, results_;
  // While the exchange is under way:
  std::vector<Tensor> wholes_;
  Parts message_, sent_message_;
  std::optional<Event> arrival_;
};

/// All buckets. The parts of bucket i + 1 travel while the matrices of bucket i are transformed, and so do
/// the results of bucket i - 1.
class PlannedExchange final : public MatrixExchange {
 public:
  explicit PlannedExchange(std::vector<BucketExchange> buckets) : buckets_(std::move(buckets)) {}

  void run(const Work& work) override {
    for (std::size_t i = 0; i < buckets_.size() + 2; ++i) {
      if (i < buckets_.size()) buckets_[i].write(work);
      if (i >= 1 && i <= buckets_.size()) buckets_[i - 1].transform(work);
      if (i >= 2) buckets_[i - 2].read(work);
    }
  }

 private:
  std::vector<BucketExchange> buckets_;
};

}  // namespace

std::unique_ptr<MatrixExchange> make_matrix_exchange(
    const Plan& plan, int rank, MeshCommunicators& communicators,
    const std::function<bool(const Parameter&)>& includes) {
  std::vector<BucketExchange> buckets;
  for (const GroupPlan& group : plan.groups) {
    const MatrixPlan& all = group.matrices;
    Communicator* const ranks = all.ranks > 1 ? &communicators.along(all.axes) : nullptr;
    if (!plan.holds(group, rank)) continue;
    const int place = plan.mesh.position_along(rank, all.axes);
    std::map<int, std::vector<WholeMatrix>> by_bucket;
    for (const WholeMatrix& matrix : all.matrices) {
      const BucketLayout& bucket = group.buckets()[static_cast<std::size_t>(matrix.bucket)];
      if (includes(bucket.parameters[static_cast<std::size_t>(matrix.parameter)])) {
        by_bucket[matrix.bucket].push_back(matrix);
      }
    }
    for (auto& [bucket, matrices] : by_bucket) {
      buckets.emplace_back(group, std::move(matrices), place, ranks);
    }
  }
  return std::make_unique<PlannedExchange>(std::move(buckets));
}

}  // namespace tessera
