// TensorBoard's event file: the numbers of metrics.jsonl as curves.
//
//   tensorboard --logdir runs
//
// A file is a sequence of records in the format of TensorFlow's record_writer.h: the length (u64),
// its checksum (u32), the bytes, their checksum (u32), all little-endian. A checksum is a CRC-32C,
// rotated right by 15 bits, plus 0xa282ead8. The bytes are a protobuf message, Event of
// tensorflow/core/util/event.proto. Six kinds of messages with a few fields each are written here by
// hand; a protobuf library and its compiler would be a larger part of the build than this file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

class TensorboardFile {
 public:
  /// Begins a file in the run's folder. TensorBoard drops the values of earlier files after
  /// `continued_step`. Raises Error if the file cannot be written.
  TensorboardFile(const std::filesystem::path& folder, std::int64_t continued_step);

  using Scalars = std::vector<std::pair<std::string, double>>;
  /// Raises Error if the disk is full, as add_text().
  void add(std::int64_t step, const Scalars& scalars);
  void add_text(std::int64_t step, std::string_view tag, std::string_view text);

  /// Whether a file of this name is one of TensorBoard's.
  static bool is_name(std::string_view name) { return name.starts_with(kPrefix); }

 private:
  static constexpr std::string_view kPrefix = "events.out.tfevents.";

  void write(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
};

/// The numbers of a line of metrics under TensorBoard's names, in groups: "loss/val_loss",
/// "loss/val/web", "perplexity/web", "time/step_ms", "memory/optimizer", "experts/layer_0". null has no value.
TensorboardFile::Scalars tensorboard_scalars(const nlohmann::json& line);

}  // namespace tessera
