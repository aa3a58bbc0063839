#include "sharding/comm/tcp/server.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

#include "runtime/check.h"
#include "sharding/comm/call.h"
#include "sharding/comm/tcp/socket.h"

namespace tessera::tcp {
namespace {

/// Connections that have not said which rank they are: so many, and for so
/// long.
constexpr std::size_t kMostStrangers = 64;
constexpr auto kStrangersTime = std::chrono::seconds(5);
/// How long the server stays for ranks that have not left, after a failure or
/// without them.
constexpr auto kGracePeriod = std::chrono::seconds(1);
constexpr int kPollMs = 50;

std::string with_rank(int rank, std::string_view text) {
  return bytes_of(static_cast<std::int32_t>(rank)).append(text);
}

}  // namespace

Server::Server(const TcpRank& own, const Deadline& deadline)
    : own_(own),
      deadline_(deadline),
      listener_(listen_on(own.port, "MASTER_PORT")),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ranks_(static_cast<std::size_t>(own.ranks), nullptr),
      machines_(ranks_.size(), 0) {
  check(wake_.number() >= 0, "cannot make an event: {}", std::strerror(errno));
  thread_ = std::thread([this] { run(); });
}

Server::~Server() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.number(), &one, sizeof one);
  thread_.join();
}

bool Server::is_over() const {
  if (!leaving_) return false;
  if (clock_.now() > *leaving_ + kGracePeriod) return true;
  return std::none_of(ranks_.begin(), ranks_.end(),
                      [](const Connection* rank) { return rank != nullptr; });
}

void Server::run() {
  while (!is_over()) {
    wait();
    const bool too_late = clock_.now() > end_;  // messages that are there already count
    accept_all();
    for (Connection& connection : connections_) {
      if (!connection.closes) read(connection);
    }
    drop_strangers();
    if (joined_ < own_.ranks && !failed_ && too_late) {
      std::vector<int> missing;
      for (int rank = 0; rank < own_.ranks; ++rank) {
        if (ranks_[rank] == nullptr) missing.push_back(rank);
      }
      fail(0, fmt::format("waited {} ms for {} to join at {}:{}", deadline_.count(),
                          list_ranks(missing), own_.host, own_.port));
    }
    for (Connection& connection : connections_) {
      if (send_some(connection.socket.number(), connection.out)) continue;
      connection.closes = true;
      connection.out.clear();
    }
    connections_.remove_if([&](const Connection& connection) {
      if (!connection.closes || !connection.out.empty()) return false;
      std::replace(ranks_.begin(), ranks_.end(), const_cast<Connection*>(&connection),
                   static_cast<Connection*>(nullptr));
      return true;
    });
  }
}

void Server::wait() {
  std::vector<pollfd> waits = {{.fd = listener_.number(), .events = POLLIN, .revents = 0}};
  if (!leaving_) waits.push_back({.fd = wake_.number(), .events = POLLIN, .revents = 0});
  for (const Connection& connection : connections_) {
    const auto events = static_cast<short>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT);
    waits.push_back({.fd = connection.socket.number(), .events = events, .revents = 0});
  }
  ::poll(waits.data(), waits.size(), kPollMs);
  if (!leaving_ && waits[1].revents != 0) leaving_ = clock_.now();
}

void Server::accept_all() {
  for (int socket; (socket = accept_from(listener_.number())) >= 0;) {
    connections_.emplace_back(socket, clock_.now());
    drop_strangers();
  }
}

void Server::drop_strangers() {
  std::size_t strangers = 0;
  // The newest first: those that have waited longest are dropped.
  for (auto one = connections_.rbegin(); one != connections_.rend(); ++one) {
    if (one->rank || one->closes) continue;
    if (++strangers > kMostStrangers || clock_.now() > one->accepted + kStrangersTime) {
      one->closes = true;
      one->out.clear();
    }
  }
}

void Server::read(Connection& connection) {
  const bool open = receive_some(connection.socket.number(), connection.in);
  try {
    while (!connection.closes) {
      const std::size_t longest = connection.rank ? kLongestToServer : sizeof(Hello);
      const auto message = take_message(connection.in, longest);
      if (!message) break;
      handle(connection, *message);
    }
  } catch (const Error& error) {
    connection.closes = true;
    if (connection.rank) {
      fail(0, failure_of(*connection.rank, own_.ranks,
                         fmt::format("its message is damaged: {}", error.what())));
      end_rank(connection);
    }
  }
  if (open || connection.closes) return;
  connection.closes = true;
  connection.out.clear();
  if (connection.rank && !connection.has_ended) {
    fail(0, fmt::format("rank {}: its process has ended, or its machine cannot be reached",
                        *connection.rank));
    end_rank(connection);
  }
}

