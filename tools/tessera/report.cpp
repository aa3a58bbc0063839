#include "tools/report/report.h"

#include <iostream>
#include <memory>

#include "runtime/file.h"
#include "tools/tessera/commands.h"

namespace tessera {

void add_report(Command& app) {
  struct Options {
    std::vector<std::filesystem::path> runs;
    std::filesystem::path out;
  };
  Command command =
      app.subcommand("report", "Write a page with charts of runs; a browser opens it.");
  const auto options = std::make_shared<Options>();
  command.option("runs", options->runs, "Run folders, drawn over each other")
      .required()
      .type("RUN");
  command.option("--out", options->out, "The HTML file to write").required().type("FILE");
  command.runs([options] {
    write_file_atomically(options->out, report_page(options->runs));
    std::cout << "wrote " << options->out.string() << std::endl;
  });
}

}  // namespace tessera
