#include "sharding/comm/tcp/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>

#include "runtime/check.h"

namespace tessera::tcp {
namespace {

std::string reason() {
  return std::generic_category().message(errno);
}

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

/// A connection in progress is refused or there after this time, or is tried
/// again.
constexpr int kConnectMs = 2000;

/// Whether the connection was made.
bool finish_connecting(int socket) {
  pollfd waits{.fd = socket, .events = POLLOUT, .revents = 0};
  if (::poll(&waits, 1, kConnectMs) != 1) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

int listen_on(int port, const char* variable) {
  const int listener = ::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const bool has_ipv6 = listener >= 0;
  const int socket =
      has_ipv6 ? listener : ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  check(socket >= 0, "cannot open a socket: {}", reason());
  set(socket, SOL_SOCKET, SO_REUSEADDR, 1);  // a port that a run has just left
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;  // of IPv4 too
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  if (has_ipv6) set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const auto* const address =
      has_ipv6 ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  const auto size = static_cast<socklen_t>(has_ipv6 ? sizeof six : sizeof four);
  if (::bind(socket, address, size) != 0 || ::listen(socket, SOMAXCONN) != 0) {
    const int code = errno;
    ::close(socket);
    fail("{} {} cannot be used on this machine: {}; choose another port", variable, port,
         std::generic_category().message(code));
  }
  return socket;
}

int port_of(int listener) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  check(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0,
        "a listening socket has no port: {}", reason());
  return ntohs(address.sin6_port);  // at the same place in an address of IPv4
}

int accept_from(int listener) {
  const int socket = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (socket >= 0) set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

int connect_to(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code == EAI_AGAIN) return -1;
  check(code == 0, "MASTER_ADDR {} has no address: {}", host, ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    const int socket =
        ::socket(one->ai_family, one->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, one->ai_protocol);
    if (socket < 0) continue;
    const bool connected = ::connect(socket, one->ai_addr, one->ai_addrlen) == 0 ||
                           (errno == EINPROGRESS && finish_connecting(socket));
    if (connected) {
      set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
      return socket;
    }
    ::close(socket);
  }
  return -1;
}

void notice_dead_peer(int socket, std::chrono::milliseconds deadline) {
  const int seconds = static_cast<int>(std::clamp<std::int64_t>(deadline.count() / 1000, 3, 30));
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds / 3);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds / 3);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 2);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
      1000 * seconds);  // while something is being sent
}

bool send_some(int socket, std::string& bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    bytes.erase(0, static_cast<std::size_t>(count));
  }
  return true;
}

bool receive_some(int socket, std::string& bytes) {
  std::array<char, 1 << 16> piece;
  const ssize_t count = ::recv(socket, piece.data(), piece.size(), 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  bytes.append(piece.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return count > 0;
}

}  // namespace tessera::tcp
