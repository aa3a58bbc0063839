// Transfers: a set of messages that are under way between the ranks of one communicator.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "sharding/comm/mpi/job.h"

namespace tessera {

class Transfers {
 public:
  /// `members`: what the ranks of `comm` are called in messages, and their ranks in the job.
  Transfers(MpiJob& job, MPI_Comm comm, const std::vector<int>& members)
      : job_(job), comm_(comm), members_(members) {}
  /// After a failure: what has not begun to arrive shall not be written any more. Tensors, whose
  /// messages may be long and half way, are kept by the job instead.
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
      MPI_Request& request = pending_.emplace_back(MPI_REQUEST_NULL, members_[to]).request;
      check_mpi(MPI_Isend(static_cast<const std::byte*>(data) + offset, count, MPI_BYTE, to, 0,
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
      MPI_Request& request = pending_.emplace_back(MPI_REQUEST_NULL, members_[from]).request;
      check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + offset, count, MPI_BYTE, from, 0, comm_,
                          &request),
                "receiving");
    });
  }
  void receive(int from, const Tensor& tensor) {
    receive(from, tensor.raw(), static_cast<std::int64_t>(tensor.bytes()));
  }

  void wait(const std::function<std::string()>& what) { job_.wait(pending_, what); }

  /// Of all messages so far.
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  /// MPI counts in int; longer messages go in several.
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
  std::vector<MpiJob::Pending> pending_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace tessera
