// A client of an HTTP server on this machine: one request per connection.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "runtime/descriptor.h"
#include "tests/support/local_port.h"

namespace tessera::test {

struct HttpAnswer {
  int status = 0;
  std::string body;
  /// The data of the events, if the body is a stream of them.
  std::vector<std::string> events;
};

class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = address_of(port);
    const auto* const any = reinterpret_cast<const sockaddr*>(&address);
    check(::connect(socket_.number(), any, sizeof address) == 0, "no server listens on {}", port);
  }

  void send(const std::string& method, const std::string& path, const std::string& body) {
    send_bytes(
        fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    method, path, body.size(), body));
  }
  void send_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the server has answered already
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  /// Reads on until the server has sent this text.
  void read_until(const std::string& text) {
    while (received_.find(text) == received_.npos) check(read_some(), "no '{}' came", text);
  }
  /// Reads to the end.
  HttpAnswer answer() {
    while (read_some()) continue;
    const std::size_t head = received_.find("\r\n\r\n");
    check(head != received_.npos && received_.starts_with("HTTP/1.1 "), "no answer came");
    HttpAnswer answer = {.status = std::atoi(received_.c_str() + 9), .body = {}, .events = {}};
    const bool chunked = received_.substr(0, head).find("chunked") != received_.npos;
    answer.body = chunked ? joined_chunks(head + 4) : received_.substr(head + 4);
    for (std::size_t at = 0; answer.body.compare(at, 6, "data: ") == 0;) {
      const std::size_t end = answer.body.find("\n\n", at);
      answer.events.push_back(answer.body.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return answer;
  }

 private:
  bool read_some() {
    char bytes[4096];
    const auto count = ::recv(socket_.number(), bytes, sizeof bytes, 0);
    if (count > 0) received_.append(bytes, static_cast<std::size_t>(count));
    return count > 0;
  }
  std::string joined_chunks(std::size_t at) const {
    std::string body;
    while (true) {
      const std::size_t line = received_.find("\r\n", at);
      check(line != received_.npos, "the stream was cut off");
      const std::size_t size = std::stoul(received_.substr(at, line - at), nullptr, 16);
      if (size == 0) return body;
      body += received_.substr(line + 2, size);
      at = line + 2 + size + 2;
    }
  }

  Descriptor socket_;
  std::string received_;
};

}  // namespace tessera::test
