// Messages about kernels that break a rule.
#include <cstdio>
#include <cstring>

#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/coordinates.h"

namespace tessera::emulation {
namespace {

std::string triple(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," +
         std::to_string(index.z) + ")";
}

std::string state_of(const Thread& thread) {
  if (thread.done) return "have ended";
  char mask[32] = "";
  if (thread.mask != 0) std::snprintf(mask, sizeof(mask), " with mask %08x", thread.mask);
  return std::string("wait in ") + thread.waits_in + mask + " at " + place(thread.site);
}

}  // namespace

std::string place(const Site& site) {
  const char* slash = std::strrchr(site.file_name(), '/');
  return std::string(slash != nullptr ? slash + 1 : site.file_name()) + ":" +
         std::to_string(site.line());
}

void Block::fail(const std::string& rule) const {
  throw Failure("block " + triple(blockIdx) + " thread " + triple(running_->index) + ": " + rule);
}

void Block::fail(const std::string& rule, const Site& site) const {
  throw Failure("block " + triple(blockIdx) + " thread " + triple(running_->index) + " at " +
                place(site) + ": " + rule);
}

// No thread can go on. Groups the threads by the places where they wait.
std::string Block::divergence() const {
  struct Group {
    std::string state;
    unsigned first, count;
  };
  std::vector<Group> groups;
  for (const Thread& thread : threads_) {
    std::string state = state_of(thread);
    if (blocks_.size() > 1) state += " in block " + triple(blocks_[thread.rank].index);
    std::size_t group = 0;
    while (group < groups.size() && groups[group].state != state) ++group;
    if (group == groups.size()) groups.push_back({state, thread.number, 0});
    ++groups[group].count;
  }
  std::string message = "block " + triple(blockIdx) + ": threads wait for others that never arrive";
  const char* separator = ": ";
  for (const Group& group : groups) {
    message += separator + std::to_string(group.count) + " (the first is " +
               std::to_string(group.first) + ") " + group.state;
    separator = "; ";
  }
  return message + barriers_.missing();
}

}  // namespace tessera::emulation
