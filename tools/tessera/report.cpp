#include "tools/report/report.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "runtime/file.h"
#include "tools/tessera/commands.h"

namespace tessera {

void add_report(CLI::App& app) {
  struct Options {
    std::vector<std::filesystem::path> runs;
    std::filesystem::path out;
  };
  CLI::App* command =
      app.add_subcommand("report", "Write a page with charts of runs; a browser opens it.");
  const auto options = std::make_shared<Options>();
  command->add_option("runs", options->runs, "Run folders, drawn over each other")
      ->required()
      ->type_name("RUN");
  command->add_option("--out", options->out, "The HTML file to write")
      ->required()
      ->type_name("FILE");
  command->callback([options] {
    write_file_atomically(options->out, report_page(options->runs));
    std::cout << "wrote " << options->out.string() << std::endl;
  });
}

}  // namespace tessera
