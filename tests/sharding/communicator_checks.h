// Checks of the contract of communicators, for any kind and number of ranks.
//
// Threads run them in comm_test.cpp, processes in mpi_program.cpp, GPUs in cuda_nccl_test.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/random.h"
#include "sharding/comm/communicator.h"
#include "tests/support/device.h"
#include "tests/support/findings.h"

namespace tessera::test {

using Floats = std::vector<float>;

/// Rank r's values, the same wherever they are made.
inline Floats values_of(int rank, std::int64_t count) {
  const RandomStream random(11, "rank", static_cast<std::uint64_t>(rank));
  Floats values(static_cast<std::size_t>(count));
  fill_normal(values, random, 0);
  return values;
}

inline Tensor tensor_of(int rank, std::int64_t count) {
  return Tensor::from(values_of(rank, count), {count});
}

/// The documented tree, written down a second time.
inline float tree(const Floats& leaves, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return leaves[begin];
  std::size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree(leaves, begin, begin + half) + tree(leaves, begin + half, end);
}

/// The sums over `ranks` ranks of their values.
inline Floats summed(int ranks, std::int64_t count) {
  std::vector<Floats> all;
  for (int r = 0; r < ranks; ++r) all.push_back(values_of(r, count));
  Floats sums;
  for (std::int64_t i = 0; i < count; ++i) {
    Floats leaves;
    for (int r = 0; r < ranks; ++r) leaves.push_back(all[r][i]);
    sums.push_back(tree(leaves, 0, leaves.size()));
  }
  return sums;
}

inline const Stream& compute() {
  return context().compute_stream();
}

/// Bytes sent since this was made.
class SentSince {
 public:
  explicit SentSince(const Communicator& group) : group_(group) {
    for (int i = 0; i < kCollectives; ++i) {
      before_.push_back(group.bytes_sent(static_cast<Collective>(i)));
    }
  }
  std::int64_t of(Collective collective) const {
    return group_.bytes_sent(collective) - before_[static_cast<std::size_t>(collective)];
  }

 private:
  const Communicator& group_;
  std::vector<std::int64_t> before_;
};

inline void check_all_gather(Communicator& group, Findings& findings) {
  const int n = group.size(), r = group.rank();
  const std::vector<std::int64_t> parts = {5, 0, 1, 300};
  Tensors wholes;
  for (const std::int64_t part : parts) {
    wholes.push_back(Tensor::zeros({n * part}, DType::f32));
    wholes.back().slice(r * part, (r + 1) * part).copy_from(tensor_of(r, part));
  }
  const SentSince sent(group);
  const std::int64_t before = group.bytes_sent();
  group.all_gather(wholes, compute());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (int s = 0; s < n; ++s) {
      const Tensor part = wholes[i].slice(s * parts[i], (s + 1) * parts[i]);
      findings.expect(part.to_vector<float>() == values_of(s, parts[i]), "part");
    }
  }
  // Each other rank receives this one's 306 floats.
  findings.expect(sent.of(Collective::all_gather) == (n - 1) * 306 * 4, "bytes");
  findings.expect(group.bytes_sent() - before == (n - 1) * 306 * 4, "all bytes");
}

inline void check_sums(Communicator& group, Findings& findings) {
  constexpr std::int64_t kPart = 37;
  const int n = group.size(), r = group.rank();
  const Floats expected = summed(n, n * kPart);
  const SentSince sent(group);
  const Tensor whole = tensor_of(r, n * kPart);
  const Tensor part = Tensor::empty({kPart}, DType::f32);
  group.reduce_scatter({part}, {whole}, compute());
  findings.expect(part.to_vector<float>() ==
                      Floats(expected.begin() + r * kPart, expected.begin() + (r + 1) * kPart),
                  "reduce_scatter");
  findings.expect(whole.to_vector<float>() == values_of(r, n * kPart), "inputs are kept");
  findings.expect(sent.of(Collective::reduce_scatter) == (n - 1) * kPart * 4,
                  "reduce_scatter's bytes");

  const Tensor everywhere = tensor_of(r, n * kPart);
  group.all_reduce({everywhere}, compute());
  findings.expect(everywhere.to_vector<float>() == expected, "all_reduce");
  findings.expect(sent.of(Collective::all_reduce) == 2 * (n - 1) * kPart * 4, "all_reduce's bytes");

  const int root = n - 1;
  const Tensor at_root = tensor_of(r, n * kPart);
  group.reduce({at_root}, root, compute());
  if (r == root) findings.expect(at_root.to_vector<float>() == expected, "reduce");
  const std::int64_t own = r == root ? 0 : kPart;
  findings.expect(sent.of(Collective::reduce) == ((n - 1) * kPart + own) * 4, "reduce's bytes");
}

