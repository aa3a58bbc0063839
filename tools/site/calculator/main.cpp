// `tessera plan` alone, compiled to WebAssembly for the book's calculator.
#include <CLI/CLI.hpp>

#include "tools/program/command_line.h"
#include "tools/tessera/commands.h"

int main(int count, char** arguments) {
  CLI::App app("Predicts a training run", "tessera");
  tessera::add_plan(app);
  return tessera::run_main(app, count, arguments, [] { return 0; });
}
