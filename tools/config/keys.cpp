#include "tools/config/keys.h"

#include "tools/config/section_keys.h"

namespace tessera {

std::string_view Key::section() const {
  return std::string_view(name).substr(0, name.find('.'));
}

const std::vector<Section>& sections() {
  static const std::vector<Section> all = {
      {"model", "The model."},
      {"adapter", "Low-rank additions to a frozen model."},
      {"moe", "The routers of a mixture of experts."},
      {"data", "The tokens it is trained on."},
      {"optimizer", "How weights follow gradients."},
      {"sharding", "What each rank keeps in memory."},
      {"runtime", "The device and the precision."},
      {"kernels", "The choice of kernels."},
      {"train", "The length of the run, and its output."},
      {"distill", "The teacher's part of the loss, with `train.objective` distill."},
      {"preference", "The loss of pairs of answers, with `train.objective` dpo, ipo or simpo."},
      {"sample", "The texts that `train.sample_every` continues."},
  };
  return all;
}

std::vector<Key> keys_of(Config& config) {
  std::vector<Key> keys;
  for (const std::vector<Key>& group :
       {model_keys(config.model), adapter_keys(config.adapter), moe_keys(config.moe),
        data_keys(config.data), optimizer_keys(config.optimizer), sharding_keys(config.sharding),
        runtime_keys(config.runtime), kernels_keys(config.kernels), train_keys(config.train),
        distill_keys(config.distill), preference_keys(config.preference),
        sample_keys(config.sample)}) {
    keys.insert(keys.end(), group.begin(), group.end());
  }
  return keys;
}

}  // namespace tessera
