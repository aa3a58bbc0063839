#include "sharding/plan/bucket.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "runtime/check.h"

namespace tessera {
namespace {

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

/// The rule, understood: does a bucket of `parameters` so far end before the next unit?
class Rule {
 public:
  Rule(const Units& units, const std::string& text) {
    if (text == "unit") return;
    const char* end = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(text.data(), end, smallest_);
    if (problem == std::errc() && rest == end) {
      check(smallest_ > 0, "a bucket of {} parameters is none; give a positive number", smallest_);
      return;
    }
    smallest_ = 0;
    starts_ = split_at_commas(text);
    for (const std::string& name : starts_) {
      const bool known =
          std::any_of(units.begin(), units.end(), [&](const auto& u) { return u->name() == name; });
      check(known,
            "'{}' is no unit of this model, which has '{}' to '{}'; buckets are 'unit', a number "
            "of parameters, or the names of the units at which they begin",
            name, units.front()->name(), units.back()->name());
    }
  }

  bool starts_bucket(const std::string& unit, std::int64_t parameters_so_far) const {
    if (!starts_.empty()) return std::find(starts_.begin(), starts_.end(), unit) != starts_.end();
    return parameters_so_far >= smallest_;
  }

 private:
  std::int64_t smallest_ = 0;
  std::vector<std::string> starts_;
};

void add_unit(Bucket& bucket, const Unit& unit, int index) {
  bucket.name += (bucket.units.empty() ? "" : "+") + unit.name();
  bucket.units.push_back(index);
  bucket.at_both_ends = unit.at_both_ends();
  const std::vector<Parameter>& added = unit.parameters();
  bucket.parameters.insert(bucket.parameters.end(), added.begin(), added.end());
}

}  // namespace

std::int64_t Bucket::numel() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters) count += parameter.numel();
  return count;
}

std::vector<Bucket> make_buckets(const Units& units, const std::string& rule) {
  const Rule starts(units, rule);
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const Unit& unit = *units[i];
    if (buckets.empty() || unit.at_both_ends() || buckets.back().at_both_ends ||
        starts.starts_bucket(unit.name(), buckets.back().numel())) {
      buckets.emplace_back();
    }
    add_unit(buckets.back(), unit, static_cast<int>(i));
  }
  for (Bucket& bucket : buckets) {
    std::stable_partition(bucket.parameters.begin(), bucket.parameters.end(),
                          [](const Parameter& parameter) { return parameter.trainable(); });
  }
  return buckets;
}

}  // namespace tessera
