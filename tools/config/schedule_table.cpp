#include "tools/config/schedule_table.h"

#include "tools/config/pair_list.h"
#include "tools/config/section_keys.h"

namespace tessera {

Key schedule_table_key(std::string name, std::vector<ScheduleStage>& table,
                       std::string documentation) {
  const PairForm<ScheduleStage> form = {
      .list = "a list of [step, factor] such as [[1, 1], [100, 0.5]]",
      .pair = "a stage has a step from 1 on and a factor from 0 on",
      .read =
          [](ScheduleStage& stage, const std::string& step, const std::string& factor) {
            return whole_number_key("step", stage.step, 1, kMostSteps, "").parse(step) &&
                   number_key("factor", stage.factor, kFromZero, "").parse(factor);
          },
      .follows = [](const auto& before, const auto& stage) { return before.step < stage.step; },
      .rule = "the steps of a table rise",
      .text = [](const auto& stage) { return fmt::format("[{}, {}]", stage.step, stage.factor); }};
  return pair_list_key(std::move(name), table, form, std::move(documentation));
}

}  // namespace tessera
