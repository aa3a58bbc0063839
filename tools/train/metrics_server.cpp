#include "tools/train/metrics_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include "runtime/check.h"
#include "sharding/comm/tcp/socket.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kClientsTime = std::chrono::seconds(2);
constexpr std::size_t kMostRequestBytes = 16 << 10;

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

std::string answer_with(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace

MetricsServer::MetricsServer(int port)
    : listener_(tcp::listen_on(port, "train.metrics_port", tcp::Reach::this_machine)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(stop_.number() >= 0, "cannot make an event for train.metrics_port");
  thread_ = std::thread([this] { serve(); });
}

MetricsServer::~MetricsServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_.number(), &one, sizeof one);
  thread_.join();
}

void MetricsServer::publish(std::string text) {
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
}

bool MetricsServer::wait_for(int socket, short events, int milliseconds) const {
  std::array<pollfd, 2> waits = {pollfd{.fd = socket, .events = events, .revents = 0},
                                 pollfd{.fd = stop_.number(), .events = POLLIN, .revents = 0}};
  return ::poll(waits.data(), waits.size(), milliseconds) > 0 && waits[1].revents == 0;
}

void MetricsServer::serve() {
  constexpr int kNoEnd = -1;
  while (wait_for(listener_.number(), POLLIN, kNoEnd)) {
    const Descriptor client(tcp::accept_from(listener_.number()));
    if (client.number() >= 0) answer(client.number());
  }
}

void MetricsServer::answer(int client) {
  const Clock::time_point end = Clock::now() + kClientsTime;
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos) {
    if (request.size() > kMostRequestBytes) return;
    if (!wait_for(client, POLLIN, milliseconds_until(end))) return;
    if (!tcp::receive_some(client, request)) return;
  }
  std::string bytes = answer_to(std::string_view(request).substr(0, request.find("\r\n")));
  while (tcp::send_some(client, bytes) && !bytes.empty()) {
    if (!wait_for(client, POLLOUT, milliseconds_until(end))) return;
  }
}

std::string MetricsServer::answer_to(std::string_view request) {
  if (!request.starts_with("GET ")) {
    return answer_with("405 Method Not Allowed", "only GET is answered\n");
  }
  if (!request.starts_with("GET /metrics ")) {
    return answer_with("404 Not Found", "the metrics are at /metrics\n");
  }
  const std::lock_guard lock(mutex_);
  return answer_with("200 OK", text_);
}

}  // namespace tessera
