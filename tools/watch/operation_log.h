// OperationLog: every operation of a step with checksums of its tensors.
//
// Two runs of one step have equal logs if all their tensors are equal, bit for bit. The first entry
// that differs is the operation at which they part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/observer.h"
#include "tools/watch/operation_place.h"
#include "tools/watch/values.h"

namespace tessera {

/// A tensor before and after an operation that reads or writes it.
struct LoggedTensor {
  /// "f32 [2, 3]".
  std::string type;
  /// CRC-32C of its bytes.
  std::uint32_t before = 0, after = 0;
  /// The values after, if the tensor is floating.
  ValueRange range = {};

  bool was_written() const { return before != after; }
};

struct LoggedOperation {
  OperationPlace place;
  std::string name;
  std::vector<LoggedTensor> tensors;
};

class OperationLog final : public OperationObserver {
 public:
  OperationLog(TrainingSession& session, int rank) : places_(session, rank) {}

  void before(std::string_view operation, std::span<const Tensor> arguments) override;
  void after(std::string_view operation, std::span<const Tensor> arguments) override;

  const std::vector<LoggedOperation>& operations() const { return operations_; }

 private:
  PlaceTracker places_;
  /// Checksums of the operations that have begun: one may run others.
  std::vector<std::vector<std::uint32_t>> begun_;
  std::vector<LoggedOperation> operations_;
};

/// A JSON line for each operation.
std::string json_lines(const std::vector<LoggedOperation>& operations);

/// Keeps the values of one tensor of one operation.
class TensorCapture final : public OperationObserver {
 public:
  /// The tensor `argument` of this rank's operation `number`, before or after it.
  struct Wanted {
    std::int64_t number = 0;
    std::size_t argument = 0;
    bool before = false;
  };

  explicit TensorCapture(const Wanted& wanted) : wanted_(wanted) {}

  void before(std::string_view operation, std::span<const Tensor> arguments) override;
  void after(std::string_view operation, std::span<const Tensor> arguments) override;

  /// Empty if the tensor is not floating.
  const std::vector<double>& values() const { return values_; }

 private:
  Wanted wanted_;
  std::int64_t ended_ = 0;
  /// The values before each operation that has begun; of the wanted one only.
  std::vector<std::vector<double>> begun_;
  std::vector<double> values_;
};

}  // namespace tessera
