// ProcessTree: a command and all processes below it, which end together.
//
// A process has one tree at a time: until the tree is destroyed it adopts the orphans of the tree, and all
// processes below it count as the tree's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// The processes below `process`, children before their children.
std::vector<pid_t> descendants_of(pid_t process);

/// Whether a process has ended. A zombie has.
bool has_ended(pid_t process);

class ProcessTree {
 public:
  /// Starts a command, the program's path first. It has a process group of its own, so that a
  /// terminal's Ctrl-C does not reach it, and reads nothing. It gets SIGTERM if this process dies.
  /// Its standard output and errors go to the file `output`, or to those of this process. Raises
  /// Error if it cannot be started.
  explicit ProcessTree(const std::vector<std::string>& command, const std::string& output = {});
  /// Ends the whole tree.
  ~ProcessTree();
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  /// The status of the command as shells report it (128 + S after signal S), once it has ended.
  std::optional<int> poll();
  /// Whether there are processes below the command and all have ended: it does not take their statuses.
  bool leaves_zombies() const;
  /// Sends a signal to the command alone.
  void signal(int number) const;
  /// Sends SIGKILL to all processes of the tree, and waits until they are gone.
  void kill();

 private:
  pid_t process_ = -1;
  std::optional<int> status_;
};

/// "SIGKILL" of 9.
std::string name_of_signal(int number);

}  // namespace tessera