void Server::handle(Connection& connection, const Message& message) {
  if (!connection.rank) return join(connection, message);
  std::string_view body = message.body;
  switch (message.kind) {
    case Kind::gather:
      return add_part(connection, body);
    case Kind::query:
      return answer_query(connection, body);
    case Kind::failed: {
      const auto reporter = take<std::int32_t>(body);
      return fail(reporter, std::string(body));
    }
    case Kind::ended:
      return end_rank(connection);
    default:
      tessera::fail("its kind is {}", static_cast<std::uint32_t>(message.kind));
  }
}

void Server::join(Connection& connection, const Message& message) {
  std::string_view body = message.body;
  check(message.kind == Kind::hello, "no rank begins so");
  const auto hello = take<Hello>(body);
  check(std::memcmp(hello.magic, kMagic, sizeof kMagic) == 0, "no rank begins so");
  const auto refuse = [&](const std::string& reason) {
    connection.out += encoded(Kind::refused, reason);
    connection.closes = true;
  };
  if (hello.run != hash_of(own_.run)) {
    return refuse(fmt::format("{}:{} is in use by another run", own_.host, own_.port));
  }
  if (hello.ranks != own_.ranks) {
    const std::string reason = fmt::format("rank {} has WORLD_SIZE={}, and rank 0 has {}",
                                           hello.rank, hello.ranks, own_.ranks);
    connection.out += encoded(Kind::failed, with_rank(0, reason));
    connection.closes = true;
    return fail(0, reason);
  }
  if (hello.rank < 0 || hello.rank >= own_.ranks) {
    return refuse(fmt::format("there is no rank {} of {}", hello.rank, own_.ranks));
  }
  if (machines_[hello.rank] != 0) {
    return refuse(fmt::format("RANK={} is there twice", hello.rank));
  }
  connection.rank = hello.rank;
  ranks_[hello.rank] = &connection;
  machines_[hello.rank] = hello.machine | 1;
  notice_dead_peer(connection.socket.number(), deadline_.length());
  if (failed_) connection.out += encoded(Kind::failed, *failed_);
  if (++joined_ == own_.ranks) welcome_all();
}

void Server::welcome_all() {
  std::string nodes;
  for (const std::uint64_t machine : machines_) {
    const auto first = std::find(machines_.begin(), machines_.end(), machine);
    nodes += bytes_of(static_cast<std::int32_t>(first - machines_.begin()));
  }
  send_all(Kind::welcome, nodes);
}

void Server::add_part(Connection& connection, std::string_view body) {
  const auto gather = take<Gather>(body);
  check(gather.ranks >= 1 && gather.ranks <= own_.ranks && gather.rank >= 0 &&
            gather.rank < gather.ranks,
        "there is no rank {} of {}", gather.rank, gather.ranks);
  Exchange& exchange = exchanges_[gather.key];
  if (exchange.parts.empty()) exchange.parts.resize(static_cast<std::size_t>(gather.ranks));
  check(static_cast<int>(exchange.parts.size()) == gather.ranks && !exchange.parts[gather.rank],
        "its group has another size, or it sent its part twice");
  exchange.parts[gather.rank] = std::string(body);
  exchange.senders.push_back(&connection);
  if (exchange.senders.size() < exchange.parts.size()) return;
  std::string all = bytes_of(gather.key);
  for (const auto& part : exchange.parts) {
    all += bytes_of(static_cast<std::uint32_t>(part->size()));
    all += *part;
  }
  for (Connection* const sender : exchange.senders) sender->out += encoded(Kind::gathered, all);
  exchanges_.erase(gather.key);
}

void Server::answer_query(Connection& connection, std::string_view body) {
  const auto key = take<GatherKey>(body);
  std::string answer = bytes_of(key);
  if (const auto found = exchanges_.find(key); found != exchanges_.end()) {
    const auto& parts = found->second.parts;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      if (parts[rank]) answer += bytes_of(static_cast<std::int32_t>(rank));
    }
  }
  connection.out += encoded(Kind::arrived, answer);
}

void Server::end_rank(Connection& connection) {
  if (std::exchange(connection.has_ended, true)) return;
  if (++ended_ == own_.ranks) send_all(Kind::ended, "");
}

void Server::fail(int reporter, const std::string& reason) {
  if (failed_) return;
  failed_ = with_rank(reporter, reason);
  send_all(Kind::failed, *failed_);
}

void Server::send_all(Kind kind, const std::string& body) {
  for (Connection* const rank : ranks_) {
    if (rank != nullptr) rank->out += encoded(kind, body);
  }
}

}  // namespace tessera::tcp
