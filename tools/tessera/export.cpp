#include "tools/export/export.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "tools/tessera/commands.h"

namespace tessera {

void add_export(CLI::App& app) {
  struct Options {
    ExportOptions model;
    std::string dtype;
  };
  CLI::App* command =
      app.add_subcommand("export", "Write a model as a folder that Transformers loads.");
  const auto options = std::make_shared<Options>();
  command
      ->add_option("--model", options->model.model,
                   "A run folder, a Hugging Face model folder, or org/name in the hub's cache")
      ->required()
      ->type_name("DIR");
  command->add_option("--out", options->model.out, "The folder to write")
      ->required()
      ->type_name("DIR");
  command->add_option("--dtype", options->dtype, "bf16 or f32; as stored by default")
      ->check(CLI::IsMember({"bf16", "f32"}));
  command
      ->add_option("--file-bytes", options->model.file_bytes,
                   "The most bytes of tensors in one file")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->callback([options] {
    if (!options->dtype.empty()) options->model.dtype = dtype_from_name(options->dtype);
    const std::string warning = export_model(options->model);
    if (!warning.empty()) std::cerr << "warning: " << warning << '\n';
    std::cout << "wrote " << options->model.out.string() << '\n';
  });
}

}  // namespace tessera
