#include "tools/export/export.h"

#include <iostream>
#include <memory>
#include <string>

#include "runtime/check.h"
#include "tools/export/gguf.h"
#include "tools/tessera/commands.h"

namespace tessera {
namespace {

std::string write_folder(ExportOptions options, const std::string& dtype) {
  check(dtype != "f16" && dtype != "q8_0",
        "--dtype {} is for --format gguf; folders are bf16, f32 or fp8", dtype);
  if (!dtype.empty()) options.dtype = dtype == "fp8" ? DType::e4m3 : dtype_from_name(dtype);
  return export_model(options);
}

std::string write_gguf_file(const ExportOptions& options, const std::string& dtype) {
  check(options.adapter.empty() && !options.merge,
        "--format gguf takes a model; write one with --merge first");
  check(dtype != "fp8", "--dtype fp8 is for --format hf; files for llama.cpp have q8_0");
  GgufOptions gguf = {.model = options.model, .out = options.out};
  if (!dtype.empty()) gguf.type = enum_from_name<GgufType>(dtype);
  return export_gguf(gguf);
}

}  // namespace

void add_export(Command& app) {
  struct Options {
    ExportOptions model;
    std::string format = "hf";
    std::string dtype;
    bool ema = false;
  };
  Command command = app.subcommand(
      "export", "Write a model as a folder that Transformers loads, or a file for llama.cpp.");
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
  command.option("--out", options->model.out, "The folder or file to write")
      .required()
      .type("PATH");
  command.option("--format", options->format, "hf: a folder; gguf: one file")
      .one_of({"hf", "gguf"})
      .shows_default();
  command
      .option("--dtype", options->dtype,
              "fp8 for hf only, f16 and q8_0 for gguf only; as stored by default")
      .one_of({"bf16", "f32", "fp8", "f16", "q8_0"});
  command
      .option("--file-bytes", options->model.file_bytes, "hf: the most bytes of tensors in a file")
      .positive()
      .shows_default();
  command.flag("--ema", options->ema,
               "The averages of train.ema in the run's newest checkpoint, instead of the weights");
  command.runs([options] {
    ExportOptions& given = options->model;
    const auto write = [&](const std::filesystem::path& model) {
      given.model = model;
      return options->format == "gguf" ? write_gguf_file(given, options->dtype)
                                       : write_folder(given, options->dtype);
    };
    const std::string warning =
        options->ema ? export_averages(given.model, given.out, write) : write(given.model);
    if (!warning.empty()) std::cerr << "warning: " << warning << '\n';
    std::cout << "wrote " << options->model.out.string() << '\n';
  });
}

}  // namespace tessera
