#include "runtime/enum_names.h"

#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {

std::string listed(std::span<const std::string_view> names) {
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 == names.size() ? " or " : ", ";
    list += names[i];
  }
  return list;
}

void fail_unknown_name(std::string_view kind, std::string_view name,
                       std::span<const std::string_view> names) {
  const std::string quoted = excerpt(name);  // the name may come from a file
  fail("unknown {} '{}': choose {}", kind, std::string_view(quoted).substr(1, quoted.size() - 2),
       listed(names));
}

void fail_unknown_value(std::string_view kind, long long number) {
  fail("{} has no value {}", kind, number);
}

}  // namespace tessera
