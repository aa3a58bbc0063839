// A fault that a test plants on one rank, around a unit of a session.
#pragma once

#include <functional>
#include <string>

#include "autograd/unit.h"
#include "tools/train/session.h"

namespace tessera::test {

/// Calls `plant` on this rank after a unit's weights are gathered, before its forward or backward pass,
/// as long as it lives.
class Planted final : public UnitHooks {
 public:
  enum class Pass { forward, backward };

  Planted(TrainingSession& session, std::string unit, Pass pass, std::function<void(Unit&)> plant)
      : session_(session), unit_(std::move(unit)), pass_(pass), plant_(std::move(plant)) {
    attach(this);
  }
  ~Planted() override { attach(&session_.strategy()); }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;

  void before_forward(Unit& unit) override {
    session_.strategy().before_forward(unit);
    if (pass_ == Pass::forward && unit.name() == unit_) plant_(unit);
  }
  void after_forward(Unit& unit) override { session_.strategy().after_forward(unit); }
  void before_backward(Unit& unit) override {
    session_.strategy().before_backward(unit);
    if (pass_ == Pass::backward && unit.name() == unit_) plant_(unit);
  }
  void after_backward(Unit& unit) override { session_.strategy().after_backward(unit); }

 private:
  void attach(UnitHooks* hooks) {
    for (const auto& unit : session_.model().units()) unit->attach(hooks);
  }

  TrainingSession& session_;
  std::string unit_;
  Pass pass_;
  std::function<void(Unit&)> plant_;
};

}  // namespace tessera::test
