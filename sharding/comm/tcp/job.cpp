#include "sharding/comm/tcp/job.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/check.h"
#include "sharding/comm/call.h"
#include "sharding/comm/tcp/socket.h"
#include "sharding/comm/world.h"

namespace tessera {

using tcp::Kind;

namespace {

constexpr int kPollMs = 20;
constexpr auto kBetweenTries = std::chrono::milliseconds(50);
/// For answers that the server gives at once.
constexpr auto kAnswerTime = std::chrono::seconds(2);
/// How long a rank waits for the others to leave, after a failure.
constexpr auto kGracePeriod = std::chrono::seconds(1);
constexpr std::size_t kLongestToRank = std::size_t{1} << 30;

std::string machine_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

TcpJob::TcpJob(const TcpRank& own, const Deadline& deadline) : own_(own), deadline_(deadline) {
  if (own_.rank == 0) server_ = std::make_unique<tcp::Server>(own_, deadline);
  connect();
  say_hello();
  reader_ = std::thread([this] { read(); });
  try {
    wait_for_all();
  } catch (const Error&) {
    stops_ = true;
    reader_.join();
    throw;
  }
}

TcpJob::~TcpJob() {
  stops_ = true;
  reader_.join();
  socket_.reset();  // before the server, which waits for it
}

void TcpJob::connect() {
  const std::string host = own_.rank == 0 ? "localhost" : own_.host;
  for (;;) {
    const int socket = tcp::connect_to(host, own_.port);
    if (socket >= 0) {
      socket_.emplace(socket);
      return tcp::notice_dead_peer(socket, deadline_.length());
    }
    check(clock_.now() < end_, "rank {} waited {} ms for rank 0 at {}:{}", own_.rank,
          deadline_.count(), own_.host, own_.port);
    std::this_thread::sleep_for(kBetweenTries);
  }
}

void TcpJob::say_hello() {
  tcp::Hello hello{.rank = own_.rank,
                   .ranks = own_.ranks,
                   .run = tcp::hash_of(own_.run),
                   .machine = tcp::hash_of(machine_name())};
  std::memcpy(hello.magic, tcp::kMagic, sizeof hello.magic);
  send(Kind::hello, tcp::bytes_of(hello));
}

void TcpJob::wait_for_all() {
  std::unique_lock lock(mutex_);
  // The server is the first to give up, and names the ranks that are missing.
  const bool heard = clock_.wait(changed_, lock, end_ + kAnswerTime,
                                 [&] { return welcome_ || failure_ || refused_ || closed_; });
  check(!refused_, "rank {}: {}", own_.rank, refused_.value_or(""));
  check(welcome_ || failure_ || !heard || !closed_,
        "rank {}: {}:{} does not answer as rank 0 does: another program uses "
        "the port; choose another "
        "MASTER_PORT",
        own_.rank, own_.host, own_.port);
  check(heard, "rank {} waited {} ms for rank 0 at {}:{}", own_.rank, deadline_.count(), own_.host,
        own_.port);
}

void TcpJob::read() {
  std::string in;
  bool open = true;
  while (open && !stops_) {
    {
      const std::lock_guard lock(mutex_);
      open = tcp::send_some(socket_->number(), out_);
    }
    pollfd waits{.fd = socket_->number(), .events = POLLIN, .revents = 0};
    if (::poll(&waits, 1, kPollMs) > 0) open = tcp::receive_some(socket_->number(), in) && open;
    const std::lock_guard lock(mutex_);
    try {
      while (const auto message = tcp::take_message(in, kLongestToRank)) handle(*message);
    } catch (const Error&) {
      open = false;  // it is not our server
    }
    if (!open) closed_ = true;
    changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  if (closed_ && welcome_ && !all_ended_) {
    keep_failure(1, "rank 0: its process has ended, or its machine cannot be reached");
  }
  changed_.notify_all();
}

/// Under the mutex.
void TcpJob::handle(const tcp::Message& message) {
  std::string_view body = message.body;
  switch (message.kind) {
    case Kind::welcome:
      nodes_ = tcp::take_all<int>(body);
      check(static_cast<int>(nodes_.size()) == own_.ranks, "a welcome to other ranks");
      welcome_ = true;
      return;
    case Kind::refused:
      refused_ = std::string(body);
      return;
    case Kind::gathered: {
      std::vector<std::string>& parts = gathered_[tcp::take<tcp::GatherKey>(body)];
      while (!body.empty()) {
        const auto length = tcp::take<std::uint32_t>(body);
        tcp::check_length(body, length);
        parts.emplace_back(body.substr(0, length));
        body.remove_prefix(length);
      }
      return;
    }
    case Kind::arrived: {
      const auto key = tcp::take<tcp::GatherKey>(body);
      arrived_[key] = tcp::take_all<int>(body);
      return;
    }
    case Kind::failed: {
      const auto reporter = tcp::take<std::int32_t>(body);
      return keep_failure(reporter, std::string(body));
    }
    case Kind::ended:
      all_ended_ = true;
      return;
    default:
      fail("an unknown message");
  }
}

void TcpJob::send(Kind kind, const std::string& body) {
  const std::lock_guard lock(mutex_);
  out_ += tcp::encoded(kind, body);
  tcp::send_some(socket_->number(),
                 out_);  // the reader notices a connection that has ended
}

void TcpJob::keep_failure(int reporter, const std::string& reason) {
  if (!failure_) failure_ = Failure{reporter, reason};
}

std::vector<std::string> TcpJob::gather(const tcp::Gather& gather, const std::string& own,
                                        const std::function<std::string()>& call,
                                        const std::vector<int>& members) {
  raise_if_failed();
  send(Kind::gather, tcp::bytes_of(gather) + own);
  std::unique_lock lock(mutex_);
  const auto there = [&] { return gathered_.contains(gather.key); };
  const bool heard =
      clock_.wait(changed_, lock, deadline_.end(), [&] { return there() || failure_; });
  if (there()) {
    std::vector<std::string> parts = std::move(gathered_[gather.key]);
    gathered_.erase(gather.key);
    check(static_cast<int>(parts.size()) == gather.ranks, "an exchange of another group");
    return parts;
  }
  if (failure_) throw Error(failure_->reason);
  check(heard, "waited {} ms in {} for {}", deadline_.count(), call(),
        list_ranks(missing_in(gather, members, lock)));
  return {};
}

std::vector<int> TcpJob::missing_in(const tcp::Gather& gather, const std::vector<int>& members,
                                    std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  send(Kind::query, tcp::bytes_of(gather.key));
  lock.lock();
  clock_.wait(changed_, lock, clock_.now() + kAnswerTime,
              [&] { return arrived_.contains(gather.key) || closed_; });
  if (!arrived_.contains(gather.key)) return {0};  // it has the server
  const std::vector<int>& arrived = arrived_[gather.key];
  std::vector<int> missing;
  for (int rank = 0; rank < gather.ranks; ++rank) {
    if (std::find(arrived.begin(), arrived.end(), rank) == arrived.end()) {
      missing.push_back(members[static_cast<std::size_t>(rank)]);
    }
  }
  return missing;
}

void TcpJob::abort(const std::string& reason) {
  if (failure()) return;
  send(Kind::failed, tcp::bytes_of(static_cast<std::int32_t>(own_.rank)) + reason);
  std::unique_lock lock(mutex_);
  clock_.wait(changed_, lock, clock_.now() + kAnswerTime, [&] { return failure_ || closed_; });
  keep_failure(own_.rank, reason);
}

std::optional<std::string> TcpJob::failure() {
  const std::lock_guard lock(mutex_);
  if (!failure_) return std::nullopt;
  return failure_->reason;
}

void TcpJob::raise_if_failed() {
  if (const auto reason = failure()) throw Error(*reason);
}

std::optional<TcpJob::Failure> TcpJob::end() {
  send(Kind::ended, "");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return all_ended_ || failure_ || closed_; });
  if (failure_)
    clock_.wait(changed_, lock, clock_.now() + kGracePeriod, [&] { return all_ended_ || closed_; });
  return failure_;
}

}  // namespace tessera
