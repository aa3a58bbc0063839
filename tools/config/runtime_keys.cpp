#include "tools/config/section_keys.h"

namespace tessera {
namespace {

Key device_key(std::string name, std::optional<Device>& field, std::string documentation) {
  using Choice = std::optional<Device>;
  const auto parse = [](std::string_view text) -> std::optional<Choice> {
    if (text == "auto") return std::make_optional<Choice>();
    const std::optional<Device> device = parse_device(text);
    if (!device) return std::nullopt;
    return std::make_optional<Choice>(*device);
  };
  const auto write = [](const std::optional<Device>& device) {
    return device ? to_string(*device) : "auto";
  };
  return form_key(std::move(name), field, "auto, cpu, cuda or a GPU by number such as cuda:1",
                  parse, write, std::move(documentation));
}

Key compute_dtype_key(std::string name, ComputeDtype& field, std::string documentation) {
  static constexpr std::string_view kNames[] = {"f32", "bf16", "f16", "fp8"};
  const auto from_name = [](std::string_view text) -> ComputeDtype {
    return text == "fp8" ? ComputeDtype::eight_bits() : ComputeDtype(dtype_from_name(text));
  };
  const auto to_name = [](const ComputeDtype& dtype) { return name_of(dtype); };
  return name_key(std::move(name), field, kNames, from_name, to_name, std::move(documentation));
}

}  // namespace

std::vector<Key> runtime_keys(RuntimeConfig& runtime) {
  return {
      device_key("runtime.device", runtime.device,
                 "Where the model runs. `auto`: on the first GPU, if this build has the CUDA "
                 "backend and the machine a GPU, otherwise on the CPU. With several ranks a GPU is "
                 "the first rank's; the next ranks have the next GPUs, and then the first ones "
                 "again."),
      whole_number_key("runtime.ranks", runtime.ranks, 0, 1024,
                       "Ranks: threads of one process, or with NCCL a process for each GPU; "
                       "`tessera train --ranks N` sets it. 0 = 1 rank; under `mpirun -np N "
                       "tessera train`, one per process."),
      whole_number_key("runtime.threads", runtime.threads, 0, 4096,
                       "Threads per rank; 0 = a machine's cores shared among its ranks. Results do "
                       "not depend on it."),
      flag_key(
          "runtime.pin", runtime.pin,
          "CPUs: bind each thread of each rank to one core, among the cores that the process "
          "has. For a machine that does nothing else: two runs would take the same cores, and a "
          "bound thread waits for its core while others are idle."),
      flag_key(
          "runtime.graph", runtime.graph,
          "GPUs: the first step runs as always, the second is captured as a CUDA graph, and each "
          "later step is one launch of it, with the same bits. For models and micro-batches so "
          "small that a GPU waits for its host."),
      flag_key(
          "runtime.overlap_update", runtime.overlap_update,
          "The optimizer's update runs next to the following forward pass, where each unit waits "
          "for its own part alone, with the same bits. On a GPU it takes what the pass leaves "
          "free; on the CPU a thread makes it. Not with muon, `runtime.graph` or "
          "`sharding.offload`; a step of `train.watch` is updated before the next pass."),
      compute_dtype_key("runtime.compute_dtype", runtime.compute_dtype,
                        "The dtype that parameters are gathered and computed with. The masters' "
                        "dtype is `optimizer.master_dtype`; f16 comes with dynamic loss scaling. "
                        "`fp8`: bf16, and the factors of the layers' products have 8 bits with "
                        "scales; embeddings, head, routers, norms and attention stay in bf16."),
      fp8_dtype_key(
          "runtime.fp8_gradients", runtime.fp8_gradients,
          "fp8: the format of gradients in products, of more range or more precision. Inputs "
          "and weights are e4m3."),
      choice_key(
          "runtime.fp8_scales", runtime.fp8_scales,
          "fp8: the numbers that share a scale. `tensor`: all of a tensor, and the scale follows "
          "earlier steps. `blocks`: 128 along the depth of a product, and 128 x 128 of a weight, "
          "with the scale of these numbers themselves; weights are gathered in bf16. `blocks` is "
          "not for models with experts."),
      whole_number_key("runtime.fp8_history", runtime.fp8_history, 1, 1024,
                       "fp8 with scales of tensors: the steps whose largest magnitude a scale "
                       "follows."),
      choice_or_auto_key("runtime.isa", runtime.isa,
                         "The instruction set of the CPU's kernels; auto = the best that the CPU "
                         "has. f32 results do not depend on it; those of bf16 products do."),
  };
}

std::vector<Key> kernels_keys(KernelsConfig& kernels) {
  return {
      choice_key("kernels.attention", kernels.attention,
                 "The attention kernels of a GPU. `tessera`: this project's. `cudnn`: cuDNN's, if "
                 "the build has it (bf16 or f16; heads of up to 128 channels, a multiple of 8)."),
      choice_key("kernels.cudnn_order", kernels.cudnn_order,
                 "The order in which cuDNN's attention adds gradients: the same in every run, or "
                 "any, which is faster and does not repeat its bits."),
      choice_key("kernels.matmul", kernels.matmul,
                 "The matrix products of the CPU: this project's, or OpenBLAS's, to compare with."),
      choice_key("kernels.cublaslt", kernels.cublaslt,
                 "The algorithms of a GPU's matrix products: the first that cuBLASLt suggests, or "
                 "the fastest of eight by measurement. Checkpoints keep the measured ones, so that "
                 "a run that continues has the same bits."),
      choice_key("kernels.swiglu", kernels.swiglu,
                 "A gated feed-forward layer on a GPU of architecture 9.0, in 16 bits. `epilogue`: "
                 "this project's products apply SwiGLU, and its gradient, before they store. "
                 "`separate`: cuBLASLt's products, then SwiGLU kernels. `auto`: `separate` from "
                 "4,096 channels on. Experts always use `epilogue` forward."),
      choice_key(
          "kernels.gelu", kernels.gelu,
          "GELU of a feed-forward layer on a GPU of architecture 9.0, in 16 bits. `library`: "
          "in the epilogues of cuBLASLt's products. `own`: in this project's products, which "
          "also sum the bias's gradient; no GPU has compared them yet."),
      whole_number_key(
          "kernels.head_chunk", kernels.head_chunk, 0, std::int64_t{1} << 20,
          "Tokens whose logits the head and its loss compute at a time; 0 = 1,024 on a CPU and "
          "4,096 on a GPU. More take more workspace, which `tessera plan` shows, and read and "
          "write the gradient of the head's weight less often. Bits depend on this number."),
      flag_key(
          "kernels.early_launch", kernels.early_launch,
          "On a GPU of architecture 9.0 or later a kernel of this project starts while the one "
          "ahead of it ends (programmatic dependent launch); no GPU has measured it yet."),
  };
}

}  // namespace tessera
