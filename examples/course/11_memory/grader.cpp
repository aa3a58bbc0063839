// Grades the formulas of memory against the plan of the sharding layer, which counts to the byte.
#include <fmt/format.h>

#include "autograd/unit.h"
#include "examples/course/11_memory/memory.h"
#include "examples/course/grader.h"
#include "sharding/plan/footprint.h"

namespace tessera::course {
namespace {

constexpr struct {
  Strategy strategy;
  StrategyKind kind;
  const char* name;
} kStrategies[] = {{Strategy::ddp, StrategyKind::ddp, "ddp"},
                   {Strategy::zero1, StrategyKind::zero1, "zero1"},
                   {Strategy::zero2, StrategyKind::zero2, "zero2"},
                   {Strategy::fsdp, StrategyKind::fsdp, "fsdp"}};

constexpr Model kModels[] = {{.embedding = 65536, .block = 131072, .head = 65536, .blocks = 4},
                             {.embedding = 1024, .block = 8192, .head = 524288, .blocks = 2},
                             {.embedding = 262144, .block = 2048, .head = 1024, .blocks = 8}};

Units units_of(const Model& model) {
  Units units;
  const auto add = [&](const std::string& name, std::int64_t elements) {
    const Parameter parameter(name + ".weight", {elements / 64, 64}, Initializer::zeros());
    units.push_back(std::make_unique<Unit>(name, std::vector{parameter}));
  };
  add("embedding", model.embedding);
  for (int block = 0; block < model.blocks; ++block) add(fmt::format("h.{}", block), model.block);
  add("head", model.head);
  return units;
}

/// Compares one number of every strategy, model, number of ranks and dtype.
std::string compare(std::int64_t Held::*held, std::int64_t Footprint::*planned, const char* idea) {
  for (const Model& model : kModels) {
    const Units units = units_of(model);
    for (const auto& [strategy, kind, name] : kStrategies) {
      for (const int ranks : {2, 4, 8}) {
        for (const bool bf16 : {false, true}) {
          const ShardingOptions options = {.strategy = kind,
                                           .compute_dtype = bf16 ? DType::bf16 : DType::f32};
          const std::int64_t expected = footprint_of(units, options, ranks, 0).*planned;
          const std::int64_t found = held_bytes(strategy, model, ranks, bf16).*held;
          if (found == expected) continue;
          return fmt::format(
              "{} on {} ranks{}, {} blocks of {} elements: {} bytes instead of {}: {}", name, ranks,
              bf16 ? " in bf16" : "", model.blocks, model.block, found, expected, idea);
        }
      }
    }
  }
  return "";
}

}  // namespace
}  // namespace tessera::course

int main() {
  using namespace tessera;
  using course::Held;
  course::Grader grader;
  grader.run("parameters", [] {
    return course::compare(
        &Held::parameters, &Footprint::parameters,
        "which masters does a rank update, and which values does it compute with?");
  });
  grader.run("gradients", [] {
    return course::compare(&Held::gradients, &Footprint::gradients,
                           "which sums does a rank keep until the update?");
  });
  grader.run("moments", [] {
    return course::compare(&Held::moments, &Footprint::optimizer,
                           "a rank has two moments of each element that it updates");
  });
  grader.run("slots", [] {
    return course::compare(&Held::slots, &Footprint::communication,
                           "which units take turns, and is it values, gradients or both that are "
                           "whole for a short time?");
  });
  return grader.status();
}
