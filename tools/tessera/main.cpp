// The program `tessera`. Its commands are listed in tools/tessera/program.cpp.
#include <string>
#include <vector>

#include "tools/program/process.h"
#include "tools/tessera/commands.h"

int main(int count, char** arguments) {
  tessera::start_process("tessera");
  return tessera::run_program(std::vector<std::string>(arguments + 1, arguments + count));
}
