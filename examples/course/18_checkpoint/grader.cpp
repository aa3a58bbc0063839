// Grades a checkpoint with files that crash before every call, and keep any part of the unsynced bytes.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <vector>

#include "examples/course/18_checkpoint/checkpoint.h"
#include "examples/course/grader.h"

namespace tessera::course {
namespace {

struct Crash {};

/// A crash leaves all unsynced bytes or half of them or none, and the last renames or not.
struct Fate {
  enum class Bytes { all, half, none } bytes = Bytes::all;
  bool renames = true;
};

constexpr Fate kFates[] = {{Fate::Bytes::all, true},   {Fate::Bytes::half, true},
                           {Fate::Bytes::none, true},  {Fate::Bytes::all, false},
                           {Fate::Bytes::half, false}, {Fate::Bytes::none, false}};

class Disk final : public Files {
 public:
  /// Crashes before this call; -1: never.
  int crash_before = -1;
  std::vector<std::string> calls;

  void write(const std::string& name, const std::string& bytes) override {
    call("write " + name);
    // A file that has a name on the disk is emptied there.
    auto& file = names_[name];
    if (file == nullptr) file = std::make_shared<File>();
    file->bytes = bytes;
    file->synced = false;
  }
  void sync(const std::string& name) override {
    call("sync " + name);
    const auto file = names_.find(name);
    if (file == names_.end())
      throw std::runtime_error("sync of a file that does not exist: " + name);
    file->second->on_disk = file->second->bytes;
    file->second->synced = true;
  }
  void rename(const std::string& from, const std::string& to) override {
    call("rename " + from + " to " + to);
    const auto file = names_.find(from);
    if (file == names_.end())
      throw std::runtime_error("rename of a file that does not exist: " + from);
    names_[to] = file->second;
    names_.erase(from);
  }
  void sync_folder() override {
    call("sync_folder");
    names_on_disk_ = names_;
  }
  std::optional<std::string> read(const std::string& name) override {
    const auto file = names_.find(name);
    return file == names_.end() ? std::nullopt : std::optional(file->second->bytes);
  }

  /// The disk after a crash, mounted again.
  void restart(const Fate& fate) {
    if (!fate.renames) {
      // New files that never had another name may keep theirs: creation is no rename.
      names_ = names_on_disk_;
    }
    for (auto& [name, file] : names_) {
      if (!file->synced) {
        const std::size_t whole = file->bytes.size();
        const std::size_t kept = fate.bytes == Fate::Bytes::all    ? whole
                                 : fate.bytes == Fate::Bytes::half ? whole / 2
                                                                   : 0;
        file->bytes.resize(kept);
      }
      file->on_disk = file->bytes;
      file->synced = true;
    }
    names_on_disk_ = names_;
    crash_before = -1;
    calls.clear();
  }

 private:
  struct File {
    std::string bytes, on_disk;
    bool synced = true;
  };

  void call(std::string what) {
    if (static_cast<int>(calls.size()) == crash_before) throw Crash();
    calls.push_back(std::move(what));
  }

  std::map<std::string, std::shared_ptr<File>> names_, names_on_disk_;
};

std::string state_of(int number) {
  return fmt::format("state {}: {}", number, std::string(1000, static_cast<char>('a' + number)));
}

std::string described(const std::optional<std::string>& state) {
  if (!state) return "no state";
  for (int number = 0; number < 5; ++number) {
    if (*state == state_of(number)) return fmt::format("state {}", number);
    if (!state->empty() && state_of(number).starts_with(*state)) {
      return fmt::format("a part of state {}", number);
    }
  }
  return state->empty() ? "an empty state" : "bytes that were never saved";
}

std::string wrong_round_trip() {
  Disk disk;
  if (load(disk)) return "load finds a state before any was saved";
  for (int number = 0; number < 3; ++number) {
    save(disk, state_of(number));
    const std::optional<std::string> found = load(disk);
    if (found != state_of(number)) {
      return fmt::format("after the save of state {} load finds {}", number, described(found));
    }
  }
  return "";
}

/// Saves states 0 and 1, and state 2 with a crash before one of its calls.
std::string wrong_after_crash() {
  for (int crash = 0;; ++crash) {
    for (const Fate& fate : kFates) {
      Disk disk;
      save(disk, state_of(0));
      save(disk, state_of(1));
      disk.restart({});
      disk.crash_before = crash;
      bool crashed = false;
      std::string last = "its begin";
      try {
        save(disk, state_of(2));
      } catch (const Crash&) {
        crashed = true;
      }
      if (!crashed) return "";
      if (!disk.calls.empty()) last = disk.calls.back();
      disk.restart(fate);
      const std::optional<std::string> found = load(disk);
      if (found == state_of(1) || found == state_of(2)) continue;
      return fmt::format(
          "a crash after {} leaves {}: the old state must be whole until the new one "
          "is, and on the disk",
          last, described(found));
    }
  }
}

/// A crash after a save has returned: the state is there in every fate.
std::string wrong_after_return() {
  for (const Fate& fate : kFates) {
    Disk disk;
    save(disk, state_of(0));
    disk.restart({});
    save(disk, state_of(1));
    const std::string last = disk.calls.empty() ? "nothing" : disk.calls.back();
    disk.restart(fate);
    const std::optional<std::string> found = load(disk);
    if (found == state_of(1)) continue;
    return fmt::format(
        "save has returned after {}, and then the power fails: load finds {}. Which "
        "of bytes and names are on the disk?",
        last, described(found));
  }
  return "";
}

/// A crash, and a save after it: leftovers of the first must not disturb the second.
std::string wrong_after_leftovers() {
  for (int crash = 0;; ++crash) {
    for (const Fate& fate : kFates) {
      Disk disk;
      save(disk, state_of(1));
      disk.restart({});
      disk.crash_before = crash;
      bool crashed = false;
      try {
        save(disk, state_of(2));
      } catch (const Crash&) {
        crashed = true;
      }
      if (!crashed) return "";
      disk.restart(fate);
      save(disk, state_of(3));
      const std::optional<std::string> found = load(disk);
      if (found == state_of(3)) continue;
      return fmt::format(
          "after a crash and another save load finds {}: leftovers of the first save "
          "are taken for a state",
          described(found));
    }
  }
}

}  // namespace
}  // namespace tessera::course

int main() {
  using namespace tessera::course;
  Grader grader;
  grader.run("round trip", wrong_round_trip);
  grader.run("crash during a save", wrong_after_crash);
  grader.run("crash after a save", wrong_after_return);
  grader.run("save after a crash", wrong_after_leftovers);
  return grader.status();
}
