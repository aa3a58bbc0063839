// The entries of bench_counts' report.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/bench/counts/emulated/step_work.h"
#include "tools/bench/counts/reduced_model.h"
#include "tools/bench/counts/roofline.h"

namespace tessera {

/// One entry for each kernel and phase: its counters and, for each GPU, its time at the data sheet's rates
/// and its expected time, with products at the sustained rate.
nlohmann::ordered_json kernel_entries(const StepWork& step, const TransformerShape& shape,
                                      const std::vector<Gpu>& gpus);

/// The launches of one more layer, the bytes of its own kernels (all but products, and libraries'
/// copies and fills), and the least possible bytes (layer_bytes.h).
nlohmann::ordered_json layer_entries(const StepWork& layer, const ReducedModel& model);

/// For each GPU: the step's time at the data sheet's rates, its expected time, and the model FLOP/s
/// utilization (MFU) that it implies; the MFU of forward and backward alone; and time and MFU with products
/// at the burst rate.
nlohmann::ordered_json sum_entries(const StepWork& step, const ReducedModel& model,
                                   const std::vector<Gpu>& gpus);

/// The efficiencies that the expected times of the step's kernels have, each with its source.
nlohmann::ordered_json efficiency_entries(const StepWork& step, const TransformerShape& shape,
                                          const Gpu& gpu);

/// The host's calls in a step, queued and with runtime.graph. Counted with one layer and with two, in
/// processes of their own: every layer adds as many.
nlohmann::ordered_json host_call_entries(const ReducedModel& model);

/// The counters of work that differ between an extrapolated and a counted step.
nlohmann::ordered_json check_entries(const StepWork& extrapolated, const StepWork& counted);

}  // namespace tessera