/// Counts that the ranks do not divide, several at once, and maxima.
inline void check_odd_counts(Communicator& group, Findings& findings) {
  const int n = group.size(), r = group.rank();
  const std::vector<std::int64_t> counts = {0, 1, 5, 1001};
  Tensors tensors, at_root;
  std::int64_t to_all = 0;
  std::int64_t to_root = 0;
  for (const std::int64_t count : counts) {
    tensors.push_back(tensor_of(r, count));
    at_root.push_back(tensor_of(r, count));
    const std::int64_t share = count * (r + 1) / n - count * r / n;
    to_all += 4 * (count - share + share * (n - 1));
    to_root += 4 * (count - share + (r == 0 ? 0 : share));
  }
  const SentSince sent(group);
  group.all_reduce(tensors, compute());
  group.reduce(at_root, 0, compute());
  findings.expect(sent.of(Collective::all_reduce) == to_all, "all_reduce's bytes");
  findings.expect(sent.of(Collective::reduce) == to_root, "reduce's bytes");
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const Floats expected = summed(n, counts[i]);
    findings.expect(tensors[i].to_vector<float>() == expected, "all_reduce");
    if (r == 0) findings.expect(at_root[i].to_vector<float>() == expected, "reduce");
  }
  const Tensor largest = Tensor::from(Floats{static_cast<float>(r)}, {1});
  group.all_reduce({largest}, compute(), "largest", Reduction::maximum);
  findings.expect(largest.item<float>() == static_cast<float>(n - 1), "maximum");
}

/// More elements than a staging buffer holds, together with few; bf16 into f32; integers.
inline void check_large_and_mixed(Communicator& group, Findings& findings) {
  const int n = group.size(), r = group.rank();
  // Whole numbers have exact sums: element i of rank r is i % 64 + r.
  const auto value = [](std::int64_t i, int rank) { return static_cast<float>(i % 64 + rank); };
  const auto sum = [&](std::int64_t i) {
    return static_cast<float>(n * (i % 64)) + static_cast<float>(n * (n - 1)) / 2;
  };
  // The emulated GPU is slow, so tensors are smaller there.
  const std::vector<std::int64_t> parts = {3, test::kOnGpu ? 30'001 : 600'001, 0, 17};
  Tensors outputs, inputs;
  for (const std::int64_t part : parts) {
    std::vector<bfloat16> narrow;
    for (std::int64_t i = 0; i < n * part; ++i) narrow.emplace_back(value(i, r));
    inputs.push_back(Tensor::from(narrow, {n * part}));
    outputs.push_back(Tensor::zeros({part}, DType::f32));
  }
  group.reduce_scatter(outputs, inputs, compute());
  bool exact = true;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const Floats data = outputs[k].to_vector<float>();
    for (std::int64_t i = 0; i < parts[k]; ++i) {
      exact &= data[static_cast<std::size_t>(i)] == sum(parts[k] * r + i);
    }
  }
  findings.expect(exact, "reduce_scatter of bf16 into f32");

  const std::int64_t kCount = test::kOnGpu ? 100'017 : 1'500'017;
  Floats wide;
  for (std::int64_t i = 0; i < kCount; ++i) wide.push_back(value(i, r));
  const Tensor x = Tensor::from(wide, {kCount});
  const std::int64_t large = (std::int64_t{1} << 60) + r;
  const Tensor integer = Tensor::from(std::vector<std::int64_t>{large}, {1});
  group.all_reduce({x, integer}, compute());
  const Floats sums = x.to_vector<float>();
  exact = true;
  for (std::int64_t i = 0; i < kCount; ++i) {
    exact &= sums[static_cast<std::size_t>(i)] == sum(i);
  }
  findings.expect(exact, "all_reduce of many segments");
  findings.expect(
      integer.item<std::int64_t>() == n * (std::int64_t{1} << 60) + std::int64_t{n} * (n - 1) / 2,
      "all_reduce of integers");
}

inline void check_moves(Communicator& group, Findings& findings) {
  const int n = group.size(), r = group.rank();
  const SentSince bytes(group);
  for (int root = 0; root < n; ++root) {
    const Tensor x = tensor_of(r, 40);
    const Tensor empty = tensor_of(r, 0);
    group.broadcast({empty, x}, root, compute());
    findings.expect(x.to_vector<float>() == values_of(root, 40), "broadcast");
  }
  findings.expect(bytes.of(Collective::broadcast) == (n - 1) * 160, "broadcast's bytes");

  const Tensor sent = tensor_of(r, 7 * n);
  const Tensor received = Tensor::empty({7 * n}, DType::f32);
  group.all_to_all({received}, {sent}, compute());
  for (int s = 0; s < n; ++s) {
    const Floats theirs = values_of(s, 7 * n);
    findings.expect(received.slice(7 * s, 7 * (s + 1)).to_vector<float>() ==
                        Floats(theirs.begin() + 7 * r, theirs.begin() + 7 * (r + 1)),
                    "all_to_all");
  }
  findings.expect(bytes.of(Collective::all_to_all) == (n - 1) * 28, "all_to_all's bytes");
  const Tensor arrived = Tensor::empty({5}, DType::f32);
  for (int distance = 0; distance < n; ++distance) {
    group.shift(arrived, tensor_of(r, 5), distance, compute());
    findings.expect(arrived.to_vector<float>() == values_of((r + n - distance) % n, 5), "shift");
  }
  findings.expect(bytes.of(Collective::shift) == (n - 1) * 20, "shift's bytes");
  group.barrier(compute());
  findings.expect(bytes.of(Collective::barrier) == 0, "barrier's bytes");
}

