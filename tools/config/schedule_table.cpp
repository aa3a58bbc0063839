#include "tools/config/schedule_table.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "runtime/check.h"
#include "tools/config/key_types.h"
#include "tools/config/section_keys.h"
#include "tools/config/yaml_documents.h"

namespace tessera {
namespace {

constexpr const char* kForm = "a list of [step, factor] such as [[1, 1], [100, 0.5]]";

ScheduleStage read_stage(const YAML::Node& node, const NodePlace& place) {
  check(node.IsSequence() && node.size() == 2 && node[0].IsScalar() && node[1].IsScalar(),
        "{}: expected {}", place(node), kForm);
  std::int64_t step = 0;
  double factor = 0.0;
  const bool good = whole_number_key("step", step, 1, kMostSteps, "").parse(node[0].Scalar()) &&
                    number_key("factor", factor, kFromZero, "").parse(node[1].Scalar());
  check(good, "{}: a stage has a step from 1 on and a factor from 0 on; got [{}, {}]", place(node),
        node[0].Scalar(), node[1].Scalar());
  return {step, factor};
}

std::vector<ScheduleStage> read_table(const YAML::Node& list, const NodePlace& place) {
  std::vector<ScheduleStage> table;
  for (const YAML::Node& node : list) {
    table.push_back(read_stage(node, place));
    const std::size_t count = table.size();
    check(count == 1 || table[count - 2].step < table[count - 1].step,
          "{}: the steps of a table rise; {} follows {}", place(node), table[count - 1].step,
          table[count - 2].step);
  }
  return table;
}

std::string text_of(const std::vector<ScheduleStage>& table) {
  std::vector<std::string> stages;
  for (const ScheduleStage& stage : table) {
    stages.push_back(fmt::format("[{}, {}]", stage.step, stage.factor));
  }
  return stages.empty() ? "" : fmt::format("[{}]", fmt::join(stages, ", "));
}

}  // namespace

Key schedule_table_key(std::string name, std::vector<ScheduleStage>& table,
                       std::string documentation) {
  const auto parse = [](std::string_view text) {
    return parse_yaml_list<std::vector<ScheduleStage>>(
        text, [](const YAML::Node& list) { return read_table(list, place_in_text); });
  };
  Key key = form_key(std::move(name), table, kForm, parse, text_of, std::move(documentation));
  key.parse_list = [&table](const YAML::Node& list, const NodePlace& place) {
    table = read_table(list, place);
  };
  return key;
}

}  // namespace tessera
