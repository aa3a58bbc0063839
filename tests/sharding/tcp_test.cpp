// Ranks that find each other by TCP: their agreement, their failures, and
// strangers on the port.
#include "sharding/comm/tcp/tcp.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <thread>

#include "runtime/random.h"
#include "sharding/comm/tcp/message.h"
#include "sharding/comm/world.h"
#include "tests/sharding/communicator_checks.h"
#include "tests/support/local_port.h"
#include "tests/support/test_clock.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::abort_one_after_another;
using test::address_of;
using test::compute;
using test::Findings;
using test::free_port;
using test::Listener;
using test::tensor_of;
using Body = std::function<void(Communicator&)>;
using Outcomes = std::vector<std::string>;

constexpr auto kShort = std::chrono::milliseconds(500);
constexpr auto kLong = test::kSafetyLimit;
/// Passes the deadline, but no rank's wait for rank 0, which gives up first.
constexpr auto kPassed = kShort + std::chrono::seconds(1);
const std::string kQuiet = "failed elsewhere";

/// A connection that is not a rank's.
class Stranger {
 public:
  explicit Stranger(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = address_of(port);
    const auto* const any = reinterpret_cast<const sockaddr*>(&address);
    test::wait_for("the server is there",
                   [&] { return ::connect(socket_.number(), any, sizeof address) == 0; });
  }
  void send(std::string_view bytes) const {
    [[maybe_unused]] const auto sent =
        ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// Whether the server has closed the connection, without a word.
  bool is_dropped() const {
    char byte;
    return ::recv(socket_.number(), &byte, 1, MSG_DONTWAIT) == 0;
  }

 private:
  Descriptor socket_;
};

std::string hello_of(int rank, int ranks) {
  tcp::Hello hello{.rank = rank, .ranks = ranks, .run = tcp::hash_of(""), .machine = 1};
  std::memcpy(hello.magic, tcp::kMagic, sizeof hello.magic);
  return tcp::encoded(tcp::Kind::hello, tcp::bytes_of(hello));
}

TcpRank place(int port, int rank, int ranks) {
  return {.host = "127.0.0.1", .port = port, .rank = rank, .ranks = ranks};
}

/// A deadline that never passes: all ranks of the run end.
Deadline never() {
  static test::TestClock still;
  return {kShort, still};
}

/// The message with which a rank's part ends; empty: well.
std::string outcome_of(const TcpRank& own, const Body& body, const Deadline& deadline = never()) {
  try {
    run_tcp_rank(own, {.threads = 1, .deadline = deadline}, body);
  } catch (const FailedElsewhere&) {
    return kQuiet;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

Outcomes run_places(const std::vector<TcpRank>& places, const Body& body,
                    const Deadline& deadline = never()) {
  Outcomes outcomes(places.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < places.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = outcome_of(places[i], body, deadline); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

Outcomes run(int ranks, const Body& body, const Deadline& deadline = never()) {
  std::vector<TcpRank> places;
  const int port = free_port();
  for (int rank = 0; rank < ranks; ++rank) places.push_back(place(port, rank, ranks));
  return run_places(places, body, deadline);
}

/// The message, if exactly one rank has one and the others are quiet.
std::string only_message(Outcomes outcomes) {
  CAPTURE(outcomes);
  std::erase(outcomes, kQuiet);
  REQUIRE(outcomes.size() == 1);
  return outcomes[0];
}

#if !defined(__SANITIZE_THREAD__)
/// The messages of ranks that are processes, a line each. A quiet rank has
/// none.
std::string message_of_processes(int ranks, const Body& body) {
  const int port = free_port();
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    const std::string outcome = outcome_of(place(port, rank, ranks), body);
    if (outcome != kQuiet) {
      const std::string line = outcome + "\n";
      [[maybe_unused]] const auto written = ::write(ends[1], line.data(), line.size());
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char piece[4096];
  for (ssize_t count; (count = ::read(ends[0], piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  for (const pid_t process : processes) ::waitpid(process, nullptr, 0);
  return text;
}
#endif

const Body kBarriers = [](Communicator& world) {
  for (int i = 0; i < 1'000'000; ++i) world.barrier(compute());
};
const Body kOneBarrier = [](Communicator& world) { world.barrier(compute()); };

}  // namespace

TEST_CASE("tcp: ranks agree, split, wait for each other and pass small values", "[cpu]") {
  for (const int ranks : {1, 2, 5}) {
    Findings findings;
    const auto body = [&](Communicator& world) {
      const auto group = world.split(world.rank() % 2);
      findings.expect(group->size() == (ranks + 1 - world.rank() % 2) / 2, "size");
      findings.expect(group->rank() == world.rank() / 2, "rank");
      const Tensor x = tensor_of(group->rank() == 0 ? world.rank() : 9, 32);
      group->broadcast({x}, 0, compute(), "x");
      findings.expect(x.to_vector<float>() == test::values_of(world.rank() % 2, 32), "broadcast");
      for (int step = 0; step < 4; ++step) {
        group->barrier(compute());
        world.barrier(compute());
        world.next_step(compute());
      }
      findings.expect(world.ranks_per_node() == ranks, "all on one node");
    };
    CHECK(run(ranks, body) == Outcomes(static_cast<std::size_t>(ranks)));
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}

TEST_CASE("tcp: no rank passes a barrier before all have arrived", "[cpu]") {
  test::TestClock clock;
  std::atomic<int> arrived = 0;
  std::atomic<bool> early = false;
  const auto outcomes = run(3,
                            [&](Communicator& world) {
                              // Rank 2 comes when the others wait.
                              if (world.rank() == 2)
                                clock.pass_when_waiting(2, std::chrono::milliseconds(0));
                              ++arrived;
                              world.barrier(compute());
                              if (arrived != 3) early = true;
                            },
                            {kShort, clock});
  CHECK(outcomes == Outcomes(3));
  CHECK_FALSE(early);
}

TEST_CASE("tcp: tensors are left to NCCL", "[cpu]") {
  const auto sum = [](Communicator& world) { world.all_reduce({tensor_of(0, 4)}, compute()); };
  CHECK_THAT(only_message(run(2, sum)), Contains("ranks without MPI exchange tensors by NCCL"));
  const auto large = [](Communicator& world) {
    world.broadcast({tensor_of(0, 1 << 20)}, 0, compute());
  };
  CHECK_THAT(only_message(run(2, large)), Contains("ranks without MPI exchange tensors by NCCL"));
}

TEST_CASE("tcp: ranks that disagree are both named", "[cpu]") {
  const auto body = [](Communicator& world) {
    world.agree(Call{.outputs = {tensor_of(0, world.rank() == 2 ? 8 : 4)}, .label = "h.0"});
  };
  CHECK_THAT(only_message(run(3, body)),
             Contains("of 16 bytes in 1 tensor, for h.0, rank 2 makes") && Contains("of 32 bytes"));
  const auto later = [](Communicator& world) {
    for (int step = 0; step < 4; ++step) {
      const bool other = step == 3 && world.rank() == 1;
      world.broadcast({tensor_of(0, 4)}, 0, compute(), other ? "h.2" : "h.1");
      world.next_step(compute());
    }
  };
  CHECK_THAT(only_message(run(2, later)), Contains("for h.1, rank 1 makes") && Contains("h.2"));
}

TEST_CASE("tcp: a rank that raises ends the others, and is reported once", "[cpu]") {
  const auto raises = [](Communicator& world) {
    if (world.rank() == 1) throw Error("out of patience");
    kBarriers(world);
  };
  CHECK(only_message(run(3, raises)) == "rank 1: out of patience");
  std::atomic<int> left = 0;
  const auto last = [&](Communicator& world) {  // when the others have left
    if (world.rank() != 1) {
      ++left;
      return;
    }
    test::wait_for("the others leave", [&] { return left == 2; });
    throw Error("out of patience");
  };
  CHECK(only_message(run(3, last)) == "rank 1: out of patience");
}

TEST_CASE("tcp: ranks that abort at the same time all give the reason of the first", "[cpu]") {
  std::atomic<bool> first_has_aborted = false;
  Findings findings;
  const auto body = [&](Communicator& world) {
    abort_one_after_another(world, first_has_aborted, findings);
  };
  CHECK(only_message(run(2, body)) == "the first reason");
  CHECK(findings.wrong() == std::vector<std::string>{});
}

TEST_CASE("tcp: a rank that is missing is named when the deadline has passed", "[cpu]") {
  test::TestClock clock;
  std::atomic<int> in_groups = 0;
  const auto body = [&](Communicator& world) {
    const auto group = world.split(world.rank() == 0 ? 1 : 0);
    ++in_groups;
    if (world.rank() == 0) return;
    if (world.rank() == 1) {
      group->barrier(compute());
      return;
    }
    test::wait_for("all are in groups", [&] { return in_groups == 3; });
    clock.pass_when_waiting(1, kShort);
  };
  CHECK_THAT(
      only_message(run(3, body, {kShort, clock})),
      Contains("rank 1: waited 500 ms in call 0, barrier of 0 bytes in 0 tensors for rank 2"));
}

TEST_CASE("tcp: ranks that never come are named", "[cpu]") {
  const int port = free_port();
  const std::vector<TcpRank> some = {place(port, 0, 5), place(port, 2, 5)};
  test::TestClock clock;
  std::thread time([&] {
    clock.pass_after_waits(2, kPassed);  // both ask to join
    clock.pass_after_waits(4, kLong);    // both wait for the others to leave
  });
  CHECK(only_message(run_places(some, kOneBarrier, {kShort, clock})) ==
        fmt::format("waited 500 ms for ranks 1, 3, 4 to join at 127.0.0.1:{}", port));
  time.join();
  const std::vector<TcpRank> without_first = {place(port, 1, 2)};
  CHECK(only_message(run_places(without_first, kOneBarrier, std::chrono::milliseconds(1))) ==
        fmt::format("rank 1 waited 1 ms for rank 0 at 127.0.0.1:{}", port));
}

TEST_CASE("tcp: a port that is taken, or that another program answers, is one line", "[cpu]") {
  const Listener taken;
  CHECK(outcome_of(place(taken.port(), 0, 2), kOneBarrier) ==
        fmt::format("MASTER_PORT {} cannot be used on this machine: Address "
                    "already in use; choose "
                    "another port",
                    taken.port()));
  std::thread program([&] {
    const Descriptor client(taken.accept());
    [[maybe_unused]] const auto sent =
        ::send(client.number(), "SSH-2.0-OpenSSH_9.2\r\n", 21, MSG_NOSIGNAL);
    char piece[4096];  // the rank's first words; then the program ends the connection
    [[maybe_unused]] const auto received = ::recv(client.number(), piece, sizeof piece, 0);
  });
  CHECK_THAT(outcome_of(place(taken.port(), 1, 2), kOneBarrier),
             Contains("does not answer as rank 0 does: another program uses the port"));
  program.join();
}

TEST_CASE("tcp: ranks of another number, another run, or there twice, are refused", "[cpu]") {
  const int port = free_port();
  /// Rank 0, in a thread. The time passes for it alone.
  struct First {
    First(int port, int ranks)
        : thread([this, port, ranks] {
            outcome = outcome_of(place(port, 0, ranks), kOneBarrier, {kShort, clock});
          }) {}
    /// It has learned of a failure and waits for ranks that come late.
    const std::string& end() {
      clock.pass_after_waits(2, kLong);
      thread.join();
      return outcome;
    }
    test::TestClock clock;
    std::string outcome;
    std::thread thread;
  };
  {
    First first(port, 3);
    CHECK(outcome_of(place(port, 1, 4), kOneBarrier, kLong) == kQuiet);
    CHECK(outcome_of(place(port, 2, 3), kOneBarrier, kLong) == kQuiet);  // after the failure
    CHECK(first.end() == "rank 1 has WORLD_SIZE=4, and rank 0 has 3");
  }
  {
    First first(port, 2);
    TcpRank other_run = place(port, 1, 2);
    other_run.run = "another";
    CHECK_THAT(outcome_of(other_run, kOneBarrier, kLong), Contains("is in use by another run"));
    first.clock.pass_after_waits(1, kPassed);
    CHECK_THAT(first.end(), Contains("waited 500 ms for rank 1 to join"));
  }
  First first(port, 3);
  Outcomes both(2);
  std::atomic<int> ended = 0;
  std::vector<std::thread> seconds;
  for (std::string& outcome : both) {
    seconds.emplace_back([&] {
      outcome = outcome_of(place(port, 1, 3), kOneBarrier, kLong);
      ++ended;
    });
  }
  test::wait_for("one of the two is refused", [&] { return ended == 1; });
  first.clock.pass(kPassed);
  CHECK_THAT(first.end(), Contains("for rank 2 to join"));
  for (std::thread& second : seconds) second.join();
  CHECK(std::count(both.begin(), both.end(), "rank 1: RANK=1 is there twice") == 1);
}

TEST_CASE("tcp: strangers on the port are ignored, whatever they send", "[cpu]") {
  const int port = free_port();
  std::atomic<bool> done = false;
  const Body body = [&](Communicator& world) {
    for (bool ends = false; !ends;) {  // rank 0 decides for both
      const Tensor flag = Tensor::from(std::vector{done ? 1.0f : 0.0f}, {1});
      world.broadcast({flag}, 0, compute());
      ends = flag.item<float>() == 1.0f;
    }
  };
  // Rank 1 comes late, so that strangers are there before it and after it.
  Outcomes outcomes(2);
  test::TestClock clock;
  const Deadline deadline(std::chrono::hours(24), clock);
  std::thread first([&] { outcomes[0] = outcome_of(place(port, 0, 2), body, deadline); });
  std::vector<std::unique_ptr<Stranger>> strangers;
  const auto visit = [&] {
    const RandomStream random(7, "strangers", strangers.size());
    for (int i = 0; i < 50; ++i) {
      strangers.push_back(std::make_unique<Stranger>(port));
      std::string bytes;
      for (int k = 0; k < 3 * i; ++k) {
        bytes.push_back(static_cast<char>(random.bits(static_cast<std::uint64_t>(64 * i + k))));
      }
      strangers.back()->send(bytes);
    }
    const std::string hello = hello_of(1, 2);
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), std::string(100'000, '\xff'),
          std::string(64, '\0'), hello.substr(0, hello.size() - 1), hello_of(-1, 2), hello_of(2, 2),
          tcp::encoded(tcp::Kind::gather, "not yet"), tcp::encoded(tcp::Kind::hello, "")}) {
      strangers.push_back(std::make_unique<Stranger>(port));
      strangers.back()->send(bytes);
    }
  };
  visit();
  const Stranger silent(port);
  test::wait_for("the server drops the last one for its silence", [&] {
    clock.pass(std::chrono::milliseconds(100));
    return silent.is_dropped();
  });
  std::thread second([&] { outcomes[1] = outcome_of(place(port, 1, 2), body, deadline); });
  visit();
  const Stranger last(port);
  test::wait_for("the server has met the last one, too", [&] {
    clock.pass(std::chrono::milliseconds(100));
    return last.is_dropped();
  });
  done = true;
  first.join();
  second.join();
  CHECK(outcomes == Outcomes(2));
}

TEST_CASE("tcp: a rank's damaged message ends the run, and names the rank", "[cpu]") {
  for (const std::string& bytes :
       {std::string("garbage, and more of it"), tcp::encoded(tcp::Kind::gather, "short"),
        tcp::encoded(tcp::Kind::welcome, ""), tcp::encoded(tcp::Kind::failed, ""),
        tcp::encoded(tcp::Kind::query, "x"),
        tcp::encoded(tcp::Kind::gather, tcp::bytes_of(tcp::Gather{.rank = 5, .ranks = 2})),
        tcp::encoded(tcp::Kind::gather, tcp::bytes_of(tcp::Gather{.rank = 0, .ranks = -1}))}) {
    const int port = free_port();
    std::string outcome;
    std::thread first([&] { outcome = outcome_of(place(port, 0, 2), kBarriers); });
    const Stranger rank(port);
    rank.send(hello_of(1, 2));
    rank.send(bytes);
    first.join();
    CHECK_THAT(outcome, Contains("rank 1: its message is damaged"));
  }
}

#if !defined(__SANITIZE_THREAD__)  // it refuses threads after a fork
TEST_CASE("tcp: a process that dies is named by those that remain", "[cpu]") {
  for (const int victim : {0, 1, 2}) {
    const auto dies = [&](Communicator& world) {
      world.barrier(compute());
      if (world.rank() == victim) ::kill(::getpid(), SIGKILL);
      kBarriers(world);
    };
    CHECK(message_of_processes(3, dies) ==
          fmt::format("rank {}: its process has ended, or its machine cannot "
                      "be reached\n",
                      victim));
  }
}

TEST_CASE("tcp: ranks that are processes end well together", "[cpu]") {
  const auto body = [](Communicator& world) {
    for (int i = 0; i < 100; ++i) world.barrier(compute());
  };
  CHECK(message_of_processes(4, body) == "\n\n\n\n");
}
#endif

}  // namespace tessera
