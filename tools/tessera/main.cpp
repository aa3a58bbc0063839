// The program `tessera`. What it can do is listed in tools/tessera/program.cpp.
#include <string>
#include <vector>

#include "tools/tessera/commands.h"

int main(int count, char** arguments) {
  return tessera::run_program(std::vector<std::string>(arguments + 1, arguments + count));
}
