// The collectives of ranks that are threads: results, order of sums, bytes, overlap and faults.
#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>
#include <thread>

#include "sharding/comm/communicator.h"
#include "sharding/comm/threads.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using test::normal_tensor;
using test::same_bits;
using Floats = std::vector<float>;

namespace {

const std::vector<int> kRanks = {1, 2, 3, 4, 6, 8};

/// Rank r's values, the same wherever they are made.
Floats values_of(int rank, std::int64_t count) {
  const RandomStream random(11, "rank", static_cast<std::uint64_t>(rank));
  Floats values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(random.normal(static_cast<std::uint64_t>(i)));
  }
  return values;
}

Tensor tensor_of(int rank, std::int64_t count) {
  return Tensor::from(values_of(rank, count), {count});
}

/// The documented tree, written down a second time.
float tree(const Floats& leaves, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return leaves[begin];
  std::size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree(leaves, begin, begin + half) + tree(leaves, begin + half, end);
}

/// The sums over `ranks` ranks of their values.
Floats summed(int ranks, std::int64_t count) {
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

/// Catch's assertions belong to one thread: ranks collect what is wrong, and the test looks at the
/// end.
class Findings {
 public:
  void expect(bool holds, const std::string& what) {
    if (holds) return;
    const std::lock_guard lock(mutex_);
    wrong_.push_back(what);
  }
  std::vector<std::string> wrong() const { return wrong_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> wrong_;
};

void run(int ranks, const std::function<void(Communicator&, Findings&)>& body) {
  INFO(ranks << " ranks");
  Findings findings;
  run_ranks({.ranks = ranks, .threads = 1, .deadline = std::chrono::seconds(20)},
            [&](Communicator& communicator) { body(communicator, findings); });
  CHECK(findings.wrong() == std::vector<std::string>{});
}

const Stream& compute() {
  return context().compute_stream();
}

}  // namespace

TEST_CASE("sums over ranks follow the documented tree, bit for bit") {
  const test::Rank rank(2);
  for (int ranks = 1; ranks <= 9; ++ranks) {
    Tensors sources;
    for (int r = 0; r < ranks; ++r) sources.push_back(tensor_of(r, 3000));
    const Tensor result = Tensor::empty({3000}, DType::f32);
    reduce_over_ranks(result, sources, Reduction::sum);
    CHECK(result.to_vector<float>() == summed(ranks, 3000));
    reduce_over_ranks(sources.back(), sources, Reduction::sum);  // over one of the sources
    CHECK(sources.back().to_vector<float>() == summed(ranks, 3000));
  }
}

TEST_CASE("16-bit sums are formed in f32, integers are exact, and NaN is a maximum") {
  const test::Rank rank;
  // In bf16 256 + 1 is 256 again: rounding at every addition would lose both ones.
  const auto bf16 = [](float value) { return Tensor::from(std::vector{bfloat16(value)}, {1}); };
  const Tensors sources = {bf16(256), bf16(1), bf16(1), bf16(0)};
  const Tensor narrow = bf16(0);
  const Tensor wide = Tensor::zeros({1}, DType::f32);
  reduce_over_ranks(narrow, sources, Reduction::sum);
  reduce_over_ranks(wide, sources, Reduction::sum);
  CHECK(static_cast<float>(narrow.item<bfloat16>()) == 258.0f);
  CHECK(wide.item<float>() == 258.0f);

  const std::int64_t large = (std::int64_t{1} << 60) + 1;
  const Tensor integer = Tensor::from(std::vector<std::int64_t>{large}, {1});
  reduce_over_ranks(integer, Tensors{integer, integer, integer}, Reduction::sum);
  CHECK(integer.item<std::int64_t>() == 3 * large);

  const auto f32 = [](float value) { return Tensor::from(Floats{value}, {1}); };
  reduce_over_ranks(wide, Tensors{f32(-3), f32(2), f32(-1)}, Reduction::maximum);
  CHECK(wide.item<float>() == 2.0f);
  for (int at = 0; at < 3; ++at) {
    Tensors with_nan = {f32(1), f32(2), f32(3)};
    with_nan[at] = f32(std::nanf(""));
    reduce_over_ranks(wide, with_nan, Reduction::maximum);
    CHECK(std::isnan(wide.item<float>()));
  }
  REQUIRE_THROWS_WITH(reduce_over_ranks(wide, Tensors{integer}, Reduction::sum),
                      Catch::Contains("i64 [1]"));
}

TEST_CASE("all_gather fills in every part, several tensors at once, empty ones too") {
  for (const int n : kRanks) {
    run(n, [n](Communicator& group, Findings& findings) {
      const int r = group.rank();
      const std::vector<std::int64_t> parts = {5, 0, 1, 300};
      Tensors wholes;
      for (const std::int64_t part : parts) {
        wholes.push_back(Tensor::zeros({n * part}, DType::f32));
        wholes.back().slice(r * part, (r + 1) * part).copy_from(tensor_of(r, part));
      }
      group.all_gather(wholes, compute());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        for (int s = 0; s < n; ++s) {
          const Tensor part = wholes[i].slice(s * parts[i], (s + 1) * parts[i]);
          findings.expect(part.to_vector<float>() == values_of(s, parts[i]), "part");
        }
      }
      // Each other rank receives this one's 306 floats.
      findings.expect(group.bytes_sent(Collective::all_gather) == (n - 1) * 306 * 4, "bytes");
      findings.expect(group.bytes_sent() == (n - 1) * 306 * 4, "all bytes");
    });
  }
}

