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
constexpr auto kLong = std::chrono::seconds(20);
const std::string kQuiet = "failed elsewhere";

/// A connection that is not a rank's.
class Stranger {
 public:
  explicit Stranger(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = address_of(port);
    for (int i = 0; i < 500; ++i) {
      const auto* const any = reinterpret_cast<const sockaddr*>(&address);
      if (::connect(socket_.number(), any, sizeof address) == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL("no server");
  }
  void send(std::string_view bytes) const {
    [[maybe_unused]] const auto sent =
        ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// All bytes until the server closes the connection.
  std::string receive_all() const {
    std::string all;
    char piece[4096];
    for (ssize_t count; (count = ::recv(socket_.number(), piece, sizeof piece, 0)) > 0;) {
      all.append(piece, static_cast<std::size_t>(count));
    }
    return all;
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

/// The message with which a rank's part ends; empty: well.
std::string outcome_of(const TcpRank& own, const Body& body,
                       std::chrono::milliseconds deadline = kLong) {
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
                    std::chrono::milliseconds deadline = kLong) {
  Outcomes outcomes(places.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < places.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = outcome_of(places[i], body, deadline); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

Outcomes run(int ranks, const Body& body, std::chrono::milliseconds deadline = kLong) {
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
  std::atomic<int> arrived = 0;
  std::atomic<bool> early = false;
  const auto outcomes = run(3, [&](Communicator& world) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * world.rank()));
    ++arrived;
    world.barrier(compute());
    if (arrived != 3) early = true;
  });
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
  const auto last = [](Communicator& world) {  // when the others have left
    if (world.rank() != 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
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
  const auto body = [](Communicator& world) {
    const auto group = world.split(world.rank() == 0 ? 1 : 0);
    if (world.rank() == 2) std::this_thread::sleep_for(3 * kShort);
    group->barrier(compute());
  };
  CHECK_THAT(
      only_message(run(3, body, kShort)),
      Contains("rank 1: waited 500 ms in call 0, barrier of 0 bytes in 0 tensors for rank 2"));
}

TEST_CASE("tcp: ranks that never come are named", "[cpu]") {
  const int port = free_port();
  const std::vector<TcpRank> some = {place(port, 0, 5), place(port, 2, 5)};
  CHECK(only_message(run_places(some, kOneBarrier, kShort)) ==
        fmt::format("waited 500 ms for ranks 1, 3, 4 to join at 127.0.0.1:{}", port));
  const std::vector<TcpRank> without_first = {place(port, 1, 2)};
  CHECK(only_message(run_places(without_first, kOneBarrier, kShort)) ==
        fmt::format("rank 1 waited 500 ms for rank 0 at 127.0.0.1:{}", port));
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
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  CHECK_THAT(outcome_of(place(taken.port(), 1, 2), kOneBarrier),
             Contains("does not answer as rank 0 does: another program uses the port"));
  program.join();
}

TEST_CASE("tcp: ranks of another number, another run, or there twice, are refused", "[cpu]") {
  const int port = free_port();
  std::string late;  // a rank that joins after the failure
  std::thread third([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    late = outcome_of(place(port, 2, 3), kOneBarrier);
  });
  CHECK(only_message(run_places({place(port, 0, 3), place(port, 1, 4)}, kOneBarrier)) ==
        "rank 1 has WORLD_SIZE=4, and rank 0 has 3");
  third.join();
  CHECK(late == kQuiet);

  TcpRank other_run = place(port, 1, 2);
  other_run.run = "another";
  const Outcomes outcomes = run_places({place(port, 0, 2), other_run}, kOneBarrier, kShort);
  CHECK_THAT(outcomes[0], Contains("waited 500 ms for rank 1 to join"));
  CHECK_THAT(outcomes[1], Contains("is in use by another run"));

  const std::vector<TcpRank> twice = {place(port, 0, 3), place(port, 1, 3), place(port, 1, 3)};
  Outcomes both = run_places(twice, kOneBarrier, kShort);
  CHECK_THAT(both[0], Contains("for rank 2 to join"));
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
  std::thread first([&] { outcomes[0] = outcome_of(place(port, 0, 2), body); });
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
  CHECK(
      Stranger(port).receive_all().empty());  // dropped, for one that came later or for its silence
  std::thread second([&] { outcomes[1] = outcome_of(place(port, 1, 2), body); });
  visit();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
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
