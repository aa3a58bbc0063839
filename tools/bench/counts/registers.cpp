#include "tools/bench/counts/registers.h"

#include <algorithm>
#include <istream>

namespace tessera {

std::map<std::string, int> read_registers(std::istream& usage) {
  constexpr std::string_view kFunction = "Function ", kRegisters = "REG:";
  std::map<std::string, int> registers;
  std::string line, function;
  while (std::getline(usage, line)) {
    if (const auto at = line.find(kFunction); at != line.npos) {
      function = line.substr(at + kFunction.size());
      function = function.substr(0, function.find_last_not_of(": ") + 1);
    }
    if (const auto at = line.find(kRegisters); at != line.npos && !function.empty()) {
      int& most = registers[function];
      most = std::max(most, std::atoi(line.c_str() + at + kRegisters.size()));
    }
  }
  return registers;
}

int registers_of(const std::map<std::string, int>& registers, const std::string& label) {
  const std::string name = label.substr(label.find('/') + 1);
  const std::string mangled = std::to_string(name.size()) + name;
  int most = 0;
  for (const auto& [function, count] : registers) {
    if (function.find(mangled) != function.npos) most = std::max(most, count);
  }
  return most;
}

}  // namespace tessera
