// The server of a TCP rendezvous: rank 0's thread that passes small messages
// between the ranks.
//
// It knows no tensors and makes no decisions about them. It waits for all
// ranks, hands each exchange of a group to its members when all have sent their
// part, and passes the first failure on to all. A rank whose connection ends
// before it has left its body has failed.
//
// The port is open to strangers: connections that do not begin as a rank's are
// closed, and only some of them are kept waiting. Ranks are not proven to be
// ours. So the port belongs behind a firewall, as those of MPI and NCCL do.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/descriptor.h"
#include "sharding/comm/deadline.h"
#include "sharding/comm/tcp/message.h"
#include "sharding/comm/tcp/options.h"

namespace tessera::tcp {

class Server {
 public:
  /// Takes the port and starts the thread. Raises Error if the port is taken.
  Server(const TcpRank& own, const Deadline& deadline);
  /// Waits until all ranks have left. After a failure, or if some never came,
  /// for a second only.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  struct Connection {
    Connection(int number, DeadlineClock::TimePoint now) : socket(number), accepted(now) {}

    Descriptor socket;
    DeadlineClock::TimePoint accepted;
    std::string in;
    std::string out;
    std::optional<int> rank;
    bool has_ended = false;
    bool closes = false;
  };
  struct Exchange {
    /// The bytes of each rank of the group; empty: not yet there.
    std::vector<std::optional<std::string>> parts;
    std::vector<Connection*> senders;
  };

  void run();
  /// Waits for connections and bytes, at most a short while.
  void wait();
  void accept_all();
  void drop_strangers();
  void read(Connection& connection);
  void handle(Connection& connection, const Message& message);
  void join(Connection& connection, const Message& message);
  void welcome_all();
  void add_part(Connection& connection, std::string_view body);
  void answer_query(Connection& connection, std::string_view body);
  void end_rank(Connection& connection);
  void fail(int reporter, const std::string& reason);
  void send_all(Kind kind, const std::string& body);
  bool is_over() const;

  const TcpRank own_;
  const Deadline deadline_;
  DeadlineClock& clock_ = deadline_.clock();
  const DeadlineClock::TimePoint end_ = deadline_.end();
  Descriptor listener_;
  Descriptor wake_;  // an eventfd: the destructor has begun
  std::list<Connection> connections_;
  /// By rank; -1: not yet there.
  std::vector<Connection*> ranks_;
  std::vector<std::uint64_t> machines_;
  int joined_ = 0;
  int ended_ = 0;
  std::map<GatherKey, Exchange> exchanges_;
  /// The body of the message about the first failure.
  std::optional<std::string> failed_;
  std::optional<DeadlineClock::TimePoint> leaving_;
  std::thread thread_;
};

}  // namespace tessera::tcp
