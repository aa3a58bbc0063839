#include "tools/train/tensorboard.h"

#include <bit>
#include <chrono>
#include <map>

#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace tessera {
namespace {

template <typename Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    bytes += static_cast<char>(number >> (8 * i) & 0xff);
  }
  return bytes;
}

// Protobuf: a field is its number and kind, then its value. Seven bits of a varint per byte, the
// lowest first; the eighth bit says that more follow.

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

enum Kind : std::uint64_t { kVarint = 0, k64Bits = 1, kBytes = 2, k32Bits = 5 };

std::string field(std::uint64_t number, Kind kind) {
  return varint(number << 3 | kind);
}

std::string whole_number(std::uint64_t number, std::int64_t value) {
  return field(number, kVarint) + varint(static_cast<std::uint64_t>(value));
}

/// A text or a message.
std::string bytes(std::uint64_t number, std::string_view value) {
  return field(number, kBytes) + varint(value.size()) + std::string(value);
}

/// An Event with its wall_time = 1 and step = 2.
std::string event(std::int64_t step, const std::string& content) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return field(1, k64Bits) + little_endian(std::bit_cast<std::uint64_t>(seconds)) +
         whole_number(2, step) + content;
}

/// Summary.Value with tag = 1 and simple_value = 2.
std::string scalar(const std::string& tag, double value) {
  return bytes(1, tag) + field(2, k32Bits) +
         little_endian(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}

/// Summary.Value with tag = 1, tensor = 8 and metadata = 9 that names the plugin of texts.
std::string text_value(std::string_view tag, std::string_view text) {
  constexpr std::int64_t kString = 7;                    // DataType.DT_STRING
  const std::string one = bytes(2, whole_number(1, 1));  // shape.dim.size
  const std::string tensor = whole_number(1, kString) + bytes(2, one) + bytes(8, text);
  return bytes(1, tag) + bytes(8, tensor) + bytes(9, bytes(1, bytes(1, "text")));
}

std::string checksum(std::string_view text) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(text.data(), text.size())));
  return little_endian(std::rotr(crc, 15) + 0xa282ead8u);
}

std::string_view group_of(const std::string& name) {
  static const std::map<std::string, std::string_view> groups = {
      {"loss", "loss/"},
      {"mean_loss", "loss/"},
      {"val_loss", "loss/"},
      {"val_loss_ema", "loss/"},
      {"hellaswag", "quality/"},
      {"accuracy", "preference/"},
      {"margin", "preference/"},
      {"chosen_reward", "preference/"},
      {"rejected_reward", "preference/"},
      {"val_accuracy", "preference/"},
      {"val_margin", "preference/"},
      {"val_chosen_reward", "preference/"},
      {"val_rejected_reward", "preference/"},
      {"router_loss", "loss/"},
      {"idle_experts", "experts/"},
      {"learning_rate", "optimizer/"},
      {"gradient_norm", "optimizer/"},
      {"max_gradient_norm", "optimizer/"},
      {"tokens", "speed/"},
      {"tokens_per_second", "speed/"},
      {"matmul_fraction", "speed/"},
      {"mfu", "speed/"},
      {"bytes_sent", "speed/"},
  };
  if (name.ends_with("_ms")) return "time/";
  const auto found = groups.find(name);
  return found == groups.end() ? "" : found->second;
}

}  // namespace

TensorboardFile::Scalars tensorboard_scalars(const nlohmann::json& line) {
  TensorboardFile::Scalars scalars;
  for (const auto& [name, value] : line.items()) {
    const std::string_view group = group_of(name);
    if (value.is_number() && !group.empty()) scalars.emplace_back(std::string(group) + name, value);
  }
  for (const auto& [category, value] : line.at("peak_bytes").items()) {
    scalars.emplace_back("memory/" + category, value);
  }
  for (const auto& [name, group] :
       {std::pair("val_losses", "loss/val/"), {"val_perplexities", "perplexity/"}}) {
    if (!line.contains(name)) continue;
    for (const auto& [source, value] : line.at(name).items())
      scalars.emplace_back(group + source, value);
  }
  if (line.contains("group_learning_rates")) {
    for (const auto& [match, rate] : line.at("group_learning_rates").items()) {
      scalars.emplace_back("optimizer/learning_rate/" + match, rate);
    }
  }
  if (!line.contains("expert_load")) return scalars;
  std::size_t layer = 0;
  for (const auto& load : line.at("expert_load")) {
    scalars.emplace_back(fmt::format("experts/layer_{}", layer++), load);
  }
  return scalars;
}

TensorboardFile::TensorboardFile(const std::filesystem::path& folder, std::int64_t continued_step)
    : path_(folder / fmt::format("{}{}.tessera", kPrefix,
                                 std::chrono::duration_cast<std::chrono::microseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count())),
      file_(path_, std::ios::app | std::ios::binary) {
  write(event(0, bytes(3, "brain.Event:2")));
  if (continued_step == 0) return;
  constexpr std::int64_t kStart = 1;  // SessionLog.START: later steps are written again
  write(event(continued_step + 1, bytes(7, whole_number(1, kStart))));
}

void TensorboardFile::add(std::int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) summary += bytes(1, scalar(tag, value));
  write(event(step, bytes(5, summary)));
}

void TensorboardFile::add_text(std::int64_t step, std::string_view tag, std::string_view text) {
  write(event(step, bytes(5, bytes(1, text_value(tag, text)))));
}

void TensorboardFile::write(const std::string& event) {
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  file_ << length << checksum(length) << event << checksum(event) << std::flush;
  check(file_.good(), "{}: writing failed; is the disk full?", path_.string());
}

}  // namespace tessera