TEST_CASE("reduce_scatter, all_reduce and reduce form the same sums") {
  constexpr std::int64_t kPart = 37;
  for (const int n : kRanks) {
    const Floats expected = summed(n, n * kPart);
    run(n, [&](Communicator& group, Findings& findings) {
      const int r = group.rank();
      const Tensor whole = tensor_of(r, n * kPart);
      const Tensor part = Tensor::empty({kPart}, DType::f32);
      group.reduce_scatter({part}, {whole}, compute());
      findings.expect(part.to_vector<float>() ==
                          Floats(expected.begin() + r * kPart, expected.begin() + (r + 1) * kPart),
                      "reduce_scatter");
      findings.expect(whole.to_vector<float>() == values_of(r, n * kPart), "inputs are kept");
      findings.expect(group.bytes_sent(Collective::reduce_scatter) == (n - 1) * kPart * 4,
                      "reduce_scatter's bytes");

      const Tensor everywhere = tensor_of(r, n * kPart);
      group.all_reduce({everywhere}, compute());
      findings.expect(everywhere.to_vector<float>() == expected, "all_reduce");
      findings.expect(group.bytes_sent(Collective::all_reduce) == 2 * (n - 1) * kPart * 4,
                      "all_reduce's bytes");

      const int root = n - 1;
      const Tensor at_root = tensor_of(r, n * kPart);
      group.reduce({at_root}, root, compute());
      if (r == root) findings.expect(at_root.to_vector<float>() == expected, "reduce");
      const std::int64_t own = r == root ? 0 : kPart;
      findings.expect(group.bytes_sent(Collective::reduce) == ((n - 1) * kPart + own) * 4,
                      "reduce's bytes");
    });
  }
}

TEST_CASE("all_reduce takes counts that the ranks do not divide, and maxima") {
  for (const int n : kRanks) {
    for (const std::int64_t count : {0, 1, 5, 1001}) {
      const Floats expected = summed(n, count);
      run(n, [&](Communicator& group, Findings& findings) {
        const Tensor x = tensor_of(group.rank(), count);
        group.all_reduce({x}, compute());
        findings.expect(x.to_vector<float>() == expected, "sum");
        const Tensor largest = Tensor::from(Floats{static_cast<float>(group.rank())}, {1});
        group.all_reduce({largest}, compute(), "largest", Reduction::maximum);
        findings.expect(largest.item<float>() == static_cast<float>(n - 1), "maximum");
      });
    }
  }
}

TEST_CASE("broadcast and all_to_all move what they say") {
  for (const int n : kRanks) {
    run(n, [n](Communicator& group, Findings& findings) {
      const int r = group.rank();
      for (int root = 0; root < n; ++root) {
        const Tensor x = tensor_of(r, 40);
        group.broadcast({x}, root, compute());
        findings.expect(x.to_vector<float>() == values_of(root, 40), "broadcast");
      }
      findings.expect(group.bytes_sent(Collective::broadcast) == (n - 1) * 160, "bytes");

      const Tensor sent = tensor_of(r, 7 * n);
      const Tensor received = Tensor::empty({7 * n}, DType::f32);
      group.all_to_all({received}, {sent}, compute());
      for (int s = 0; s < n; ++s) {
        const Floats theirs = values_of(s, 7 * n);
        findings.expect(received.slice(7 * s, 7 * (s + 1)).to_vector<float>() ==
                            Floats(theirs.begin() + 7 * r, theirs.begin() + 7 * (r + 1)),
                        "all_to_all");
      }
      findings.expect(group.bytes_sent(Collective::all_to_all) == (n - 1) * 28, "bytes");
    });
  }
}

