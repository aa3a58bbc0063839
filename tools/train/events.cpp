#include "tools/train/events.h"

#include <fmt/format.h>

namespace tessera {

double shortest(float value) {
  return std::stod(fmt::format("{}", value));
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
      {"resume", "After `start`: the run continues. `path` of the checkpoint."},
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
      {"rollback", "The run went back. `to`: the step of the checkpoint."},
      {"stop", "A signal has stopped the run. `signal`."},
      {"end", "The run is complete. `path` of the model."},
  };
  return events;
}

}  // namespace tessera
