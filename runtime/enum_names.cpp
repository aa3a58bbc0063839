#include "runtime/enum_names.h"

#include "runtime/check.h"

namespace tessera {

void fail_unknown_name(std::string_view kind, std::string_view name,
                       std::initializer_list<std::string_view> names) {
  std::string choices;
  for (const std::string_view choice : names) {
    const bool last = &choice == names.end() - 1;
    if (!choices.empty()) choices += last ? " or " : ", ";
    choices += choice;
  }
  fail("unknown {} '{}': choose {}", kind, name, choices);
}

}  // namespace tessera
