#include "tools/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <set>

#include "runtime/check.h"
#include "runtime/integer.h"

namespace tessera {
namespace {

constexpr std::int64_t kStride = 256;
constexpr std::int64_t kMostRows = std::int64_t{1} << 60;
/// Decimal places of a weight.
constexpr int kPlaces = 9;

std::int64_t sum_of(std::span<const std::int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

/// Counts the rows of a period, one after the other.
class Walk {
 public:
  Walk(const std::vector<std::int64_t>& weights, std::int64_t total, std::int64_t row,
       std::span<const std::int64_t> counts)
      : weights_(weights), total_(total), row_(row), counts_(counts.begin(), counts.end()) {
    jobs_.resize(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) set_job(i);
  }

  /// The source of this row; the walk goes on to the next.
  std::size_t next() {
    std::size_t chosen = jobs_.size();
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].from > row_) continue;
      if (chosen == jobs_.size() || jobs_[i].before < jobs_[chosen].before) chosen = i;
    }
    ++counts_[chosen];
    set_job(chosen);
    ++row_;
    return chosen;
  }

  std::int64_t row() const { return row_; }
  const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  /// The rows from and before which a source's next row comes.
  struct Job {
    std::int64_t from = 0, before = 0;
  };

  void set_job(std::size_t i) {
    const std::int64_t weight = weights_[i], done = counts_[i];
    // All its rows of this period are done, or it has none.
    if (done == weight) return void(jobs_[i] = {total_, total_});
    jobs_[i] = {done * total_ / weight, ceil_div((done + 1) * total_, weight)};
  }

  const std::vector<std::int64_t>& weights_;
  std::int64_t total_;
  std::int64_t row_;
  std::vector<std::int64_t> counts_;
  std::vector<Job> jobs_;
};

}  // namespace

/// The counts before rows 0, kStride, 2 kStride and so on, source by source.
struct FairOrder::Table {
  std::mutex mutex;
  std::vector<std::int64_t> counts;
};

FairOrder::FairOrder(std::vector<std::int64_t> weights)
    : weights_(std::move(weights)), table_(std::make_shared<Table>()) {
  const std::int64_t divisor = std::reduce(weights_.begin(), weights_.end(), std::int64_t{0},
                                           [](auto a, auto b) { return std::gcd(a, b); });
  check(divisor > 0, "no weight is positive");
  for (std::int64_t& weight : weights_) weight /= divisor;
  total_ = sum_of(weights_);
  check(total_ <= kMostWeight,
        "the weights have no small common measure: as whole numbers their sum is {}, above {}; "
        "round them",
        total_, kMostWeight);
  table_->counts.resize(weights_.size(), 0);
}

std::vector<std::int64_t> FairOrder::counts_before(std::int64_t row) const {
  const std::size_t sources = weights_.size();
  const auto entry = static_cast<std::size_t>(row / kStride);
  const std::lock_guard lock(table_->mutex);
  std::vector<std::int64_t>& counts = table_->counts;
  const std::size_t known = counts.size() / sources - 1;
  if (known < entry) {
    Walk walk(weights_, total_, static_cast<std::int64_t>(known) * kStride,
              std::span(counts).last(sources));
    while (walk.row() < static_cast<std::int64_t>(entry) * kStride) {
      walk.next();
      if (walk.row() % kStride == 0) {
        counts.insert(counts.end(), walk.counts().begin(), walk.counts().end());
      }
    }
  }
  const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(entry * sources);
  return {begin, begin + static_cast<std::ptrdiff_t>(sources)};
}

std::vector<std::int64_t> FairOrder::counts(std::int64_t rows) const {
  const std::int64_t periods = rows / total_, place = rows % total_;
  Walk walk(weights_, total_, place - place % kStride, counts_before(place));
  while (walk.row() < place) walk.next();
  std::vector<std::int64_t> counts = walk.counts();
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += periods * weights_[i];
  return counts;
}

std::pair<std::size_t, std::int64_t> FairOrder::at(std::int64_t row) const {
  const std::int64_t periods = row / total_, place = row % total_;
  Walk walk(weights_, total_, place - place % kStride, counts_before(place));
  while (walk.row() < place) walk.next();
  const std::size_t source = walk.next();
  return {source, periods * weights_[source] + walk.counts()[source] - 1};
}

