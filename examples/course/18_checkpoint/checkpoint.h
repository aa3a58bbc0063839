// A checkpoint that a crash at any moment leaves readable.
#pragma once

#include <optional>
#include <string>

namespace tessera::course {

/// The files of one folder, as a system keeps them. A process may be killed, or the machine may lose
/// its power, before or after any of these calls. Then
///
///   - bytes that were written and not synced may be there, or half of them, or none
///   - a rename that was not followed by sync_folder() may have happened or not
class Files {
 public:
  virtual ~Files() = default;
  /// Creates or replaces a file. A file that exists is emptied first.
  virtual void write(const std::string& name, const std::string& bytes) = 0;
  /// After it the file's bytes survive a crash.
  virtual void sync(const std::string& name) = 0;
  /// Gives a file another name. A file that has this name is replaced, in one step.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// After it the names of all files survive a crash.
  virtual void sync_folder() = 0;
  /// The bytes of a file; no value if it does not exist.
  virtual std::optional<std::string> read(const std::string& name) = 0;
};

/// Saves a state in place of the one that was saved before. After it the state survives a crash.
void save(Files& files, const std::string& state);

/// The state that was saved last; if a crash interrupted that save, it or the one before. No value if
/// none was ever saved.
std::optional<std::string> load(Files& files);

}  // namespace tessera::course
