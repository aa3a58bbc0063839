#include "tools/watch/nonfinite.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "kernels/observer.h"
#include "tools/train/gather.h"
#include "tools/watch/operation_place.h"
#include "tools/watch/values.h"

namespace tessera {
namespace {

struct Finding {
  OperationPlace place;
  std::string text;
};

/// Copies of the arguments' bytes in host memory.
using Kept = std::vector<std::vector<std::byte>>;

bool is_same(const Tensor& a, const Tensor& b) {
  return a.raw() == b.raw() && a.bytes() == b.bytes();
}

/// Whether b lies within a.
bool contains(const Tensor& a, const Tensor& b) {
  return a.raw() <= b.raw() && b.raw() + b.bytes() <= a.raw() + a.bytes();
}

class NonfiniteSearch final : public OperationObserver {
 public:
  NonfiniteSearch(TrainingSession& session, int rank) : session_(session), places_(session, rank) {}

  void before(std::string_view, std::span<const Tensor> arguments) override {
    Kept& kept = kept_.emplace_back();
    if (written_) return;
    for (const Tensor& argument : arguments) {
      const Tensor host = argument.to_host();
      kept.emplace_back(host.raw(), host.raw() + host.bytes());
    }
  }

  void after(std::string_view operation, std::span<const Tensor> arguments) override {
    const OperationPlace place = places_.next();
    const Kept before = std::move(kept_.back());
    kept_.pop_back();
    if (written_) return;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!is_floating(arguments[i].dtype())) continue;
      const Tensor host = arguments[i].to_host();
      const ValueRange range = range_of(host);
      if (range.is_finite()) continue;
      // The step's first run may have left the same values in the memory of an output.
      const bool output = i == 0 || changed(host, before[i]);
      if (!output && read_) continue;
      const std::string text = fmt::format(
          "{} in {}, which {} {} with {}{}", operation, to_string(place), output ? "wrote" : "read",
          name_of(arguments[i]), to_string(range), output ? operands_of(arguments, i, before) : "");
      (output ? written_ : read_) = Finding{place, text};
      if (output) return;
    }
  }

  const std::optional<Finding>& written() const { return written_; }
  /// The first operand that is not finite and no output.
  const std::optional<Finding>& read() const { return read_; }

 private:
  static bool changed(const Tensor& host, const std::vector<std::byte>& before) {
    return std::memcmp(host.raw(), before.data(), host.bytes()) != 0;
  }

  /// "; its operands: f32 [8, 16] with 128 values from -1 to 1, ..."
  std::string operands_of(std::span<const Tensor> arguments, std::size_t output,
                          const Kept& before) const {
    std::vector<Tensor> named;
    std::string text;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Tensor host = arguments[i].to_host();
      if (i == output || !is_floating(host.dtype()) || changed(host, before[i])) continue;
      if (is_same(arguments[i], arguments[output])) continue;
      bool seen = false;
      for (const Tensor& other : named) seen |= is_same(arguments[i], other);
      if (seen) continue;
      named.push_back(arguments[i]);
      text += fmt::format("{} {} with {}", text.empty() ? "; its operands:" : ",",
                          name_of(arguments[i]), to_string(range_of(host)));
    }
    return text;
  }

  /// "transformer.wte.weight f32 [257, 16]": the parameter that the tensor is a part of, if it is one.
  std::string name_of(const Tensor& tensor) const {
    for (const auto& unit : session_.model().units()) {
      for (const Parameter& parameter : unit->parameters()) {
        if (parameter.is_open() && contains(parameter.data(), tensor)) {
          return fmt::format("{} {}", parameter.name(), to_string(tensor));
        }
      }
    }
    return to_string(tensor);
  }

  TrainingSession& session_;
  PlaceTracker places_;
  /// For each operation that has begun: one may run others.
  std::vector<Kept> kept_;
  std::optional<Finding> written_, read_;
};

/// The first finding of all ranks, on rank 0.
std::optional<Finding> first_of(const std::optional<Finding>& own, Communicator& world) {
  const std::string text =
      own ? nlohmann::json{encoded(own->place), own->text}.dump() : std::string();
  std::optional<Finding> first;
  for (const std::string& of_rank : gather_texts(text, world)) {
    if (of_rank.empty()) continue;
    const nlohmann::json json = nlohmann::json::parse(of_rank);
    Finding found = {decoded_place(json.at(0)), json.at(1)};
    if (!first || found.place < first->place) first = std::move(found);
  }
  return first;
}

}  // namespace

std::string explain_nonfinite(TrainingSession& session, Communicator& world, std::int64_t step,
                              const BatchSource& source) {
  NonfiniteSearch search(session, world.rank());
  session.observe(step, source, search);
  const std::optional<Finding> written = first_of(search.written(), world);
  const std::optional<Finding> read = first_of(search.read(), world);
  std::string text =
      "the step was run again, and every value of it is finite: a memory or a link is faulty";
  if (written) {
    text = "the first operation whose output is not finite is " + written->text;
  } else if (read) {
    text =
        "every operation's output is finite, but not its operands, which a message between ranks "
        "or a faulty memory wrote: first " +
        read->text;
  }
  return text_of_first_rank(text, world);
}

}  // namespace tessera
