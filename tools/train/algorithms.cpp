#include "tools/train/algorithms.h"

#include <nlohmann/json.hpp>

#include "kernels/matmul/measured.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "tools/train/gather.h"

namespace tessera {

using Json = nlohmann::ordered_json;

std::string algorithms_text(Communicator& world) {
  const MeasuredAlgorithms own = measured_algorithms();
  Json ranks = Json::array();
  const Json here = {{"made_by", own.made_by}, {"choices", own.choices}};
  for (const std::string& rank : gather_texts(here.dump(), world)) {
    ranks.push_back(Json::parse(rank));
  }
  return Json{{"ranks", ranks}}.dump(2) + "\n";
}

std::string use_algorithms(std::string_view text, int rank) {
  const nlohmann::json all = parse_json(text);
  const nlohmann::json& ranks = all.at("ranks");
  check(ranks.is_array() && !ranks.empty(), "it lists the algorithms of no rank");
  const nlohmann::json& own = ranks[static_cast<std::size_t>(rank) % ranks.size()];
  const MeasuredAlgorithms algorithms = {
      .made_by = own.at("made_by").get<std::string>(),
      .choices = own.at("choices").get<std::map<std::string, std::string>>()};
  if (use_measured_algorithms(algorithms)) return "";
  return fmt::format("the algorithms of matrix products were measured by {}, and this is {}",
                     algorithms.made_by, measured_algorithms().made_by);
}

}  // namespace tessera
