#include "tools/bench/report.h"

#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/context.h"
#include "runtime/file.h"
#include "tools/train/log_file.h"

namespace tessera {
namespace {

std::string host_name() {
  std::array<char, 256> name{};  // the last byte stays zero
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

nlohmann::ordered_json new_report(std::string_view program) {
  return {{"program", program},
          {"time", utc_now()},
          {"host", host_name()},
          {"device", to_string(context().device())},
          {"ranks", context().world_size()},
          {"threads", context().threads().size()}};
}

void write_report(const std::filesystem::path& path, const nlohmann::ordered_json& report) {
  if (!path.empty()) write_file_atomically(path, report.dump(2) + "\n");
}

}  // namespace tessera
