// The program `tessera`. Its commands are listed in tools/tessera/program.cpp.
#include <string>
#include <vector>

#include "tools/tessera/commands.h"
#include "tools/tessera/startup.h"

int main(int count, char** arguments) {
  tessera::open_standard_descriptors();
  return tessera::run_program(std::vector<std::string>(arguments + 1, arguments + count));
}
