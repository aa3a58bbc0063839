// Transfers: a set of messages under way between the ranks of one communicator.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "sharding/comm/mpi/job.h"

namespace tessera {

class Transfers {
 public:
  /// MPI matches messages by tag. Comparisons of calls never match tensors.
  static constexpr int kTensors = 0;
  static constexpr int kComparison = 1;

  /// `members`: the ranks of `comm` by their numbers in the job.
  Transfers(MpiJob& job, MPI_Comm comm, const std::vector<int>& members, int tag = kTensors)
      : job_(job), comm_(comm), members_(members), tag_(tag) {}
  /// After a failure: cancels messages that have not begun to arrive. Long messages may be halfway,
  /// so the job keeps their tensors.
  ~Transfers() {
    for (MpiJob::Pending& one : pending_) {
      MPI_Cancel(&one.request);
      MPI_Request_free(&one.request);
    }
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void send(int to, const void* data, std::int64_t bytes) {
    for_each_message(bytes, [&](std::int64_t offset, int count) {
      MPI_Request& request =
          pending_.emplace_back(MpiJob::Pending{MPI_REQUEST_NULL, members_[to]}).request;
      check_mpi(MPI_Isend(static_cast<const std::byte*>(data) + offset, count, MPI_BYTE, to, tag_,
                          comm_, &request),
                "sending");
    });
    bytes_sent_ += bytes;
  }
  void send(int to, const Tensor& tensor) {
    send(to, tensor.raw(), static_cast<std::int64_t>(tensor.bytes()));
  }

  void receive(int from, void* data, std::int64_t bytes) {
    for_each_message(bytes, [&](std::int64_t offset, int count) {
      MPI_Request& request =
          pending_.emplace_back(MpiJob::Pending{MPI_REQUEST_NULL, members_[from]}).request;
      check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + offset, count, MPI_BYTE, from, tag_,
                          comm_, &request),
                "receiving");
    });
  }
  void receive(int from, const Tensor& tensor) {
    receive(from, tensor.raw(), static_cast<std::int64_t>(tensor.bytes()));
  }

  /// Returns when all messages are complete. `call` describes the call for the message about a
  /// missed deadline.
  void wait(const std::function<std::string()>& call) { job_.wait(pending_, call); }

  /// Bytes of all messages sent so far.
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  /// MPI counts in int, so longer messages are sent in several.
  static constexpr std::int64_t kLongestMessage = std::int64_t{1} << 30;

  template <typename Body>
  static void for_each_message(std::int64_t bytes, const Body& body) {
    for (std::int64_t offset = 0; offset < bytes; offset += kLongestMessage) {
      body(offset, static_cast<int>(std::min(kLongestMessage, bytes - offset)));
    }
  }

  MpiJob& job_;
  MPI_Comm comm_;
  const std::vector<int>& members_;
  int tag_;
  std::vector<MpiJob::Pending> pending_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace tessera