/// Every rank sends another number of elements to each rank. The last sends and receives nothing
/// where there are several; others send nothing to some.
inline void check_unequal_parts(Communicator& group, Findings& findings) {
  const int n = group.size(), r = group.rank();
  const auto count = [&](int from, int to) -> std::int64_t {
    if (n > 1 && (from == n - 1 || to == n - 1)) return 0;
    return (7 * from + 3 * to) % 5 * 11 + (from == to ? 1 : 0);
  };
  const auto begin = [&](int from, int to) {
    std::int64_t sum = 0;
    for (int s = 0; s < to; ++s) sum += count(from, s);
    return sum;
  };
  Parts sent, received;
  std::int64_t coming = 0, to_others = 0;
  for (int s = 0; s < n; ++s) {
    sent.counts.push_back(count(r, s));
    received.counts.push_back(count(s, r));
    coming += count(s, r);
    if (s != r) to_others += count(r, s);
  }
  sent.tensor = tensor_of(r, begin(r, n));
  received.tensor = Tensor::empty({coming}, DType::f32);
  const SentSince bytes(group);
  group.all_to_all_parts(received, sent, compute(), "rows");
  std::int64_t at = 0;
  for (int s = 0; s < n; ++s) {
    const Floats theirs = values_of(s, begin(s, n));
    const std::int64_t first = begin(s, r), end = first + count(s, r);
    findings.expect(received.tensor.slice(at, at + count(s, r)).to_vector<float>() ==
                        Floats(theirs.begin() + first, theirs.begin() + end),
                    "part from rank " + std::to_string(s));
    at += count(s, r);
  }
  findings.expect(bytes.of(Collective::all_to_all) == 4 * to_others, "bytes of unequal parts");
}

/// Rows and columns of a mesh; a sum in two stages has the bits of a sum in one where the numbers
/// are powers of two.
inline void check_split(Communicator& world, Findings& findings) {
  const int n = world.size(), r = world.rank();
  const int shards = n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
  const auto shard = world.split(-(r / shards));   // of 8: 0 1 2 3 | 4 5 6 7
  const auto replicate = world.split(r % shards);  // 0 4 | 1 5 | 2 6 | 3 7
  findings.expect(shard->size() == shards && shard->rank() == r % shards, "shard group");
  findings.expect(replicate->size() == n / shards && replicate->rank() == r / shards,
                  "replicate group");
  const Tensor x = tensor_of(r, 100);
  const std::int64_t before = world.bytes_sent();
  shard->all_reduce({x}, compute());
  replicate->all_reduce({x}, compute());
  if (n == 1 || n == 2 || n == 4 || n == 8) {
    findings.expect(x.to_vector<float>() == summed(n, 100), "two stages");
  }
  findings.expect((n == 1) == (world.bytes_sent() == before), "the world counts its groups' bytes");
}

/// Calls on a side stream, late by chance.
inline void check_side_stream(Communicator& group, Findings& findings) {
  const Floats expected = summed(group.size(), 64);
  const Stream& side = context().side_stream("communication");
  static constexpr int kSeeds = 5;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomStream random(seed, "delay", static_cast<std::uint64_t>(group.rank()));
    std::uint64_t drawn = 0;
    side.set_delay([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(random.bits(drawn++) % 300));
    });
    std::vector<Event> events;
    std::vector<Tensor> results;
    for (int i = 0; i < 5; ++i) {
      const Tensor x = tensor_of(group.rank(), 64);
      results.push_back(x);
      side.wait(compute().record());
      events.push_back(group.all_reduce({x}, side));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      compute().wait(events[i]);
      findings.expect(results[i].to_vector<float>() == expected, "all_reduce");
    }
    side.set_delay({});
    side.synchronize();
  }
}

/// Two communicators in use at once, on two streams.
inline void check_two_streams(Communicator& world, Findings& findings) {
  const auto other = world.split(0);
  const Floats expected = summed(world.size(), 1000);
  const Stream& side = context().side_stream("communication");
  for (int i = 0; i < 20; ++i) {
    const Tensor x = tensor_of(world.rank(), 1000);
    const Tensor y = tensor_of(world.rank(), 1000);
    side.wait(compute().record());
    const Event reduced = other->all_reduce({y}, side);
    world.all_reduce({x}, compute());
    compute().wait(reduced);
    findings.expect(x.to_vector<float>() == expected, "compute stream");
    findings.expect(y.to_vector<float>() == expected, "side stream");
  }
  side.synchronize();
}

