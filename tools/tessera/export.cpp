#include "tools/export/export.h"

#include <iostream>
#include <memory>
#include <string>

#include "tools/tessera/commands.h"

namespace tessera {

void add_export(Command& app) {
  struct Options {
    ExportOptions model;
    std::string dtype;
  };
  Command command = app.subcommand("export", "Write a model as a folder that Transformers loads.");
  const auto options = std::make_shared<Options>();
  command
      .option("--model", options->model.model,
              "A run folder, a Hugging Face model folder, or org/name in the hub's cache")
      .required()
      .type("DIR");
  command
      .option("--adapter", options->model.adapter,
              "An adapter on the model: a folder of PEFT, or a run that has trained one")
      .type("DIR");
  command.flag("--merge", options->model.merge,
               "Write the model with the adapter added to its weights, not the adapter alone");
  command.option("--out", options->model.out, "The folder to write").required().type("DIR");
  command.option("--dtype", options->dtype, "bf16 or f32; as stored by default")
      .one_of({"bf16", "f32"});
  command.option("--file-bytes", options->model.file_bytes, "The most bytes of tensors in one file")
      .positive()
      .shows_default();
  command.runs([options] {
    if (!options->dtype.empty()) options->model.dtype = dtype_from_name(options->dtype);
    const std::string warning = export_model(options->model);
    if (!warning.empty()) std::cerr << "warning: " << warning << '\n';
    std::cout << "wrote " << options->model.out.string() << '\n';
  });
}

}  // namespace tessera
