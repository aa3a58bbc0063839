#include "tools/config/section_keys.h"

#include <fmt/format.h>

#include "models/transformer_shape.h"
#include "tools/config/batch_ramp.h"
#include "tools/config/optimizer_groups.h"
#include "tools/config/schedule_table.h"
#include "tools/data/teacher_file.h"

namespace tessera {
namespace {

/// "10-12" or "10", of at most kMostProfiled steps.
std::optional<StepRange> parse_steps(std::string_view text) {
  constexpr std::int64_t kMostProfiled = 100;
  if (text.empty()) return StepRange();
  const std::size_t dash = text.find('-');
  const auto first = whole_number_from(text.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : whole_number_from(text.substr(dash + 1));
  const bool good = first && last && *first >= 1 && *first <= *last && *last <= kMostSteps &&
                    *last - *first < kMostProfiled;
  return good ? std::optional(StepRange{*first, *last}) : std::nullopt;
}

std::string steps_text(const StepRange& steps) {
  return steps.last == 0 ? "" : fmt::format("{}-{}", steps.first, steps.last);
}

}  // namespace

std::vector<Key> optimizer_keys(OptimizerConfig& optimizer) {
  return {
      choice_key("optimizer.name", optimizer.name,
                 "The update rule. `muon` is for matrices and stacks of experts; tables, norms and "
                 "biases then have adamw."),
      number_key("optimizer.learning_rate", optimizer.learning_rate, kFromZero,
                 "Learning rate after the warm-up."),
      choice_key("optimizer.schedule", optimizer.schedule,
                 "How the learning rate falls after the warm-up."),
      whole_number_key("optimizer.warmup_steps", optimizer.warmup_steps, 0, kMostSteps,
                       "Steps over which the learning rate rises linearly from zero."),
      whole_number_key("optimizer.decay_steps", optimizer.decay_steps, 0, kMostSteps,
                       "warmup_stable_decay: how many of the last steps decay. (linear and cosine "
                       "decay from the warm-up to the last step.)"),
      choice_key("optimizer.decay_shape", optimizer.decay_shape,
                 "warmup_stable_decay: the curve of the decay; `sqrt` is one minus the root of the "
                 "part that is done."),
      schedule_table_key("optimizer.table", optimizer.table,
                         "table: from each step on, counted from 1, the learning rate is "
                         "`optimizer.learning_rate` times the factor. A warm-up rises to "
                         "`optimizer.learning_rate`."),
      number_key("optimizer.minimum_learning_rate_ratio", optimizer.minimum_learning_rate_ratio,
                 kShare, "Where the decay ends, as a fraction of `optimizer.learning_rate`."),
      number_key("optimizer.beta1", optimizer.beta1, kBelowOne,
                 "adamw: decay of the average of gradients."),
      number_key("optimizer.beta2", optimizer.beta2, kBelowOne,
                 "adamw: decay of the average of squared gradients."),
      number_key("optimizer.epsilon", optimizer.epsilon, kAboveZero,
                 "adamw: added to the root of the average of squared gradients."),
      number_key("optimizer.weight_decay", optimizer.weight_decay, kFromZero,
                 "Weight decay (decoupled for adamw). Norms and biases decay only in a group that "
                 "gives it."),
      number_key("optimizer.momentum", optimizer.momentum, kBelowOne, "sgd: momentum."),
      flag_key("optimizer.nesterov", optimizer.nesterov, "sgd: Nesterov's form of the momentum."),
      number_key("optimizer.muon_momentum", optimizer.muon_momentum, kBelowOne, "muon: momentum."),
      flag_key("optimizer.muon_nesterov", optimizer.muon_nesterov,
               "muon: Nesterov's form of the momentum."),
      choice_key("optimizer.muon_scale", optimizer.muon_scale,
                 "muon: the factor of an update, by the outputs A and inputs B of its layer. "
                 "`match_rms_adamw`: 0.2 sqrt(max(A, B)), for AdamW's learning rate. `original`: "
                 "sqrt(max(1, A / B)), for a larger one."),
      kept_dtype_key("optimizer.muon_ns_dtype", optimizer.muon_ns_dtype,
                     "muon: the dtype in which matrices travel and are orthogonalized."),
      number_key(
          "optimizer.qk_clip", optimizer.qk_clip, kFromZero,
          "muon: the largest attention logit that a head may have, such as 100. After a step in "
          "which a head had a larger one, its query and key weights are scaled down to it. "
          "0 = none."),
      number_key("optimizer.clip_norm", optimizer.clip_norm, kFromZero,
                 "Largest global norm of the gradient. A longer gradient is scaled down to it; 0 = "
                 "no clipping."),
      kept_dtype_key(
          "optimizer.master_dtype", optimizer.master_dtype,
          "adamw: the dtype of the masters, the values that updates are added to. `bf16` "
          "saves 2 bytes per parameter; each update is then rounded up or down at random, "
          "so that its mean is right."),
      kept_dtype_key("optimizer.state_dtype", optimizer.state_dtype,
                     "adamw: the dtype of the two moments. `bf16` saves 4 bytes per parameter and "
                     "is rounded at random, too."),
      kept_dtype_key("optimizer.gradient_dtype", optimizer.gradient_dtype,
                     "The dtype that gradients are held, sent and read in. `bf16` halves them, for "
                     "steps of one micro-batch that compute in bf16."),
      optimizer_groups_key(optimizer.groups),
  };
}

std::vector<Key> train_keys(TrainConfig& train) {
  return {
      choice_key("train.objective", train.objective,
                 "The loss: `next_token`, the cross-entropy of each token; `distill`, with a "
                 "teacher's likeliest tokens as targets, too; or of pairs of answers, one of them "
                 "preferred: `dpo`, `ipo`, or `simpo`, which needs no reference. Pairs need "
                 "`data.rows` packed or padded."),
      whole_number_key("train.steps", train.steps, 1, kMostSteps, "Number of training steps."),
      batch_ramp_key(
          "train.batch_ramp", train.batch_ramp,
          "Smaller batches at the beginning: so many steps with so many rows, then the next "
          "stage, then `data.batch_size`. The micro-batches stay as many and have fewer rows; "
          "the learning rate stays by steps. Empty = none."),
      whole_number_key(
          "train.epochs", train.epochs, 0, kMostSteps,
          "Passes over the training data, instead of `train.steps`; an epoch has every "
          "row once. 0 = `train.steps`."),
      path_key("train.dir", train.dir,
               "Run folder: resolved configuration, `metrics.jsonl` and the trained model."),
      whole_number_key("train.log_every", train.log_every, 0, kMostSteps,
                       "Print a log line every so many steps, and after the first and the last. "
                       "0 = only with a validation loss."),
      whole_number_key("train.eval_every", train.eval_every, 0, kMostSteps,
                       "Measure the validation loss every so many steps, and after the first and "
                       "the last. 0 = never."),
      whole_number_key("train.eval_batches", train.eval_batches, 0, kMostSteps,
                       "Batches per measurement; 0 = every sequence of the validation file once."),
      whole_number_key("train.sample_every", train.sample_every, 0, kMostSteps,
                       "Continue the texts of the section `sample` every so many steps, and after "
                       "the first and the last. This needs a tokenizer next to the data. 0 = "
                       "never."),
      whole_number_key("train.hellaswag_every", train.hellaswag_every, 0, kMostSteps,
                       "Answer the questions of `data.hellaswag` every so many steps, and after "
                       "the last. 0 = only after the last."),
      whole_number_key("train.seed", train.seed, 0, kMostSeed,
                       "Seed of initialization, shuffling and dropout; the same seed gives the "
                       "same run."),
      form_key("train.profile", train.profile, "steps such as 10-12, at most 100; or empty",
               parse_steps, steps_text,
               "Records time and memory of these steps in the folder `profile/` of the run: a "
               "Chrome trace (Perfetto), and memory for PyTorch's viewer. Empty = none."),
      choice_key("train.progress", train.progress,
                 "`auto` draws a progress bar on a terminal and prints lines otherwise, also under "
                 "mpirun."),
      flag_key("train.measure_matmul_rate", train.measure_matmul_rate,
               "Time plain matrix products of the model's shapes before the first step, for about "
               "a second, and report each step's share of that rate."),
      whole_number_key("train.checkpoint_every", train.checkpoint_every, 0, kMostSteps,
                       "Save a checkpoint every so many steps; a run of at least so many steps "
                       "also saves one after its last. 0 = only when a signal stops the run."),
      whole_number_key(
          "train.keep_last", train.keep_last, 1, kMostSteps,
          "Checkpoints to keep. The last one with a finite gradient norm is kept, too."),
      whole_number_key("train.keep_every", train.keep_every, 0, kMostSteps,
                       "Also keep the checkpoints of steps that are a multiple of this; 0 = none."),
      number_key(
          "train.ema", train.ema, kBelowOne,
          "Decay of an exponential moving average of the weights, such as 0.999: 4 bytes per "
          "parameter, sharded and offloaded with the optimizer's state. Checkpoints hold it, "
          "and `tessera export --ema` writes its model. 0 = none."),
      flag_key("train.evaluate_ema", train.evaluate_ema,
               "Every validation also measures the loss of the average."),
      text_key("train.resume", train.resume,
               "`auto` continues from the newest checkpoint in `train.dir`, if there is one; "
               "`never` starts again; a path names a checkpoint, or a run folder, to start from."),
      choice_key(
          "train.on_nonfinite", train.on_nonfinite,
          "After a loss or gradient norm that is not finite: `stop` the run; `explain`: run the "
          "step again with a check after every operation, name the first operation, unit and "
          "rank whose output is not finite, and stop; `skip` the "
          "step, at most 10 in a row; `rollback` to the newest checkpoint and go on with "
          "the batches after this one, at most 3 times from one checkpoint. f16 first "
          "lowers its loss scale."),
      number_key(
          "train.keep_spikes", train.keep_spikes, kFromZero,
          "Keep a step whose loss is more than so many times the mean of the last 20 losses: "
          "its batch goes to `kept/step_N.json` of the run folder. 0 = none."),
      whole_number_key(
          "train.watch", train.watch, 0, kMostSteps,
          "Watch every so many steps, unit by unit: norms of gradient, update and weights, the "
          "largest activation and attention logit, the entropy of routers. 0 = never."),
      whole_number_key("train.metrics_port", train.metrics_port, 0, 65535,
                       "Serve the last metrics at http://127.0.0.1:PORT/metrics in Prometheus's "
                       "text format. 0 = no."),
      whole_number_key("train.elastic", train.elastic, 0, 1 << 16,
                       "A power of two: the micro-batches of a step, of all ranks together. Their "
                       "number does not depend on the number of ranks, which divides it, and "
                       "neither do the bits of losses, norms and weights. 0 = off: each rank has "
                       "`data.accumulation_steps`."),
  };
}

std::vector<Key> distill_keys(Distillation& distill) {
  return {
      whole_number_key("distill.top_k", distill.top_k, 1, kMostPlaces,
                       "The teacher's likeliest tokens that a loss takes. The teacher files "
                       "(`tessera score --top-k`) next to the token files have at least as many."),
      number_key("distill.weight", distill.weight, {.least = 0.0, .most = 1.0},
                 "The share of the teacher's tokens in a loss; the next token has the rest."),
  };
}

std::vector<Key> preference_keys(PreferenceConfig& preference) {
  return {
      number_key("preference.beta", preference.beta, kAboveZero,
                 "The factor of a log-probability in a reward."),
      number_key("preference.label_smoothing", preference.label_smoothing,
                 {.least = 0.0, .most = 0.5},
                 "dpo, simpo: the share of pairs whose answers are taken to be exchanged."),
      number_key(
          "preference.margin", preference.margin, kFromZero,
          "dpo, simpo: the difference of rewards at which a pair is as likely as not; SimPO's "
          "gamma."),
      number_key("preference.nll", preference.nll, kFromZero,
                 "The factor of the chosen answer's mean cross-entropy, which is added to a pair's "
                 "loss. Each pair counts alike (sequence_mean)."),
  };
}

std::vector<Key> sample_keys(SampleConfig& sample) {
  return {
      text_key("sample.prompt", sample.prompt,
               "The text to continue; empty = a line break, unless `sample.prompts` is set."),
      path_key("sample.prompts", sample.prompts,
               "A file of texts to continue: one per line, or a JSON list of texts or of lists of "
               "token ids. Empty = `sample.prompt`."),
      whole_number_key("sample.tokens", sample.tokens, 1, kMostTokens, "Tokens to add to each."),
      number_key("sample.temperature", sample.temperature, kFromZero,
                 "Divides the logits; 0 takes the likeliest token."),
      whole_number_key("sample.top_k", sample.top_k, 0, LargestSizes::vocab_size,
                       "Only the k likeliest tokens; 0 = all."),
      number_key("sample.top_p", sample.top_p, {.least = 0.0, .most = 1.0, .least_excluded = true},
                 "Only the likeliest tokens that hold this probability; 1 = all."),
      whole_number_key("sample.seed", sample.seed, 0, kMostSeed,
                       "The same seed chooses by the same random numbers each time."),
  };
}

}  // namespace tessera
