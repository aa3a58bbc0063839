#include "tools/replay/replay.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/profiler.h"
#include "sharding/comm/stream.h"
#include "tools/replay/replayed_rank.h"
#include "tools/replay/watched_rows.h"
#include "tools/train/events.h"
#include "tools/train/gather.h"
#include "tools/watch/nonfinite.h"
#include "tools/watch/operation_log.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// The step with its update, in a trace of all ranks.
StepResult traced_step(const RecordedRun& run, ReplayedRank& rank, const fs::path& folder) {
  rank.world.barrier(communication_stream()).synchronize();
  const auto start = std::chrono::steady_clock::now();
  Profiler& profiler = context().profiler();
  profiler.set_tracing(true);
  StepResult result;
  {
    const Span span(fmt::format("step {}", rank.step));
    result = replay_step(run, rank);
  }
  profiler.set_tracing(false);
  const auto traces = gather_texts(trace_events(profiler, start), rank.world);
  if (rank.world.rank() == 0) write_chrome_trace((folder / "trace.json").string(), traces);
  return result;
}

void write_operations(TrainingSession& session, const ReplayedRank& rank, const fs::path& folder) {
  OperationLog log(session, rank.world.rank());
  session.observe(rank.step, rank.source, log);
  std::string lines;
  for (const std::string& of_rank : gather_texts(json_lines(log.operations()), rank.world)) {
    lines += of_rank;
  }
  if (rank.world.rank() == 0) write_file_atomically(folder / "operations.jsonl", lines);
}

Json numbers_json(const RecordedRun& run, std::int64_t step, const StepResult& result) {
  Json json = {{"step", step},
               {"from", start_of(run, step)},
               {"loss", finite_or_null(result.loss)},
               {"gradient_norm", finite_or_null(result.gradient_norm)}};
  const auto recorded = run.steps().find(step);
  json["recorded"] = recorded != run.steps().end();
  return json;
}

}  // namespace

std::vector<std::string> replay(const fs::path& path, std::int64_t step) {
  const RecordedRun run(path);
  check(step >= 1 && step <= run.config().train.steps, "{} has steps 1 to {}; there is no step {}",
        path.string(), run.config().train.steps, step);
  const fs::path folder = path / "replay" / fmt::format("step_{}", step);
  std::vector<std::string> lines;
  replay_to(run, {.first = step, .last = step}, {}, [&](ReplayedRank& rank) {
    const bool first = rank.world.rank() == 0;
    if (first) {
      fs::remove_all(folder);
      make_writable_directory(folder);
    }
    write_operations(rank.session, rank, folder);
    const std::vector<WatchedRow> rows =
        watch_rows(rank, run.batches_before(step), batch_sizes(run.config()));
    const StepResult result = traced_step(run, rank, folder);
    std::string explanation;
    if (result.diverged) {
      explanation = explain_nonfinite(rank.session, rank.world, step, rank.source);
    }
    if (!first) return;
    const Json json = numbers_json(run, step, result);
    write_file_atomically(folder / "step.json", json.dump(1) + "\n");
    Json watch = json_of(result.watch);
    watch["rows"] = json_of(rows);
    write_file_atomically(folder / "watch.json", watch.dump(1) + "\n");
    lines.push_back(fmt::format(
        "step {} from {}: loss {} and norm {}, {}", step, json["from"].get<std::string>(),
        result.loss, result.gradient_norm,
        json["recorded"] ? "the bits of metrics.jsonl" : "of which metrics.jsonl has no line"));
    if (!rows.empty()) lines.push_back(most_striking(rows));
    if (!explanation.empty()) lines.push_back(explanation);
    lines.push_back("wrote " + folder.string());
  });
  return lines;
}

}  // namespace tessera
