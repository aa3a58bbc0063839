#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "runtime/check.h"
#include "tools/checkpoint/convert.h"
#include "tools/checkpoint/inspect.h"
#include "tools/tessera/commands.h"

namespace tessera {
namespace {

struct Options {
  std::filesystem::path path;
  std::filesystem::path out;
};

CLI::App* add_command(CLI::App& group, const std::string& name, const std::string& description,
                      const std::shared_ptr<Options>& options, bool writes) {
  CLI::App* command = group.add_subcommand(name, description);
  command->add_option("path", options->path, "A checkpoint, or a run folder")
      ->required()
      ->type_name("PATH");
  if (writes) command->add_option("--out", options->out, "A folder to write")->required();
  return command;
}

void verify(const std::filesystem::path& path) {
  const Verification result = verify_checkpoints(path);
  for (const std::string& line : result.lines) std::cout << line << '\n';
  std::cout << std::flush;
  check(result.damaged == 0, "{} of {} checkpoints are damaged", result.damaged,
        result.checkpoints);
}

}  // namespace

void add_checkpoint(CLI::App& app) {
  CLI::App* group = app.add_subcommand("checkpoint", "List, verify and convert checkpoints.");
  group->require_subcommand(1);
  const auto options = std::make_shared<Options>();
  add_command(*group, "list", "Print a line for each checkpoint.", options, false)
      ->callback([options] { std::cout << checkpoint_table(options->path) << std::flush; });
  add_command(*group, "verify", "Read every byte and compare the checksums.", options, false)
      ->callback([options] { verify(options->path); });
  add_command(*group, "consolidate", "Write the newest as one file of whole tensors.", options,
              true)
      ->callback([options] {
        std::cout << consolidate_checkpoint(options->path, options->out).string() << std::endl;
      });
  add_command(*group, "export", "Write the newest one's model as a Hugging Face folder.", options,
              true)
      ->callback([options] { export_checkpoint(options->path, options->out); });
}

}  // namespace tessera
