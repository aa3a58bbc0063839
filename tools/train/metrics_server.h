// MetricsServer: the last metrics of a run by HTTP, for Prometheus (train.metrics_port).
//
//   curl http://127.0.0.1:9100/metrics
//
// A thread answers on the loopback address. Training hands over a text and never waits for a client.
#pragma once

#include <string>
#include <thread>

#include "tools/http/http_server.h"

namespace tessera {

class MetricsServer {
 public:
  /// Raises Error if the port cannot be had.
  explicit MetricsServer(int port);
  /// Stops at once, also in the middle of a reply.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// The text of the replies from now on.
  void publish(std::string text);

 private:
  void answer(const HttpRequest& request, HttpReply& reply) const;

  std::string text_;  // of the server's thread
  HttpServer http_;
  std::thread thread_;
};

}  // namespace tessera
