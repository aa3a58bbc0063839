#include "runtime/emulation/device/function_name.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

namespace tessera::emulation {
namespace {

/// The address that the program was loaded at, which its symbols count from.
std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  const auto take_first = [](dl_phdr_info* info, std::size_t, void* result) {
    *static_cast<std::uintptr_t*>(result) = info->dlpi_addr;
    return 1;  // the program itself comes first
  };
  dl_iterate_phdr(take_first, &address);
  return address;
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

// Kernels are local functions, which dladdr does not know: the file's own table has them.
std::map<std::uintptr_t, std::string> read_symbols() {
  std::map<std::uintptr_t, std::string> symbols;
  std::ifstream stream("/proc/self/exe", std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  if (file.size() < sizeof(Elf64_Ehdr) || file.compare(0, SELFMAG, ELFMAG) != 0) return symbols;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file.data() + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* names = file.data() + sections[sections[i].sh_link].sh_offset;
    const auto* begin = reinterpret_cast<const Elf64_Sym*>(file.data() + sections[i].sh_offset);
    const auto* end = begin + sections[i].sh_size / sizeof(Elf64_Sym);
    for (const auto* symbol = begin; symbol != end; ++symbol) {
      if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_value == 0) continue;
      symbols.emplace(symbol->st_value, names + symbol->st_name);
    }
  }
  return symbols;
}

}  // namespace

std::string function_name(const void* function) {
  static const std::map<std::uintptr_t, std::string> symbols = read_symbols();
  const auto found = symbols.find(reinterpret_cast<std::uintptr_t>(function) - load_address());
  if (found != symbols.end()) return demangled(found->second.c_str());
  char text[32];
  std::snprintf(text, sizeof text, "%p", function);
  return text;
}

}  // namespace tessera::emulation
