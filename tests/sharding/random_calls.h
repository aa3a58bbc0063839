// Sequences of random calls, and the results that each rank computes alone.
//
// A call is any collective with any number of tensors of any dtype and count, empty ones included,
// by the world or by a group split from it, on either stream. Every rank knows the inputs of all
// ranks. So it computes the results and the bytes sent without communication.
#pragma once

#include <iterator>
#include <numeric>

#include "runtime/random.h"
#include "tests/sharding/communicator_checks.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

/// Numbers drawn one after another; ranks that name the same stream draw the same.
class Dice {
 public:
  Dice(std::uint64_t seed, std::string_view name) : random_(seed, name) {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_.below(drawn_++, static_cast<std::uint64_t>(bound)));
  }

 private:
  RandomStream random_;
  std::uint64_t drawn_ = 0;
};

/// One call without the ranks' inputs.
struct RandomCall {
  Collective collective;
  int root;
  std::vector<std::int64_t> counts;  // of the whole tensors
  std::vector<DType> dtypes;
  std::uint64_t seed;
};

inline RandomCall draw_call(Dice& dice, int ranks) {
  constexpr Collective kinds[] = {Collective::all_gather, Collective::reduce_scatter,
                                  Collective::all_reduce, Collective::broadcast,
                                  Collective::reduce,     Collective::all_to_all,
                                  Collective::shift};
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::i64};
  RandomCall call{
      kinds[dice.below(std::size(kinds))], static_cast<int>(dice.below(ranks)), {}, {}, 0};
  const bool any_count =
      call.collective == Collective::all_reduce || call.collective == Collective::reduce ||
      call.collective == Collective::broadcast || call.collective == Collective::shift;
  const bool one_tensor = call.collective == Collective::shift;
  for (std::int64_t tensors = one_tensor ? 1 : dice.below(5); tensors > 0; --tensors) {
    const std::int64_t largest = std::int64_t{1} << dice.below(12);
    call.counts.push_back(dice.below(largest) * (any_count ? 1 : ranks));
    call.dtypes.push_back(dtypes[dice.below(4)]);
  }
  call.seed = static_cast<std::uint64_t>(dice.below(1 << 30));
  return call;
}

/// Tensor i of the inputs of `rank`.
inline Tensor input_of(const RandomCall& call, int rank, std::size_t i) {
  const RandomStream random(call.seed, "input", static_cast<std::uint64_t>(rank), i);
  const auto fill = [&]<typename T>(T) {
    std::vector<T> values;
    for (std::int64_t k = 0; k < call.counts[i]; ++k) {
      const auto bits = random.bits(static_cast<std::uint64_t>(k));
      values.push_back(T(static_cast<float>(bits % 20001) * 1e-3f - 10.0f));
    }
    return Tensor::from(values, {call.counts[i]});
  };
  switch (call.dtypes[i]) {
    case DType::bf16:
      return fill(bfloat16());
    case DType::f16:
      return fill(float16());
    case DType::i64:
      return fill(std::int64_t());
    default:
      return fill(float());
  }
}

/// Tensor i of rank r after the call; undefined if its contents are unspecified.
inline Tensor expected_result(const RandomCall& call, int ranks, int r, std::size_t i) {
  const std::int64_t part = call.counts[i] / ranks;
  Tensors all;
  for (int s = 0; s < ranks; ++s) all.push_back(input_of(call, s, i));
  const Tensor result = all[r].clone();
  const auto part_of = [&](const Tensor& whole, int s) {
    return whole.slice(part * s, part * (s + 1));
  };
  switch (call.collective) {
    case Collective::all_gather:
      for (int s = 0; s < ranks; ++s) part_of(result, s).copy_from(part_of(all[s], s));
      return result;
    case Collective::all_to_all:
      for (int s = 0; s < ranks; ++s) part_of(result, s).copy_from(part_of(all[s], r));
      return result;
    case Collective::broadcast:
      return all[call.root];
    case Collective::shift:
      return all[(r + ranks - call.root) % ranks];
    case Collective::reduce_scatter:
      tree_reduce(result, all, Reduction::sum);
      return part_of(result, r);
    default:
      tree_reduce(result, all, Reduction::sum);
      return call.collective == Collective::all_reduce || r == call.root ? result : Tensor();
  }
}

