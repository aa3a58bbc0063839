// trace_attention: the events of attention's forward pass on the emulated Hopper, role by role.
//
//   trace_attention [--keys 512] [--json]
//
// One head of 128 channels and 128 queries, the last of the keys' positions: one thread block
// (kernels/attention/cuda/hopper/forward.cu). A role is a warpgroup; its first warp stands for it. The
// table has a role's events in the order of its program, each with its place in the order in which
// the emulator ran them. The producer's messages about the next block of rows are left out: there is
// one block. docs/figures/attention_hopper.py draws the JSON.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernels/attention/op.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/emulation/device/events.h"
#include "runtime/enum_names.h"
#include "sharding/comm/threads/threads.h"
#include "tools/program/command_line.h"

template <>
inline constexpr tessera::EnumNames<tessera::emulation::EventKind>
    tessera::kEnumNames<tessera::emulation::EventKind> = {
        "event",
        {"copy_started", "barrier_arrived", "barrier_completed", "barrier_waited", "named_arrived",
         "named_synced", "tiles_multiplied", "registers_multiplied", "products_committed",
         "products_waited"}};

using namespace tessera;

namespace {

using emulation::EventKind;
using emulation::KernelEvent;

constexpr std::int64_t kQueries = 128, kHeadSize = 128;
constexpr unsigned kWarpsOfRole = 4;
constexpr std::array<const char*, 3> kRoles = {"producer", "consumer 0", "consumer 1"};

std::vector<KernelEvent> run_attention(std::int64_t keys) {
  const auto heads = [](std::int64_t tokens) {
    return heads_of(Tensor::zeros({1, tokens, kHeadSize}, DType::bf16), 0, 1, kHeadSize);
  };
  const Heads q = heads(kQueries), k = heads(keys), v = heads(keys), o = heads(kQueries);
  const Tensor logsumexp = Tensor::zeros({1, 1, kQueries}, DType::f32);
  current_stream().synchronize();
  emulation::start_event_list();
  attention_forward(o, logsumexp, q, k, v, /*scale=*/1.0f);
  current_stream().synchronize();
  return emulation::take_event_list();
}

/// The kernel's rings of tiles. It initializes their barriers ring by ring and stage by stage, full
/// before empty, and then those of the ring of numbers (kernels/cuda/work_queue.h).
struct Ring {
  const char* name;
  int stages;
};
constexpr std::array kRings = {Ring{"Q", 1}, Ring{"K", 2}, Ring{"V", 2}};

bool is_about_numbers(const KernelEvent& event) {
  const bool at_barrier = event.kind == EventKind::barrier_arrived ||
                          event.kind == EventKind::barrier_completed ||
                          event.kind == EventKind::barrier_waited;
  int barriers = 0;
  for (const Ring& ring : kRings) barriers += 2 * ring.stages;
  return at_barrier && event.number >= barriers;
}

/// A tile and one of its stage's barriers.
struct TileBarrier {
  std::string tile;
  bool full;
};
TileBarrier tile_barrier(const KernelEvent& event) {
  int barrier = event.number;
  for (const Ring& ring : kRings) {
    if (barrier < 2 * ring.stages) {
      const int tile = event.phase * ring.stages + barrier / 2;
      return {ring.name + std::to_string(tile), barrier % 2 == 0};
    }
    barrier -= 2 * ring.stages;
  }
  throw Error("trace_attention: the kernel has more barriers than its rings");
}

/// Equal events of a role, one after another: the panels of a tile, the steps of a product.
struct RoleEvent {
  unsigned role;
  KernelEvent event;
  int times;
};

std::vector<RoleEvent> role_events(const std::vector<KernelEvent>& all) {
  std::vector<RoleEvent> events;
  std::array<std::size_t, kRoles.size()> last{};  // of each role, counted from 1
  for (const KernelEvent& event : all) {
    if (event.warp % kWarpsOfRole != 0 || is_about_numbers(event)) continue;
    // Completions follow from arrivals and copies. The wait for a stage that was never filled ends at
    // once.
    if (event.kind == EventKind::barrier_completed || event.phase < 0) continue;
    const unsigned role = event.warp / kWarpsOfRole;
    if (last[role] != 0 && events[last[role] - 1].event == event) {
      ++events[last[role] - 1].times;
      continue;
    }
    events.push_back({role, event, 1});
    last[role] = events.size();
  }
  return events;
}

std::string text_of(const RoleEvent& shown) {
  const KernelEvent& event = shown.event;
  switch (event.kind) {
    case EventKind::copy_started:
      return "copy " + tile_barrier(event).tile;
    case EventKind::barrier_arrived: {
      const auto [tile, full] = tile_barrier(event);
      return (full ? "expect " : "release ") + tile;
    }
    case EventKind::barrier_waited: {
      const auto [tile, full] = tile_barrier(event);
      return "wait " + tile + (full ? " full" : " empty");
    }
    case EventKind::barrier_completed:
      break;
    case EventKind::named_arrived:
      return "pass the turn";
    case EventKind::named_synced:
      return "wait for the turn";
    case EventKind::tiles_multiplied:
      return fmt::format("{} wgmma of Q K^T", shown.times);
    case EventKind::registers_multiplied:
      return fmt::format("{} wgmma of P V", shown.times);
    case EventKind::products_committed:
      return fmt::format("commit group {}", event.number);
    case EventKind::products_waited:
      return fmt::format("wait group {}", event.number);
  }
  return {};
}

void print_table(const std::vector<RoleEvent>& events) {
  std::array<std::vector<std::string>, kRoles.size()> columns;
  for (std::size_t i = 0; i < events.size(); ++i) {
    columns[events[i].role].push_back(fmt::format("{:4} {}", i, text_of(events[i])));
  }
  std::size_t lines = 0;
  for (const auto& column : columns) lines = std::max(lines, column.size());
  fmt::print("     {:<21}     {:<21}     {}\n", kRoles[0], kRoles[1], kRoles[2]);
  for (std::size_t line = 0; line < lines; ++line) {
    std::string text;
    for (const auto& column : columns) {
      text += fmt::format("{:<26}", line < column.size() ? column[line] : "");
    }
    fmt::print("{}\n", text.substr(0, text.find_last_not_of(' ') + 1));
  }
}

/// "K0 full", "turn 1" or "group 2".
std::string object_of(const KernelEvent& event) {
  switch (event.kind) {
    case EventKind::copy_started:
    case EventKind::barrier_arrived:
    case EventKind::barrier_completed:
    case EventKind::barrier_waited: {
      const auto [tile, full] = tile_barrier(event);
      return tile + (full ? " full" : " empty");
    }
    // The consumers' barriers are 2 and 3.
    case EventKind::named_arrived:
    case EventKind::named_synced:
      return fmt::format("turn {}", event.number - 2);
    default:
      return fmt::format("group {}", event.number);
  }
}

void print_json(const std::vector<RoleEvent>& events) {
  fmt::print("[\n");
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto& [role, event, times] = events[i];
    fmt::print(
        R"({{"sequence":{},"role":"{}","event":"{}","object":"{}","amount":{},"times":{}}}{})"
        "\n",
        i, kRoles[role], enum_name(event.kind), object_of(event), event.amount, times,
        i + 1 < events.size() ? "," : "");
  }
  fmt::print("]\n");
}

}  // namespace

int main(int count, char** arguments) {
  std::int64_t keys = 512;
  bool json = false;
  Command app("trace_attention",
              "Prints the events of attention's forward pass on the emulated Hopper");
  app.option("--keys", keys, "Keys of the head; at least 128");
  app.flag("--json", json, "Print JSON in place of a table");
  return run_main(app, count, arguments, [&] {
    check(keys >= kQueries, "--keys {}: the head has {} queries and needs at least as many keys",
          keys, kQueries);
    run_ranks({.device = {DeviceType::cuda, 0}, .threads = 1}, [&](Communicator&) {
      const std::vector<RoleEvent> events = role_events(run_attention(keys));
      json ? print_json(events) : print_table(events);
    });
    flush_output();
    return 0;
  });
}
