#include "tools/bench/counts/emulated/count_norm.h"

#include "kernels/layer_norm/op.h"
#include "kernels/rms_norm/op.h"
#include "runtime/context.h"

namespace tessera {

StepWork count_norm_backward(const ReducedModel& model) {
  RankContext rank({.device = first_device(model.full().config.runtime)});
  const ContextGuard here(rank);
  const DataConfig& data = model.full().config.data;
  const std::int64_t N = data.batch_size * data.sequence_length, C = model.shape().width;
  const auto rows = [&] { return Tensor::zeros({N, C}, DType::bf16); };
  const Tensor dx = rows(), dy = rows(), dsum = rows(), sum = rows();
  const Tensor weight = Tensor::zeros({C}, DType::bf16);
  const Tensor dweight = Tensor::zeros({C}, DType::f32), dbias = Tensor::zeros({C}, DType::f32);
  const Tensor mean = Tensor::zeros({N}, DType::f32), rstd = Tensor::zeros({N}, DType::f32);
  context().compute_stream().synchronize();
  emulation::start_launch_list();
  if (model.shape().gated_mlp) {
    add_rms_norm_backward(dx, dweight, dy, dsum, sum, weight, rstd, Accumulate::no);
  } else {  // GPT-2
    add_layer_norm_backward(dx, {}, dweight, dbias, dy, dsum, sum, weight, mean, rstd,
                            Accumulate::no);
  }
  context().compute_stream().synchronize();
  StepWork backward;
  for (auto& [key, work] : summed(emulation::take_launch_list())) {
    backward[{StepPhase::backward, key.second}] = work;
  }
  return backward;
}

void take_norm_backward(StepWork& step, StepWork& layer, double layers, const StepWork& norm) {
  for (const auto& [key, once] : norm) {
    KernelWork &of_layer = layer.at(key), &of_step = step.at(key);
    const double launches = of_layer["launches"];
    for (std::size_t i = 0; i < once.counters.size(); ++i) {
      const double exact = launches * once.counters[i];
      of_step.counters[i] += layers * (exact - of_layer.counters[i]);
      of_layer.counters[i] = exact;
    }
  }
}

}  // namespace tessera