/// Bytes that the others must receive from rank r of tensor i.
inline std::int64_t expected_bytes(const RandomCall& call, int ranks, int r, std::size_t i) {
  const std::int64_t count = call.counts[i];
  const std::int64_t share = count * (r + 1) / ranks - count * r / ranks;
  const auto elements = [&]() -> std::int64_t {
    switch (call.collective) {
      case Collective::all_reduce:
        return count - share + share * (ranks - 1);
      case Collective::reduce:
        return count - share + (r == call.root ? 0 : share);
      case Collective::broadcast:
        return r == call.root ? count * (ranks - 1) : 0;
      case Collective::shift:
        return call.root == 0 ? 0 : count;
      default:
        return share * (ranks - 1);
    }
  };
  return elements() * static_cast<std::int64_t>(size_of(call.dtypes[i]));
}

/// Makes the call; returns the tensors to look at.
inline Tensors make_call(Communicator& group, const RandomCall& call, const Stream& stream) {
  const int n = group.size();
  Tensors mine, outputs;
  for (std::size_t i = 0; i < call.counts.size(); ++i) {
    mine.push_back(input_of(call, group.rank(), i));
    const bool scatters = call.collective == Collective::reduce_scatter;
    outputs.push_back(Tensor::zeros({call.counts[i] / (scatters ? n : 1)}, call.dtypes[i]));
  }
  stream.wait(compute().record());
  const auto done = [&](const Event& event, const Tensors& results) {
    event.synchronize();
    return results;
  };
  switch (call.collective) {
    case Collective::all_gather:
      return done(group.all_gather(mine, stream), mine);
    case Collective::all_reduce:
      return done(group.all_reduce(mine, stream), mine);
    case Collective::broadcast:
      return done(group.broadcast(mine, call.root, stream), mine);
    case Collective::shift:
      return done(group.shift(outputs[0], mine[0], call.root, stream), outputs);
    case Collective::reduce:
      return done(group.reduce(mine, call.root, stream), mine);
    case Collective::reduce_scatter:
      return done(group.reduce_scatter(outputs, mine, stream), outputs);
    default:
      return done(group.all_to_all(outputs, mine, stream), outputs);
  }
}

inline void check_random_calls(Communicator& world, Findings& findings) {
  constexpr int kCalls = 60;
  // The last group has the remaining rank, so groups differ in size.
  const auto group = world.split(world.rank() / 2);
  const Stream* const streams[] = {&compute(), &context().side_stream("communication")};
  Dice dice(5, "calls");
  for (int number = 0; number < kCalls; ++number) {
    Communicator& here = dice.below(2) == 0 ? world : *group;
    const Stream& stream = *streams[dice.below(2)];
    // Groups of other sizes draw other calls, but all ranks draw as many numbers from `dice`.
    Dice own(static_cast<std::uint64_t>(dice.below(1 << 30)), "call");
    const RandomCall call = draw_call(own, here.size());
    const std::int64_t before = world.bytes_sent(call.collective);
    const Tensors results = make_call(here, call, stream);
    const std::int64_t sent = world.bytes_sent(call.collective) - before;
    const auto what = [&] {
      return std::string(name_of(call.collective)) + ", call " + std::to_string(number);
    };
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      bytes += expected_bytes(call, here.size(), here.rank(), i);
      const Tensor expected = expected_result(call, here.size(), here.rank(), i);
      findings.expect(!expected.defined() || same_bits(results[i], expected), what());
    }
    findings.expect(sent == bytes, "bytes of " + what());
  }
  streams[1]->synchronize();
}

}  // namespace tessera::test