TEST_CASE("split: groups of a mesh, and a sum in two stages has the bits of a sum in one") {
  const Floats expected = summed(8, 100);
  run(8, [&](Communicator& world, Findings& findings) {
    const int r = world.rank();
    const auto shard = world.split(r / 4);      // 0 1 2 3 | 4 5 6 7
    const auto replicate = world.split(r % 4);  // 0 4 | 1 5 | 2 6 | 3 7
    findings.expect(shard->size() == 4 && shard->rank() == r % 4, "shard group");
    findings.expect(replicate->size() == 2 && replicate->rank() == r / 4, "replicate group");
    const Tensor x = tensor_of(r, 100);
    shard->all_reduce({x}, compute());
    replicate->all_reduce({x}, compute());
    findings.expect(x.to_vector<float>() == expected, "two stages");
  });
}

TEST_CASE("calls on a side stream overlap with work and change no bit, whatever the delays") {
  const Floats expected = summed(4, 64);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    run(4, [&](Communicator& group, Findings& findings) {
      const Stream& side = context().side_stream("communication");
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
        events.push_back(group.all_reduce({x}, side));
      }
      for (std::size_t i = 0; i < results.size(); ++i) {
        compute().wait(events[i]);
        findings.expect(results[i].to_vector<float>() == expected, "all_reduce");
      }
      side.synchronize();
    });
  }
}

TEST_CASE("a rank that raises ends the others, and the first failure is told") {
  for (const int n : {2, 4}) {
    const auto body = [](Communicator& group) {
      if (group.rank() == 1) throw Error("out of patience");
      group.barrier(compute());
    };
    REQUIRE_THROWS_WITH(run_ranks({.ranks = n, .threads = 1}, body), "rank 1: out of patience");
  }
}

TEST_CASE("ranks that disagree are both named") {
  const auto fails_with = [](const std::function<void(Communicator&)>& body,
                             const std::string& message) {
    REQUIRE_THROWS_WITH(run_ranks({.ranks = 3, .threads = 1}, body), Catch::Contains(message));
  };
  fails_with(
      [](Communicator& group) {
        const Tensor x = tensor_of(group.rank(), group.rank() == 2 ? 8 : 4);
        group.all_reduce({x}, compute(), "h.0");
      },
      "rank 0 makes call 0, all_reduce of 16 bytes in 1 tensor, for h.0, rank 2 makes call 0, "
      "all_reduce of 32 bytes in 1 tensor, for h.0");
  fails_with(
      [](Communicator& group) {
        const Tensor x = tensor_of(group.rank(), 3);
        if (group.rank() == 1) {
          group.broadcast({x}, 0, compute());
        } else {
          group.all_reduce({x}, compute());
        }
      },
      "rank 1 makes call 0, broadcast");
  fails_with(
      [](Communicator& group) {
        group.barrier(compute());
        group.broadcast({tensor_of(0, 3)}, group.rank() == 2 ? 1 : 0, compute());
      },
      "ranks disagree: rank 0 makes call 1, broadcast");
}

TEST_CASE("a rank that does not come is named when the deadline has passed") {
  const auto body = [](Communicator& group) {
    if (group.rank() == 1 || group.rank() == 3) return;
    group.barrier(compute());
  };
  REQUIRE_THROWS_WITH(
      run_ranks({.ranks = 4, .threads = 1, .deadline = std::chrono::milliseconds(50)}, body),
      Catch::Contains("waited 50 ms") && Catch::Contains("for ranks 1, 3"));
}

TEST_CASE("tensors that do not fit a collective are refused before anybody waits") {
  run(2, [](Communicator& group, Findings& findings) {
    const auto refuses = [&](const std::function<void()>& call, const std::string& message) {
      try {
        call();
        findings.expect(false, "accepted: " + message);
      } catch (const Error& error) {
        findings.expect(std::string(error.what()).find(message) != std::string::npos, error.what());
      }
    };
    const Tensor odd = tensor_of(0, 3);
    refuses([&] { group.all_gather({odd}, compute()); }, "cannot be cut into 2 equal parts");
    refuses([&] { group.reduce_scatter({odd}, {tensor_of(0, 4)}, compute()); }, "is not one of 2");
    refuses([&] { group.broadcast({odd}, 2, compute()); }, "no rank 2 of 2");
    refuses([&] { group.all_to_all({odd}, {tensor_of(0, 4)}, compute()); }, "cannot receive");
  });
}

}  // namespace tessera
