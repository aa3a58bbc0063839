#include "tools/train/preferences.h"

#include "kernels/add/op.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "tools/config/parse.h"

namespace tessera {

PreferenceMeans preference_means(const float* behind_loss, double loss_scale) {
  return {.accuracy = static_cast<double>(behind_loss[kPairAccuracy - 1]) / loss_scale,
          .chosen_reward = static_cast<double>(behind_loss[kChosenReward - 1]) / loss_scale,
          .rejected_reward = static_cast<double>(behind_loss[kRejectedReward - 1]) / loss_scale};
}

PreferenceLoss preference_loss_of(const Config& config) {
  const Objective objective = config.train.objective;
  const PreferenceConfig& preference = config.preference;
  return {.kind = objective == Objective::ipo     ? PreferenceKind::ipo
                  : objective == Objective::simpo ? PreferenceKind::simpo
                                                  : PreferenceKind::dpo,
          .beta = preference.beta,
          .label_smoothing = preference.label_smoothing,
          .margin = preference.margin,
          .nll = preference.nll};
}

RowObjective preference_objective(const PreferenceLoss& options, const Batch& batch, double scale,
                                  const Tensor& sums, const Tensor& sequences) {
  return [=](Out loss, Out factors, const Tensor& losses) {
    const CategoryScope category(Category::activations);
    const Shape& rows = batch.targets.shape();
    const Device device = losses.device();
    const auto here = [&](const Tensor& tensor) {
      if (tensor.device() == device) return tensor;
      const Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype());
      copy.copy_from(tensor);
      return copy;
    };
    const Tensor numbers = Tensor::empty({kPreferenceSums}, losses.dtype());
    preference_loss(numbers, factors.defined() ? factors.reshape(rows) : factors, sequences,
                    losses.reshape(rows), batch.targets, here(batch.document_starts),
                    batch.reference, options, scale);
    loss.copy_from(numbers.slice(0, 1));
    if (sums.defined()) add(sums, sums, numbers.slice(1, kPreferenceSums));
  };
}

void check_objective(const Config& config) {
  const Objective objective = config.train.objective;
  if (!compares_pairs(objective)) return;
  check_key(config, "train.objective", [&] {
    const std::string_view name = enum_name(objective);
    check(config.data.rows != RowKind::windows,
          "{} compares whole answers, and data.rows is windows; set data.rows=packed", name);
    check(
        config.sharding.context_parallel == 1 && config.sharding.grid == 0,
        "{} adds up whole answers, and sharding.context_parallel or sharding.grid cuts them; leave "
        "both out",
        name);
    check(!config.runtime.graph, "{} is not in a graph; set runtime.graph=false", name);
    const PreferenceConfig& preference = config.preference;
    check(objective != Objective::ipo ||
              (preference.label_smoothing == 0.0 && preference.margin == 0.0),
          "ipo has neither preference.label_smoothing nor preference.margin; leave them out");
  });
}

}  // namespace tessera
