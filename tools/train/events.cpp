#include "tools/train/events.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera {

double shortest(float value) {
  return std::stod(fmt::format("{}", value));
}

nlohmann::ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

nlohmann::ordered_json finite_or_null(float value) {
  return std::isfinite(value) ? nlohmann::ordered_json(shortest(value)) : nlohmann::ordered_json();
}

std::string json_line(const RunEvent& event, double elapsed_s, const std::string& time) {
  nlohmann::ordered_json line = {{"event", event.name}, {"step", event.step}};
  line.update(event.fields);
  line["elapsed_s"] = std::stod(fmt::format("{:.3f}", elapsed_s));
  line["time"] = time;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

const std::vector<EventDescription>& run_events() {
  static const std::vector<EventDescription> events = {
      {"start",
       "A program begins to train. `model`, `parameters`, `strategy`, `mesh`: the axes of the "
       "ranks "
       "with their sizes, `ranks`, `device`, `dtype`, `threads`, `steps`, `tokens_per_step`, and "
       "`predicted`: bytes of memory by category and `bytes_sent` per step, of the rank with the "
       "most."},
      {"restart", "After `start`: `tessera launch` has started the run again. `reason`."},
      {"resume",
       "After `start`: the run continues. `path` of the checkpoint, and `batches` of the data that "
       "are done."},
      {"eval",
       "A measurement of the validation loss. `val_loss` or `val_loss_ema`, `sequences`, `ms` that "
       "it took."},
      {"sample",
       "The model has continued a text (`train.sample_every`). `prompt`, and `text`: the prompt "
       "and "
       "its continuation."},
      {"hellaswag",
       "The model has answered the questions of `data.hellaswag`. `right`, `questions`, `ms` that "
       "it took."},
      {"checkpoint", "A checkpoint has its name. `path`, `ms` since its step."},
      {"skip",
       "A step changed no parameter: loss or norm were not finite. `loss`, `gradient_norm`, and "
       "`reason`: `loss scale` or `not finite`."},
      {"fp8_cut",
       "`tensors` with numbers beyond the largest of 8 bits, which took their place. `tensor`: the "
       "one that was cut most, and `ratio`: its largest magnitude over that number."},
      {"spike",
       "A loss jumped (`train.keep_spikes`). `loss`, `mean_loss` of the steps before, and `path` "
       "of "
       "the kept batch."},
      {"watch",
       "The readings of a watched step (`train.watch`): `units`, and a list with a number for "
       "each: "
       "`gradient_norm`, `update_norm`, `weight_norm`, `update_ratio`, `largest_activation`, "
       "`attention_logit`, with experts `router_entropy`. null: the unit has none."},
      {"rollback",
       "The run went back. `to`: the step of the checkpoint, `batches` of the data that are done."},
      {"stop", "A signal has stopped the run. `signal`."},
      {"end", "The run is complete. `path` of the model."},
  };
  return events;
}

}  // namespace tessera
