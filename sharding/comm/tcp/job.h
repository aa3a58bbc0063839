// TcpJob: one rank of a TCP rendezvous, and how the ranks end together.
//
// A thread reads the server's messages, so a rank learns of another's failure
// while it waits for something else. Rank 0 also has the server.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sharding/comm/deadline.h"
#include "sharding/comm/tcp/server.h"

namespace tessera {

class TcpJob {
 public:
  /// Returns when all ranks have joined. Raises Error if the port is taken, if
  /// another program answers there, or with the ranks that are missing when the
  /// deadline has passed.
  TcpJob(const TcpRank& own, const Deadline& deadline);
  ~TcpJob();
  TcpJob(const TcpJob&) = delete;
  TcpJob& operator=(const TcpJob&) = delete;

  int rank() const { return own_.rank; }
  int size() const { return own_.ranks; }
  /// A number of the node of every rank, the same for ranks of one machine.
  const std::vector<int>& nodes() const { return nodes_; }

  /// Every rank of a group gets every other rank's bytes. All of them pass the
  /// same key. Raises Error if another rank has failed, or when the deadline
  /// has passed. `call` describes the call and `members` are the group's ranks,
  /// for the message.
  std::vector<std::string> gather(const tcp::Gather& gather, const std::string& own,
                                  const std::function<std::string()>& call,
                                  const std::vector<int>& members);

  /// Ends the job on all ranks with `reason`, unless it has failed before.
  /// Returns when the first reason is known.
  void abort(const std::string& reason);
  /// The reason, if the job has failed.
  std::optional<std::string> failure();
  /// Raises Error with the reason if the job has failed.
  void raise_if_failed();

  /// Waits for the other ranks to leave their bodies too; after a failure for a
  /// short while only. Returns the failure of the job: the rank that reports
  /// it, and the reason. Empty if no rank failed.
  struct Failure {
    int rank;
    std::string reason;
  };
  std::optional<Failure> end();

 private:
  void connect();
  void say_hello();
  void wait_for_all();
  void read();
  void handle(const tcp::Message& message);
  void send(tcp::Kind kind, const std::string& body);
  /// Keeps the first failure.
  void keep_failure(int reporter, const std::string& reason);
  std::vector<int> missing_in(const tcp::Gather& gather, const std::vector<int>& members,
                              std::unique_lock<std::mutex>& lock);

  const TcpRank own_;
  const Deadline deadline_;
  DeadlineClock& clock_ = deadline_.clock();
  const DeadlineClock::TimePoint end_ = deadline_.end();
  std::unique_ptr<tcp::Server> server_;
  std::optional<Descriptor> socket_;
  std::vector<int> nodes_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::string out_;
  std::map<tcp::GatherKey, std::vector<std::string>> gathered_;
  std::map<tcp::GatherKey, std::vector<int>> arrived_;
  std::optional<Failure> failure_;
  std::optional<std::string> refused_;
  bool welcome_ = false;
  bool all_ended_ = false;
  bool closed_ = false;
  std::atomic<bool> stops_ = false;
  std::thread reader_;
};

}  // namespace tessera
