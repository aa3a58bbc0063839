// Fuzz target: the manifest of a checkpoint, as `tessera checkpoint` and a resumed run read it.
//
// An input is the JSON object without "checksum"; the target adds the right one. So damage comes as far
// as the code behind the checksum. The other files of the checkpoint are in inputs/checkpoint/saved.
#include <span>

#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/file.h"
#include "sharding/comm/threads/threads.h"
#include "tests/fuzz/fuzz.h"
#include "tools/checkpoint/inspect.h"
#include "tools/config/parse.h"
#include "tools/train/resume.h"
#include "tools/train/run_state.h"

namespace tessera::fuzz {
namespace {

namespace fs = std::filesystem;

const fs::path& checkpoint() {
  static const fs::path path = [] {
    const fs::path made = folder() / "step-000002";
    fs::copy(fs::path(TESSERA_SOURCE_DIR) / "tests/fuzz/inputs/checkpoint/saved", made);
    return made;
  }();
  return path;
}

Config config() {
  const fs::path path = checkpoint() / kConfigFile;
  Config config = parse_config(read_text_file(path), path.string());
  config.train.dir = folder().path();
  return config;
}

/// The object with a checksum before its other entries.
std::string with_checksum(std::string_view object) {
  const std::string_view body = object.substr(object.starts_with('{') ? 1 : 0);
  return fmt::format("{{\"checksum\": \"{:08x}\",\n{}", crc32c(std::as_bytes(std::span(body))),
                     body);
}

void restore_from_checkpoint(const ResolvedConfig& run) {
  run_ranks({.ranks = 1, .threads = 1}, [&](Communicator& world) {
    TrainingSession session(run, world);
    const Restored restored = restore(session, checkpoint());
    check(restored.problem.empty(), "{}", restored.problem);
    require(restored.position.batches >= 0 && restored.sequences >= 0, "no count is negative");
  });
}

}  // namespace

bool accepts(std::string_view input) {
  enter_context();
  checkpoint();
  write_file("step-000002/manifest.json", with_checksum(input));
  static const ResolvedConfig run = resolve(config());
  reads([&] { check_resume(run.config); });
  reads([&] { checkpoint_table(checkpoint()); });
  const Verification verification = verify_checkpoints(checkpoint());
  for (const std::string& line : verification.lines) require_one_line(line);
  const bool restored = reads([&] { restore_from_checkpoint(run); });
  return restored && verification.damaged == 0;
}

}  // namespace tessera::fuzz
