// ProcessTree: commands and all processes below them, which end together.
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
  using Command = std::vector<std::string>;

  /// Starts commands, the program's path first. Each has a process group of its own, so that a
  /// terminal's Ctrl-C does not reach it, and reads nothing. It gets SIGTERM if this process dies.
  /// Its standard output and errors go to the file `output`, or to those of this process. Raises
  /// Error if one cannot be started.
  explicit ProcessTree(const std::vector<Command>& commands, const std::string& output = {});
  explicit ProcessTree(const Command& command, const std::string& output = {})
      : ProcessTree(std::vector<Command>{command}, output) {}
  /// Ends the whole tree.
  ~ProcessTree();
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  /// The status of the first command that has failed, as shells report it (128 + S after signal S);
  /// 0 once all have ended without failure.
  std::optional<int> poll();
  /// Whether there are processes below the commands and all have ended: their statuses are not taken.
  bool leaves_zombies() const;
  /// Sends a signal to the commands alone.
  void signal(int number) const;
  /// Sends SIGKILL to all processes of the tree, and waits until they are gone.
  void kill();

 private:
  struct Process {
    pid_t id;
    std::optional<int> status = std::nullopt;
  };

  ProcessTree();

  std::vector<Process> processes_;
  std::optional<int> failure_;  // the status of the first that failed
};

/// "SIGKILL" of 9.
std::string name_of_signal(int number);

}  // namespace tessera
