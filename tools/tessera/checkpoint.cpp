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
  bool ema = false;
};

Command add_command(Command& group, const std::string& name, const std::string& description,
                    const std::shared_ptr<Options>& options, bool writes) {
  Command command = group.subcommand(name, description);
  command.option("path", options->path, "A checkpoint, or a run folder").required().type("PATH");
  if (writes) command.option("--out", options->out, "A folder to write").required();
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

void add_checkpoint(Command& app) {
  Command group = app.subcommand("checkpoint", "List, verify and convert checkpoints.");
  const auto options = std::make_shared<Options>();
  add_command(group, "list", "Print a line for each checkpoint.", options, false).runs([options] {
    std::cout << checkpoint_table(options->path) << std::flush;
  });
  add_command(group, "verify", "Read every byte and compare the checksums.", options, false)
      .runs([options] { verify(options->path); });
  add_command(group, "consolidate", "Write the newest as one file of whole tensors.", options, true)
      .runs([options] {
        std::cout << consolidate_checkpoint(options->path, options->out).string() << std::endl;
      });
  Command command = add_command(
      group, "export", "Write the newest one's model as a Hugging Face folder.", options, true);
  command.flag("--ema", options->ema, "The averages of train.ema instead of the weights");
  command.runs([options] { export_checkpoint(options->path, options->out, options->ema); });
}

}  // namespace tessera
