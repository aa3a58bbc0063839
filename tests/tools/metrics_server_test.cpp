// train.metrics_port: a client reads the last metrics of a run, and a bad client disturbs nothing.
#include "tools/train/metrics_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <optional>
#include <thread>

#include "tests/support/error_of.h"
#include "tests/support/local_port.h"
#include "tests/tools/tiny_run.h"
#include "tools/train/prometheus.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;

/// A connection to the port, over which `request` is sent.
class Client {
 public:
  Client(int port, const std::string& request)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = test::address_of(port);
    connected_ = ::connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address),
                           sizeof address) == 0;
    if (connected_) ::send(socket_.number(), request.data(), request.size(), MSG_NOSIGNAL);
  }
  bool connected() const { return connected_; }
  /// All bytes up to the end of the connection.
  std::string answer() const {
    std::string all;
    char piece[4096];
    for (ssize_t count = 0; (count = ::recv(socket_.number(), piece, sizeof piece, 0)) > 0;) {
      all.append(piece, static_cast<std::size_t>(count));
    }
    return all;
  }

 private:
  Descriptor socket_;
  bool connected_ = false;
};

std::string get(int port, const std::string& path = "/metrics") {
  return Client(port, "GET " + path + " HTTP/1.1\r\nConnection: close\r\n\r\n").answer();
}

}  // namespace

TEST_CASE("metrics become samples of Prometheus's text format") {
  const json line = {{"step", 7},
                     {"loss", 2.5},
                     {"mfu", nullptr},
                     {"time", "now"},
                     {"peak_bytes", {{"optimizer", 12345}}},
                     {"expert_load", {1.5, 2.25}},
                     {"val_losses", {{"a\"\\\nb", 0.5}}}};
  const std::string text = prometheus_text(line);
  CHECK_THAT(text, Contains("# TYPE tessera_loss gauge\ntessera_loss 2.5\n") &&
                       Contains("tessera_step 7\n") &&
                       Contains("tessera_peak_bytes{key=\"optimizer\"} 12345\n") &&
                       Contains("tessera_expert_load{key=\"1\"} 2.25\n") &&
                       Contains("tessera_val_losses{key=\"a\\\"\\\\\\nb\"} 0.5\n") &&
                       !Contains("tessera_mfu") && !Contains("tessera_time"));
  const nlohmann::ordered_json watch = {{"units", {"embedding", "h.0"}},
                                        {"attention_logit", {nullptr, 3.5}}};
  CHECK_THAT(prometheus_watch(watch),
             Contains("# TYPE tessera_watch_attention_logit gauge\n"
                      "tessera_watch_attention_logit{unit=\"h.0\"} 3.5\n") &&
                 !Contains("embedding"));
}

TEST_CASE("the server answers with the last text, and tells bad requests what it has") {
  const int port = test::free_port();
  MetricsServer server(port);
  CHECK_THAT(get(port),
             Catch::StartsWith("HTTP/1.1 200 OK\r\n") && Contains("Content-Length: 0\r\n"));
  server.publish("tessera_loss 2\n");
  server.publish("tessera_loss 1\n");
  CHECK_THAT(get(port),
             Contains("Content-Length: 15\r\n") && Catch::EndsWith("\r\n\r\ntessera_loss 1\n"));
  CHECK_THAT(get(port, "/"), Catch::StartsWith("HTTP/1.1 404 ") && Contains("/metrics"));
  CHECK_THAT(
      Client(port, "POST /metrics HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
          .answer(),
      Catch::StartsWith("HTTP/1.1 405 "));
  CHECK(Client(port, std::string(1 << 20, 'x')).answer().size() < 500);
}

TEST_CASE("a client that says nothing neither keeps others out nor the server alive") {
  const int port = test::free_port();
  std::optional<MetricsServer> server(std::in_place, port);
  const Client silent(port, "GET /met");
  std::thread other([&] { CHECK_THAT(get(port), Catch::StartsWith("HTTP/1.1 200 OK")); });
  other.join();
  const Client again(port, "");
  server.reset();
  CHECK(again.answer() == "");
  CHECK_FALSE(Client(port, "").connected());
}

TEST_CASE("a port in use is one clear line, and the run folder stays as it is", "[cpu]") {
  const test::TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  const test::Listener taken;
  config.train.metrics_port = taken.port();
  const std::string error = test::error_of([&] { train(config); });
  CHECK_THAT(error, Contains(fmt::format("train.metrics_port {} cannot be used", taken.port())) &&
                        Contains("choose another port") && !Contains("\n"));
  CHECK_FALSE(std::filesystem::exists(config.train.dir / "metrics.jsonl"));
}

TEST_CASE("a run serves its metrics and readings while it trains, and no longer", "[cpu]") {
  const test::TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.metrics_port = test::free_port();
  config.train.watch = 2;
  const int port = static_cast<int>(config.train.metrics_port);
  std::string seen;
  std::atomic<bool> over = false;
  std::thread client([&] {
    while (!over) {
      std::string answer = get(port);
      if (answer.find("tessera_watch_") != std::string::npos) seen = std::move(answer);
      over = over || !seen.empty();
    }
  });
  // Again, if the client came too late.
  for (int run = 0; run < 50 && !over; ++run) {
    config.train.dir = folder / std::to_string(run);
    train(config);
  }
  over = true;
  client.join();
  CHECK_THAT(seen, Contains("\ntessera_loss ") && Contains("\ntessera_learning_rate ") &&
                       Contains("\ntessera_tokens_per_second ") &&
                       Contains("tessera_peak_bytes{key=\"total\"} ") &&
                       Contains("tessera_watch_update_ratio{unit=\"h.1\"} "));
  CHECK_FALSE(Client(port, "").connected());
}

}  // namespace tessera
