#include "sharding/comm/call.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

class Fnv1a {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) add_byte(static_cast<unsigned char>(byte));
  }
  void add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(number >> (8 * i)));
  }
  void add(const Tensors& tensors) {
    add(tensors.size());
    for (const Tensor& tensor : tensors) {
      add(static_cast<std::uint64_t>(tensor.dtype()));
      add(static_cast<std::uint64_t>(tensor.numel()));
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3; }

  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace

std::string_view name_of(Collective collective) {
  constexpr std::string_view names[kCollectives] = {"all_gather", "reduce_scatter", "all_reduce",
                                                    "broadcast",  "reduce",         "all_to_all",
                                                    "barrier",    "split"};
  return names[static_cast<int>(collective)];
}

std::string describe(const Call& call, std::uint64_t number) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : call.outputs) bytes += tensor.bytes();
  return fmt::format("call {}, {} of {} bytes in {} tensor{}{}{}", number, name_of(call.collective),
                     bytes, call.outputs.size(), call.outputs.size() == 1 ? "" : "s",
                     call.label.empty() ? "" : ", for ", call.label);
}

std::uint64_t fingerprint(const Call& call, std::uint64_t number) {
  Fnv1a hash;
  hash.add(number);
  hash.add(static_cast<std::uint64_t>(call.collective));
  hash.add(static_cast<std::uint64_t>(call.reduction));
  if (call.collective != Collective::split) hash.add(static_cast<std::uint64_t>(call.root));
  hash.add(call.outputs);
  hash.add(call.inputs);
  hash.add(call.label);
  return hash.value();
}

int first_disagreement(std::span<const std::uint64_t> fingerprints) {
  const auto other = std::find_if(fingerprints.begin(), fingerprints.end(),
                                  [&](std::uint64_t value) { return value != fingerprints[0]; });
  return other == fingerprints.end() ? 0 : static_cast<int>(other - fingerprints.begin());
}

void fail_disagreement(int first, const std::string& first_call, int second,
                       const std::string& second_call) {
  fail("ranks disagree: rank {} makes {}, rank {} makes {}", first, first_call, second,
       second_call);
}

std::string list_of_ranks(std::span<const int> ranks) {
  return fmt::format("{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

std::string failure_of(int rank, int ranks, std::string_view reason) {
  return ranks == 1 ? std::string(reason) : fmt::format("rank {}: {}", rank, reason);
}

namespace {

std::int64_t bytes_sent_of(const Tensor& tensor, const Call& call, int rank, int ranks) {
  const auto bytes = static_cast<std::int64_t>(tensor.bytes());
  const std::int64_t share = share_of(tensor.numel(), rank, ranks).count() *
                             static_cast<std::int64_t>(size_of(tensor.dtype()));
  switch (call.collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return share * (ranks - 1);
    case Collective::all_reduce:
      return bytes - share + share * (ranks - 1);
    case Collective::reduce:
      return bytes - share + (rank == call.root ? 0 : share);
    case Collective::broadcast:
      return rank == call.root ? bytes * (ranks - 1) : 0;
    default:
      return 0;
  }
}

}  // namespace

std::int64_t bytes_sent_by(const Call& call, int rank, int ranks) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : call.brought()) bytes += bytes_sent_of(tensor, call, rank, ranks);
  return bytes;
}

Tensor elements(const Tensor& tensor, ElementRange range) {
  return tensor.reshape({tensor.numel()}).slice(range.begin, range.end);
}

}  // namespace tessera
