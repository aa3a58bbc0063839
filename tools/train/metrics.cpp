#include "tools/train/metrics.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/check.h"

namespace tessera {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

void keep_earlier(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return;
  for (int i = 1;; ++i) {
    const auto kept = path.parent_path() / fmt::format("metrics.{}.jsonl", i);
    if (std::filesystem::exists(kept)) continue;
    std::filesystem::rename(path, kept);
    return;
  }
}

// A step that f16 skipped has a norm, maybe a loss, that is not finite; JSON has no word for it.
template <typename Float>
std::string number(Float value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string fraction(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "null";
}

}  // namespace

std::string log_line(const StepMetrics& m, std::int64_t total_steps) {
  std::string line = fmt::format("step {}/{}  loss {:.4f}", m.step, total_steps, m.loss);
  if (m.val_loss) line += fmt::format("  val {:.4f}", *m.val_loss);
  line += fmt::format("  lr {:.2e}  norm {:.3f}  {:.0f} tok/s", m.learning_rate, m.gradient_norm,
                      m.tokens_per_second);
  if (m.matmul_fraction)
    line += fmt::format("  {:.0f}% of matmul rate", 100.0 * *m.matmul_fraction);
  if (m.mfu) line += fmt::format("  MFU {:.0f}%", 100.0 * *m.mfu);
  line += fmt::format("  peak {:.1f} MiB", static_cast<double>(m.memory.total.peak) / kMebibyte);
  return line;
}

std::string json_line(const StepMetrics& m) {
  std::string line = fmt::format(R"({{"step": {}, "loss": {})", m.step, number(m.loss));
  if (m.val_loss) line += fmt::format(R"(, "val_loss": {})", *m.val_loss);
  line += fmt::format(R"(, "learning_rate": {}, "gradient_norm": {}, "tokens_per_second": {:.1f}, )"
                      R"("matmul_fraction": {}, "mfu": {}, "step_ms": {:.3f}, "data_ms": {:.3f}, )"
                      R"("forward_ms": {:.3f}, "backward_ms": {:.3f}, "optimizer_ms": {:.3f}, )"
                      R"("communication_ms": {:.3f}, "exposed_communication_ms": {:.3f}, )"
                      R"("bytes_sent": {:.0f}, "peak_bytes": {{)",
                      m.learning_rate, number(m.gradient_norm), m.tokens_per_second,
                      fraction(m.matmul_fraction), fraction(m.mfu), m.step_ms, m.data_ms,
                      m.forward_ms, m.backward_ms, m.optimizer_ms, m.communication_ms,
                      m.exposed_communication_ms, m.bytes_sent);
  for (int i = 0; i < kCategories; ++i) {
    line += fmt::format(R"("{}": {}, )", enum_names<Category>()[i], m.memory.categories[i].peak);
  }
  return line + fmt::format(R"("total": {}}}}})", m.memory.total.peak);
}

MetricsFile::MetricsFile(const std::filesystem::path& folder) : path_(folder / "metrics.jsonl") {
  keep_earlier(path_);
  file_.open(path_);
  check(file_.good(), "{}: cannot be written", path_.string());
}

void MetricsFile::write(const StepMetrics& metrics) {
  file_ << json_line(metrics) << '\n' << std::flush;
  check(file_.good(), "{}: writing failed; is the disk full?", path_.string());
}

}  // namespace tessera
