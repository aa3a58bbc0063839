// MetricsServer: the last metrics of a run by HTTP, for Prometheus (train.metrics_port).
//
//   curl http://127.0.0.1:9100/metrics
//
// A thread answers GET /metrics on the loopback address, one client after another, each within two seconds.
// Training hands over a text and never waits for a client. The server of an HTTP library would need shared
// libraries, which the wheel's program cannot load.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/descriptor.h"

namespace tessera {

class MetricsServer {
 public:
  /// Raises Error if the port cannot be had.
  explicit MetricsServer(int port);
  /// Stops at once, also in the middle of an answer.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// The text of the answers from now on.
  void publish(std::string text);

 private:
  void serve();
  void answer(int client);
  /// Whether the client's socket is ready for `events` before the end of its time. False: the server stops,
  /// too.
  bool wait_for(int socket, short events, int milliseconds) const;
  /// The whole answer to a request's first line.
  std::string answer_to(std::string_view request);

  Descriptor listener_, stop_;
  std::mutex mutex_;
  std::string text_;
  std::thread thread_;
};

}  // namespace tessera
