#include "tools/watch/operation_place.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "runtime/context.h"
#include "runtime/open_spans.h"

namespace tessera {

using Phase = OperationPlace::Phase;

namespace {

constexpr std::string_view kForward = "forward ", kBackward = "backward ";

/// The innermost open span that says where the step is.
std::string_view place_span() {
  const std::vector<std::string_view> spans = open_spans();
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (span->starts_with(kForward) || span->starts_with(kBackward)) return *span;
    if (*span == "optimizer") return *span;
  }
  return {};
}

auto key_of(const OperationPlace& place) {
  // The update comes after all micro-batches.
  const bool update = place.phase == Phase::update;
  return std::tuple(update, update ? 0 : place.micro_batch, place.phase, place.unit_order,
                    place.number, place.rank);
}

}  // namespace

std::strong_ordering OperationPlace::operator<=>(const OperationPlace& other) const {
  return key_of(*this) <=> key_of(other);
}

std::string to_string(const OperationPlace& place) {
  if (place.phase == Phase::update) return fmt::format("the update of rank {}", place.rank);
  return fmt::format("{}{}{}, micro-batch {} of rank {}",
                     place.phase == Phase::forward ? "forward" : "backward",
                     place.unit.empty() ? "" : " of ", place.unit, place.micro_batch, place.rank);
}

std::string encoded(const OperationPlace& place) {
  return nlohmann::json{place.micro_batch, static_cast<int>(place.phase),
                        place.unit_order,  place.number,
                        place.rank,        place.unit}
      .dump();
}

OperationPlace decoded_place(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.micro_batch = json.at(0),
          .phase = static_cast<Phase>(json.at(1).get<int>()),
          .unit_order = json.at(2),
          .number = json.at(3),
          .rank = json.at(4),
          .unit = json.at(5)};
}

PlaceTracker::PlaceTracker(TrainingSession& session, int rank)
    : units_(static_cast<std::int64_t>(session.model().units().size())),
      batch_ranks_(session.strategy().plan().batch_ranks()),
      begins_forward_(session.strategy().plan().pipeline_rank(rank) == 0) {
  for (const auto& unit : session.model().units()) {
    order_.emplace(unit->name(), static_cast<std::int64_t>(order_.size()));
  }
  place_ = {.number = -1, .rank = rank};
}

OperationPlace PlaceTracker::next() {
  ++place_.number;
  const auto micro_batch = static_cast<std::int64_t>(context().random().micro_batch) / batch_ranks_;
  if (micro_batch != place_.micro_batch) last_forward_ = -1;
  place_.micro_batch = micro_batch;
  enter(place_span());
  return place_;
}

void PlaceTracker::enter(std::string_view span) {
  if (span.empty()) return;  // between units: as before
  if (span == "optimizer") {
    place_.phase = Phase::update;
    place_.unit.clear();
    place_.unit_order = 0;
    return;
  }
  const bool forward = span.starts_with(kForward);
  const std::string_view unit = span.substr((forward ? kForward : kBackward).size());
  const bool goes_on = place_.unit == unit && (place_.phase == Phase::forward) == forward;
  if (goes_on) return;
  place_.phase = forward ? Phase::forward : Phase::backward;
  place_.unit = unit;
  const std::int64_t order = order_.at(place_.unit);
  if (forward) {
    // A tied head is the first unit again.
    const bool is_head = order == 0 && (last_forward_ >= 0 || !begins_forward_);
    place_.unit_order = is_head ? units_ : order;
    last_forward_ = place_.unit_order;
  } else {
    const bool is_head = order == 0 && last_forward_ == units_;
    place_.unit_order = is_head ? 0 : units_ - order;
    if (is_head) last_forward_ = units_ - 1;  // the embedding's backward comes later
  }
}

}  // namespace tessera
