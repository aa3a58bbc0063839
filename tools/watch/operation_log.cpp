#include "tools/watch/operation_log.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/crc32c.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::uint32_t checksum_of(const Tensor& host) {
  return crc32c({static_cast<const std::byte*>(host.raw()), host.bytes()});
}

Json json_of(const LoggedTensor& tensor) {
  Json json = {
      {"type", tensor.type}, {"written", tensor.was_written()}, {"checksum", tensor.after}};
  if (tensor.range.count == 0) return json;
  if (tensor.range.least <= tensor.range.most) {
    json["least"] = tensor.range.least;
    json["most"] = tensor.range.most;
  }
  json["nan"] = tensor.range.nan;
  json["inf"] = tensor.range.infinite;
  return json;
}

const char* name_of(OperationPlace::Phase phase) {
  if (phase == OperationPlace::Phase::update) return "update";
  return phase == OperationPlace::Phase::forward ? "forward" : "backward";
}

}  // namespace

void OperationLog::before(std::string_view, std::span<const Tensor> arguments) {
  std::vector<std::uint32_t>& checksums = begun_.emplace_back();
  for (const Tensor& argument : arguments) checksums.push_back(checksum_of(argument.to_host()));
}

void OperationLog::after(std::string_view operation, std::span<const Tensor> arguments) {
  LoggedOperation logged = {.place = places_.next(), .name = std::string(operation)};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Tensor host = arguments[i].to_host();
    logged.tensors.push_back(
        {.type = to_string(host), .before = begun_.back()[i], .after = checksum_of(host)});
    if (is_floating(host.dtype())) logged.tensors.back().range = range_of(host);
  }
  begun_.pop_back();
  operations_.push_back(std::move(logged));
}

std::string json_lines(const std::vector<LoggedOperation>& operations) {
  std::string lines;
  for (const LoggedOperation& operation : operations) {
    Json tensors = Json::array();
    for (const LoggedTensor& tensor : operation.tensors) tensors.push_back(json_of(tensor));
    const Json line = {{"rank", operation.place.rank},
                       {"number", operation.place.number},
                       {"micro_batch", operation.place.micro_batch},
                       {"phase", name_of(operation.place.phase)},
                       {"unit", operation.place.unit},
                       {"operation", operation.name},
                       {"tensors", std::move(tensors)}};
    lines += line.dump() + "\n";
  }
  return lines;
}

void TensorCapture::before(std::string_view, std::span<const Tensor> arguments) {
  // Its number is known when it ends. The values are kept for each operation that could be the one.
  std::vector<double>& values = begun_.emplace_back();
  if (!wanted_.before || ended_ > wanted_.number || wanted_.argument >= arguments.size()) return;
  values = values_of(arguments[wanted_.argument]);
}

void TensorCapture::after(std::string_view, std::span<const Tensor> arguments) {
  std::vector<double> before = std::move(begun_.back());
  begun_.pop_back();
  if (ended_++ != wanted_.number || wanted_.argument >= arguments.size()) return;
  values_ = wanted_.before ? std::move(before) : values_of(arguments[wanted_.argument]);
}

}  // namespace tessera
