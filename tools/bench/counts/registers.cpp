#include "tools/bench/counts/registers.h"

#include <cxxabi.h>

#include <cstdlib>
#include <istream>
#include <string_view>

#include "tools/bench/counts/kernel_label.h"

namespace tessera {
namespace {

std::string demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

/// The text behind `key`; empty if the line lacks it.
std::string after(const std::string& line, std::string_view key) {
  const auto at = line.find(key);
  return at == line.npos ? "" : line.substr(at + key.size());
}

}  // namespace

std::string kernel_instance(const std::string& name) {
  const std::string whole = name.substr(0, name.find(" [clone"));
  if (whole.empty() || whole.back() != ')') return whole;
  int depth = 0;
  for (std::size_t i = whole.size(); i-- > 0;) {
    if (whole[i] == ')') ++depth;
    if (whole[i] == '(' && --depth == 0) return whole.substr(0, i);
  }
  return whole;
}

Registers read_registers(std::istream& usage) {
  Registers registers;
  std::string line, operation, instance;
  bool is_sm90 = false;
  while (std::getline(usage, line)) {
    if (line.starts_with("File ")) operation = operation_of(line);
    if (line.starts_with("arch = ")) is_sm90 = line.starts_with("arch = sm_90");
    if (std::string name = after(line, "Function "); !name.empty()) {
      name.erase(name.find_last_not_of(": ") + 1);
      instance = kernel_instance(demangled(name));
    }
    const std::string count = after(line, "REG:");
    if (is_sm90 && !count.empty()) registers[operation][instance] = std::atoi(count.c_str());
  }
  return registers;
}

int registers_of(const Registers& registers, const std::string& operation,
                 const std::string& instance) {
  const bool in_all = operation == "cuda" || operation == "elementwise";
  for (const auto& [name, instances] : registers) {
    if (!in_all && name != operation) continue;
    if (const auto found = instances.find(instance); found != instances.end()) {
      return found->second;
    }
  }
  return 0;
}

}  // namespace tessera
