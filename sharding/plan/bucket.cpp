#include "sharding/plan/bucket.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "runtime/check.h"
#include "runtime/text.h"

namespace tessera {
namespace {

/// The parsed rule: it says before which units a bucket begins.
class Rule {
 public:
  Rule(const Units& units, const std::string& text) {
    if (text == "unit") return;
    const char* end = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(text.data(), end, smallest_);
    if (problem == std::errc() && rest == end) {
      check(smallest_ > 0, "sharding.buckets is {}; expected a positive number of parameters",
            smallest_);
      return;
    }
    smallest_ = 0;
    for (const std::string_view name : split(text, ',')) starts_.emplace_back(name);
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

void check_listed_once(const Units& units) {
  std::map<std::string, const Unit*> listed_by;
  for (const auto& unit : units) {
    for (const Parameter& parameter : unit->parameters()) {
      const auto [first, added] = listed_by.try_emplace(parameter.name(), unit.get());
      check(
          added,
          "parameter '{}' is listed by unit '{}' and by unit '{}'; list it once. A weight that is "
          "used at both ends of the model belongs to one unit at both ends",
          parameter.name(), first->second->name(), unit->name());
    }
  }
}

void add_unit(Bucket& bucket, const Unit& unit, int index) {
  bucket.name += (bucket.units.empty() ? "" : "+") + unit.name();
  bucket.units.push_back(index);
  bucket.at_both_ends = unit.at_both_ends();
  const std::vector<Parameter>& added = unit.parameters();
  bucket.parameters.insert(bucket.parameters.end(), added.begin(), added.end());
}

std::vector<Bucket> join_units(const Units& units, const Rule& rule,
                               const std::vector<int>& starts) {
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const Unit& unit = *units[i];
    const bool must = std::find(starts.begin(), starts.end(), static_cast<int>(i)) != starts.end();
    if (buckets.empty() || must || unit.at_both_ends() || buckets.back().at_both_ends ||
        rule.starts_bucket(unit.name(), buckets.back().numel())) {
      buckets.emplace_back();
    }
    add_unit(buckets.back(), unit, static_cast<int>(i));
  }
  return buckets;
}

/// Marks the buckets at the model's ends; a unit at both ends has both tables.
void mark_tables(std::vector<Bucket>& buckets) {
  const bool tied = std::any_of(buckets.begin(), buckets.end(),
                                [](const Bucket& bucket) { return bucket.at_both_ends; });
  for (Bucket& bucket : buckets) {
    const bool at_an_end = &bucket == &buckets.front() || &bucket == &buckets.back();
    bucket.has_table = tied ? bucket.at_both_ends : at_an_end;
  }
}

/// One bucket per placement of its parameters; a bucket without parameters stays as it is.
std::vector<Bucket> cut_by_placement(const Bucket& bucket, const PlacementIndex& placement) {
  std::map<int, Bucket> parts;
  for (const Parameter& parameter : bucket.parameters) {
    const int index = placement(parameter);
    const auto [part, added] = parts.try_emplace(index, bucket);
    if (added) {
      part->second.placement = index;
      part->second.parameters.clear();
    }
    part->second.parameters.push_back(parameter);
  }
  if (parts.empty()) return {bucket};
  std::vector<Bucket> result;
  for (auto& [index, part] : parts) {
    if (parts.size() > 1) part.name += fmt::format(" ({})", result.size() + 1);
    result.push_back(std::move(part));
  }
  return result;
}

}  // namespace

std::int64_t Bucket::numel() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters) count += parameter.numel();
  return count;
}

std::vector<Bucket> make_buckets(const Units& units, const std::string& rule,
                                 const PlacementIndex& placement, const std::vector<int>& starts) {
  check_listed_once(units);
  std::vector<Bucket> joined = join_units(units, Rule(units, rule), starts);
  mark_tables(joined);
  std::vector<Bucket> buckets;
  for (const Bucket& bucket : joined) {
    if (!placement) {
      buckets.push_back(bucket);
      continue;
    }
    for (Bucket& part : cut_by_placement(bucket, placement)) buckets.push_back(std::move(part));
  }
  for (Bucket& bucket : buckets) {
    std::stable_partition(bucket.parameters.begin(), bucket.parameters.end(),
                          [](const Parameter& parameter) { return parameter.trainable(); });
  }
  return buckets;
}

}  // namespace tessera
