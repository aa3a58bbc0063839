// Delays of a session's messages and computation, by random times: every wait that is needed must be there.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "autograd/unit.h"
#include "runtime/context.h"
#include "runtime/random.h"
#include "runtime/update_stream.h"
#include "tests/support/random_delay.h"
#include "tools/train/session.h"

namespace tessera::test {

/// The streams of a rank that carry messages, and that of updates. Those that a run does not use stay empty.
inline constexpr std::array kSideStreams = {
    kUpdateStream,       "communication",    "rows of tensor ranks", "keys and values",
    "rows of experts",   "send activations", "receive activations",  "send gradients",
    "receive gradients", "tied weights",     "tied gradients"};

/// Delays this rank's messages on the CPU, and its computation before and after every unit, as long as it
/// lives.
class Delays final : public UnitHooks {
 public:
  Delays(TrainingSession& session, std::uint64_t seed, int rank) : session_(session) {
    std::uint64_t number = 0;
    const auto delay = [&] {
      return random_delay(RandomStream(seed, "delays", static_cast<std::uint64_t>(rank), number++));
    };
    for (const char* name : kSideStreams) context().side_stream(name).set_delay(delay());
    compute_ = delay();
    attach(this);
  }
  ~Delays() override {
    attach(&session_.strategy());
    for (const char* name : kSideStreams) context().side_stream(name).set_delay({});
  }

  void before_forward(Unit& unit) override {
    compute_();
    session_.strategy().before_forward(unit);
  }
  void after_forward(Unit& unit) override {
    compute_();
    session_.strategy().after_forward(unit);
  }
  void before_backward(Unit& unit) override {
    compute_();
    session_.strategy().before_backward(unit);
  }
  void after_backward(Unit& unit) override {
    compute_();
    session_.strategy().after_backward(unit);
  }

 private:
  void attach(UnitHooks* hooks) {
    for (const auto& unit : session_.model().units()) unit->attach(hooks);
  }

  TrainingSession& session_;
  std::function<void()> compute_;
};

}  // namespace tessera::test
