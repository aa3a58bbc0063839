// Ports of this machine.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "runtime/check.h"
#include "runtime/descriptor.h"

namespace tessera::test {

inline sockaddr_in address_of(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  return address;
}

/// A listening socket of this machine, and its port.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = address_of(0);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    check(::bind(socket_.number(), any, size) == 0, "no port is free");
    check(::listen(socket_.number(), 8) == 0, "no port is free");
    check(::getsockname(socket_.number(), any, &size) == 0, "no port is free");
    port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }
  int accept() const { return ::accept(socket_.number(), nullptr, nullptr); }

 private:
  Descriptor socket_;
  int port_ = 0;
};

/// A port that no program listens on.
inline int free_port() {
  return Listener().port();
}

}  // namespace tessera::test