std::vector<std::int64_t> whole_weights(std::span<const double> weights) {
  double scale = 1.0;
  const auto is_whole = [&](double weight) {
    return std::abs(weight * scale - std::round(weight * scale)) <= 1e-12 * weight * scale;
  };
  for (int place = 0; place < kPlaces; ++place) {
    if (std::all_of(weights.begin(), weights.end(), is_whole)) break;
    scale *= 10.0;
  }
  std::vector<std::int64_t> whole;
  for (const double weight : weights) {
    const double scaled = std::round(weight * scale);
    check(scaled <= 0x1p52, "the weight {} is too large next to the others", weight);
    whole.push_back(std::max<std::int64_t>(weight > 0.0, static_cast<std::int64_t>(scaled)));
  }
  return whole;
}

namespace {

/// The weights of the sources in one step; those of parts of the same source are added.
std::vector<double> weights_in(std::int64_t step, const std::vector<MixturePart>& parts,
                               std::size_t sources) {
  std::vector<double> weights(sources, 0.0);
  for (const MixturePart& part : parts) {
    const bool holds = part.from_step <= step && (part.until_step == 0 || step <= part.until_step);
    if (holds) weights[part.source] += part.weight;
  }
  return weights;
}

/// The rows that each source has in a period.
std::vector<std::int64_t> row_weights(std::vector<double> weights,
                                      const std::vector<Mixture::Source>& sources,
                                      MixtureKind kind) {
  const auto same_fill = [&](const Mixture::Source& source) {
    return source.inputs % source.rows == 0 &&
           source.inputs / source.rows == sources[0].inputs / sources[0].rows;
  };
  if (kind == MixtureKind::by_tokens) {
    if (std::all_of(sources.begin(), sources.end(), same_fill)) return whole_weights(weights);
    // Rows of documents have empty places: a source with fewer tokens in a row has more rows.
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] *= static_cast<double>(sources[i].rows) / static_cast<double>(sources[i].inputs);
    }
    constexpr double kUnits = 1 << 30;
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight = std::round(weight / total * kUnits);
    return {weights.begin(), weights.end()};
  }
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double passes = weights[i] * static_cast<double>(sources[i].rows);
    check(passes <= 0x1p52, "{} passes over {} rows are too many", weights[i], sources[i].rows);
    rows.push_back(std::max<std::int64_t>(weights[i] > 0.0, std::llround(passes)));
  }
  return rows;
}

}  // namespace

Mixture::Mixture(const std::vector<MixturePart>& parts, const std::vector<Source>& sources,
                 MixtureKind kind, const BatchSizes& sizes) {
  std::set<std::int64_t> begins = {1};
  for (const MixturePart& part : parts) {
    begins.insert(part.from_step);
    if (part.until_step > 0) begins.insert(part.until_step + 1);
  }
  std::vector<std::int64_t> before(sources.size(), 0);
  for (const std::int64_t step : begins) {
    check(step <= kMostRows / sizes.rows(step - 1), "from step {} on there are too many rows",
          step);
    const std::int64_t first_row = sizes.first_row(step - 1);
    if (!phases_.empty()) before = counts(first_row);
    std::vector<double> weights = weights_in(step, parts, sources.size());
    check(std::any_of(weights.begin(), weights.end(), [](double weight) { return weight > 0.0; }),
          "no source has a weight in step {}; change from_step or until_step", step);
    phases_.push_back(
        {first_row, before, FairOrder(row_weights(std::move(weights), sources, kind))});
  }
  for (const Source& source : sources) epoch_rows_ += source.rows;
  if (kind == MixtureKind::by_epochs && phases_.size() == 1) {
    epoch_rows_ = sum_of(row_weights(weights_in(1, parts, sources.size()), sources, kind));
  }
}

const Mixture::Phase& Mixture::phase_of(std::int64_t row) const {
  check(row >= 0, "mixture: there is no row {}", row);
  const auto next = std::upper_bound(
      phases_.begin(), phases_.end(), row,
      [](std::int64_t wanted, const Phase& phase) { return wanted < phase.first_row; });
  return *(next - 1);
}

std::pair<std::size_t, std::int64_t> Mixture::at(std::int64_t row) const {
  const Phase& phase = phase_of(row);
  const auto [source, number] = phase.order.at(row - phase.first_row);
  return {source, phase.before[source] + number};
}

std::vector<std::int64_t> Mixture::counts(std::int64_t rows) const {
  // The rows before a phase are those of the one that it follows.
  const Phase& phase = phase_of(std::max<std::int64_t>(rows - 1, 0));
  std::vector<std::int64_t> counts = phase.order.counts(rows - phase.first_row);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += phase.before[i];
  return counts;
}

}  // namespace tessera
