#include "tools/train/metrics_server.h"

#include <utility>

namespace tessera {

MetricsServer::MetricsServer(int port)
    : http_({.port = port, .port_setting = "train.metrics_port"},
            [this](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
              answer(request, *reply);
            }),
      thread_([this] { http_.run(); }) {}

MetricsServer::~MetricsServer() {
  http_.stop();
  thread_.join();
}

void MetricsServer::publish(std::string text) {
  http_.post([this, text = std::move(text)]() mutable { text_ = std::move(text); });
}

void MetricsServer::answer(const HttpRequest& request, HttpReply& reply) const {
  const auto send = [&](int status, const std::string& text) {
    reply.send(status, text, "text/plain; version=0.0.4; charset=utf-8");
  };
  if (request.method != "GET") return send(405, "only GET is answered\n");
  if (request.path != "/metrics") return send(404, "the metrics are at /metrics\n");
  send(200, text_);
}

}  // namespace tessera
