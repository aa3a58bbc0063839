#include "tools/config/batch_ramp.h"

#include "tools/config/pair_list.h"
#include "tools/config/section_keys.h"

namespace tessera {

Key batch_ramp_key(std::string name, std::vector<BatchStage>& ramp, std::string documentation) {
  const PairForm<BatchStage> form = {
      .list = "a list of [steps, rows] such as [[100, 8], [200, 16]]",
      .pair = "a stage has steps and rows from 1 on",
      .read =
          [](BatchStage& stage, const std::string& steps, const std::string& rows) {
            return whole_number_key("steps", stage.batches, 1, kMostSteps, "").parse(steps) &&
                   whole_number_key("rows", stage.rows, 1, kMostTokens, "").parse(rows);
          },
      .follows = [](const auto& before, const auto& stage) { return before.rows < stage.rows; },
      .rule = "the rows of a ramp rise",
      .text = [](const auto& stage) { return fmt::format("[{}, {}]", stage.batches, stage.rows); }};
  return pair_list_key(std::move(name), ramp, form, std::move(documentation));
}

}  // namespace tessera
