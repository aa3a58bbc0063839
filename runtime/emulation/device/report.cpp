// What the emulator says of a kernel that breaks a rule.
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

std::string what_it_does(const Thread& thread) {
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

void Block::fail(const std::string& what) const {
  throw Failure("block " + triple(blockIdx) + " thread " + triple(running_->index) + ": " + what);
}

void Block::fail(const std::string& what, const Site& site) const {
  throw Failure("block " + triple(blockIdx) + " thread " + triple(running_->index) + " at " +
                place(site) + ": " + what);
}

// Nobody can go on: groups the threads by where they are.
std::string Block::divergence() const {
  struct Group {
    std::string what;
    unsigned first, count;
  };
  std::vector<Group> groups;
  for (const Thread& thread : threads_) {
    const std::string what = what_it_does(thread);
    std::size_t group = 0;
    while (group < groups.size() && groups[group].what != what) ++group;
    if (group == groups.size()) groups.push_back({what, thread.number, 0});
    ++groups[group].count;
  }
  std::string message = "block " + triple(blockIdx) + ": threads wait for others that do not come";
  const char* separator = ": ";
  for (const Group& group : groups) {
    message += separator + std::to_string(group.count) + " (the first is " +
               std::to_string(group.first) + ") " + group.what;
    separator = "; ";
  }
  return message;
}

}  // namespace tessera::emulation
