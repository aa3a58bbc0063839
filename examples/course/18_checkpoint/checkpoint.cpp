// A checkpoint: the bytes go to another name first, and one rename puts them in place.
#include "examples/course/18_checkpoint/checkpoint.h"

namespace tessera::course {

void save(Files& files, const std::string& state) {
  files.write("state.new", state);
  files.sync("state.new");
  files.rename("state.new", "state");
  files.sync_folder();
}

std::optional<std::string> load(Files& files) {
  return files.read("state");
}

}  // namespace tessera::course
