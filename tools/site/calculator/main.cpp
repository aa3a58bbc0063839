// `tessera plan` alone, compiled to WebAssembly for the book's calculator.

#include "tools/program/command_line.h"
#include "tools/tessera/commands.h"

int main(int count, char** arguments) {
  tessera::Command app("tessera", "Predicts a training run");
  tessera::add_plan(app);
  return tessera::run_main(app, count, arguments, [] { return 0; });
}
