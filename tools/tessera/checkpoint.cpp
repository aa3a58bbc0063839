#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "tools/checkpoint/convert.h"
#include "tools/checkpoint/dcp_export.h"
#include "tools/checkpoint/dcp_import.h"
#include "tools/checkpoint/inspect.h"
#include "tools/config/find.h"
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

struct ConvertOptions {
  std::filesystem::path path;
  std::filesystem::path out;
  std::string config;
  std::vector<std::string> overrides;
  std::string names = "hf";
};

void convert(const ConvertOptions& given) {
  const bool reads = is_dcp_folder(given.path);
  check(!reads || !given.config.empty(),
        "{} is a folder of PyTorch; give --config FILE, the run that continues from it",
        given.path.string());
  check(reads || (given.config.empty() && given.overrides.empty()),
        "{} is no folder of PyTorch, so --config and keys are not used; leave them out",
        given.path.string());
  const std::vector<std::string> lines =
      reads ? import_dcp(given.path, find_config(given.config, given.overrides), given.out)
            : export_dcp(given.path, given.out, enum_from_name<DcpNames>(given.names));
  for (const std::string& line : lines) std::cout << line << '\n';
  std::cout << std::flush;
}

void add_convert(Command& group) {
  Command command = group.subcommand(
      "convert",
      "Write a folder of torch.distributed.checkpoint as a checkpoint, or the newest as one.");
  const auto options = std::make_shared<ConvertOptions>();
  command.option("path", options->path, "A folder with .metadata; or a checkpoint, or a run folder")
      .required()
      .type("PATH");
  command.option("overrides", options->overrides, "Keys to set after the file")
      .type("key.path=value");
  command.option("--out", options->out, "The run folder or folder of PyTorch to write").required();
  command
      .option("--config", options->config,
              "From PyTorch: the run that continues, a file of keys or a preset")
      .type("CONFIG");
  command
      .option("--names", options->names,
              "To PyTorch: names and layout of Transformers (hf) or torchtitan's Llama")
      .one_of({"hf", "torchtitan"})
      .shows_default();
  command.runs([options] { convert(*options); });
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
  add_convert(group);
}

}  // namespace tessera
