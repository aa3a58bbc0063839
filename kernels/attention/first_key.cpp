#include "kernels/attention/first_key.h"

#include <algorithm>
#include <span>

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera {

Tensor first_keys(const Tensor& starts, std::int64_t chunk, std::int64_t first_position,
                  std::int64_t window) {
  check_on_one_device("first_keys", {{"starts", starts}});
  check_dtype("first_keys", {"starts", starts}, DType::i32);
  check_rank("first_keys", {"starts", starts}, 2);
  check(chunk >= 0, "first_keys: chunk is {}; expected tokens, or 0 for no chunks", chunk);
  check(window >= 0, "first_keys: window is {}; expected tokens, or 0 for no window", window);
  std::vector<std::int32_t> keys = starts.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::int64_t start = keys[i];
    const std::int64_t position = first_position + static_cast<std::int64_t>(i) % starts.size(1);
    check(0 <= start && start <= position,
          "first_keys: the token at position {} of row {} has its document's start at {}; expected "
          "0 to {}",
          position, static_cast<std::int64_t>(i) / starts.size(1), start, position);
    if (chunk > 0) keys[i] = static_cast<std::int32_t>(position - (position - start) % chunk);
    if (window > 0) {
      keys[i] = std::max(keys[i], static_cast<std::int32_t>(position - window + 1));
    }
  }
  return Tensor::from(keys, starts.shape());
}

std::vector<QueryRun> query_runs(const Tensor& first_key, std::int64_t batch,
                                 std::int64_t queries) {
  if (queries == 0) return {};
  // A dry run reads no keys. Its documents fill a row each.
  if (!first_key.defined() || context().is_dry()) return {{.queries = queries}};
  const std::span keys(first_key.data<std::int32_t>() + batch * queries,
                       static_cast<std::size_t>(queries));
  std::vector<QueryRun> runs;
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t key = keys[static_cast<std::size_t>(i)];
    if (runs.empty() || runs.back().first_key != key) runs.push_back({i, 0, key});
    ++runs.back().queries;
  }
  return runs;
}

}  // namespace tessera