/// The time in calls is counted, groups' too, and each call is a span on its stream.
inline void check_time(Communicator& world, Findings& findings) {
  Profiler& profiler = context().profiler();
  const Stream& side = context().side_stream("communication");
  const std::size_t earlier = profiler.records().size();
  profiler.set_tracing(true);
  const double before = world.busy_ms();
  const Tensor x = tensor_of(world.rank(), 8);
  side.wait(compute().record());
  world.all_reduce({x}, side, "h.0").synchronize();
  world.barrier(compute());
  profiler.set_tracing(false);
  const double busy = world.busy_ms() - before;
  const std::vector<Profiler::Record> records = profiler.records();
  double spans_ms = 0.0;  // each span contains its call
  for (std::size_t i = earlier; i < records.size(); ++i) spans_ms += records[i].duration_us / 1e3;
  findings.expect(busy > 0.0, "calls are counted");
  if (context().device().is_cpu()) findings.expect(busy < 1.001 * spans_ms, "nothing else is");
  findings.expect(records.size() == earlier + 2, "one span per call");
  for (std::size_t i = earlier; i < records.size(); ++i) {
    const std::string expected = records[i].name == "barrier" ? "compute" : "communication";
    findings.expect(records[i].name == "barrier" || records[i].name == "all_reduce h.0",
                    "a span's name: " + records[i].name);
    findings.expect(records[i].track == expected, "a span's track: " + records[i].track);
  }
}

/// Tensors that do not fit a collective are refused before any rank waits.
inline void check_refusals(Communicator& group, Findings& findings) {
  const auto refuses = [&](const std::function<void()>& call, const std::string& message) {
    try {
      call();
      findings.expect(false, "accepted: " + message);
    } catch (const Error& error) {
      findings.expect(std::string(error.what()).find(message) != std::string::npos, error.what());
    }
  };
  const int n = group.size();
  const std::string ranks = std::to_string(n);
  const Tensor odd = tensor_of(0, n + 1);
  if (n > 1) {
    refuses([&] { group.all_gather({odd}, compute()); }, "cut into " + ranks + " equal parts");
  }
  refuses([&] { group.reduce_scatter({odd}, {tensor_of(0, n * (n + 2))}, compute()); },
          n > 1 ? "is not one of " + ranks : "is not one of");
  refuses([&] { group.broadcast({odd}, n, compute()); }, "no rank " + ranks + " of " + ranks);
  refuses([&] { group.all_to_all({odd}, {tensor_of(0, 3 * n)}, compute()); }, "cannot receive");
  refuses([&] { group.shift(odd, odd, n, compute()); }, "no rank " + ranks + " behind");
  refuses([&] { group.shift(odd, tensor_of(0, n), 0, compute()); }, "cannot receive");
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(n), 1);
  const Parts parts{tensor_of(0, n), ones}, more{odd, ones};
  refuses([&] { group.all_to_all_parts(parts, more, compute()); },
          "are not " + ranks + " parts of f32 [" + std::to_string(n + 1) + "]");
  std::vector<std::int64_t> other = ones;
  other[static_cast<std::size_t>(group.rank())] = 2;
  refuses([&] { group.all_to_all_parts({odd, other}, parts, compute()); }, "the rank's own part");
}

struct CommunicatorCheck {
  const char* name;
  void (*body)(Communicator&, Findings&);
};

inline constexpr CommunicatorCheck kCommunicatorChecks[] = {
    {"all_gather", check_all_gather},
    {"sums", check_sums},
    {"odd counts", check_odd_counts},
    {"large and mixed", check_large_and_mixed},
    {"moves", check_moves},
    {"unequal parts", check_unequal_parts},
    {"split", check_split},
    {"side stream", check_side_stream},
    {"two streams", check_two_streams},
    {"time", check_time},
    {"refusals", check_refusals},
};

/// Rank 0 aborts, and then rank 1: both must learn rank 0's reason, which is raised here. The ranks
/// are two threads. They share `first_has_aborted`, which begins as false.
inline void abort_one_after_another(Communicator& world, std::atomic<bool>& first_has_aborted,
                                    Findings& findings) {
  if (world.rank() == 0) {
    world.abort("the first reason");
    first_has_aborted = true;
  } else {
    while (!first_has_aborted) std::this_thread::yield();
    world.abort("the second reason");
  }
  findings.expect(world.aborted() == "the first reason", *world.aborted());
  world.raise_if_aborted();
}

}  // namespace tessera::test
