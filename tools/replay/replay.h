// tessera replay RUN STEP: one step of a run again, bit for bit, with everything that it computes.
//
// RUN/replay/step_N/ gets
//   step.json         the step's numbers, those of metrics.jsonl, and where the replay began
//   operations.jsonl  a line for each operation of each rank: its unit and pass, and for each tensor
//                     its range, whether it was written, and a checksum
//   watch.json        the readings of every unit in the step, as an event "watch" of metrics.jsonl has them, and
//                     of every row of its batch the loss and the largest activations and logits
//   trace.json        a Chrome trace of all ranks
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

/// Returns the lines that the program prints. Files of an earlier replay of the step are replaced; the
/// run's files stay as they are. Raises Error as replay_to does (replayed_rank.h), or if the run has
/// no such step.
std::vector<std::string> replay(const std::filesystem::path& run, std::int64_t step);

}  // namespace tessera
