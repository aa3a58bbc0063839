// An HTTP server on one thread: requests come in whole, replies go out whole or as a stream of events.
//
// libevent reads and writes HTTP. It is small, links statically, and one thread of it serves any number
// of clients. http_server.cpp alone includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/descriptor.h"

struct evconnlistener;
struct event;
struct event_base;
struct evhttp;
struct evhttp_bound_socket;
struct evhttp_connection;
struct evhttp_request;

namespace tessera {

struct HttpOptions {
  /// An IP address of this machine, or localhost.
  std::string host = "127.0.0.1";
  /// 0: any free port.
  int port = 0;
  /// The name of the port's setting, for errors.
  const char* port_setting = "--port";
};

struct HttpRequest {
  /// GET or POST. Other methods are refused before.
  std::string method;
  /// Without the query, and decoded: %2F is "/".
  std::string path;
  std::string body;
  /// The body was longer than HttpServer::kMostBody, and is left out.
  bool too_long = false;
};

class HttpServer;

/// The reply to one request, for the server's thread. Calls after the end, or for a client that is gone,
/// do nothing.
class HttpReply {
 public:
  HttpReply(HttpServer& server, evhttp_request* request);
  ~HttpReply();
  HttpReply(const HttpReply&) = delete;
  HttpReply& operator=(const HttpReply&) = delete;

  /// The whole reply.
  void send(int status, const std::string& body, const char* content_type = "application/json");
  /// A stream of server-sent events, each with one line of data (HTML standard, section 9.2).
  void begin_events();
  void send_event(const std::string& data);
  void end_events();
  /// `gone` is called if the client closes the connection before the end. Half-closing counts.
  void when_gone(std::function<void()> gone) { gone_ = std::move(gone); }

 private:
  friend class HttpServer;

  /// The connection of a reply that has not ended.
  evhttp_connection* connection() const;
  /// From now on libevent owns the request, and ends the reply.
  evhttp_request* release();
  /// The client has closed the connection.
  void lose();

  HttpServer& server_;
  evhttp_request* request_;   // null after the end
  ::event* close_ = nullptr;  // the client closes the connection
  std::function<void()> gone_;
};

class HttpServer {
 public:
  /// The longest body that a handler gets, in bytes.
  static constexpr std::size_t kMostBody = std::size_t{4} << 20;

  using Handler = std::function<void(const HttpRequest&, const std::shared_ptr<HttpReply>&)>;

  /// Takes the port. Clients wait until run(). Raises Error if the port cannot be had. `handler` runs on
  /// the server's thread and raises nothing.
  HttpServer(const HttpOptions& options, Handler handler);
  /// Closes all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  /// Whether only programs of this machine can reach it.
  bool is_loopback() const { return is_loopback_; }

  /// Calls `handler` on the server's thread for the first SIGINT or SIGTERM. The next one has its old
  /// effect.
  void on_stop_signal(std::function<void(int signal)> handler);
  /// Serves until finish() or stop(). The calling thread gets no SIGPIPE from then on.
  void run();

  // From any thread:

  /// Runs `task` on the server's thread.
  void post(std::function<void()> task);
  /// Refuses new connections.
  void stop_accepting();
  /// run() returns when all replies have been sent.
  void finish();
  /// run() returns at once.
  void stop();

 private:
  friend class HttpReply;
  struct Callbacks;

  void listen(const HttpOptions& options);
  void handle(evhttp_request* request);
  void run_tasks();
  void reply_is_over(HttpReply& reply);

  Handler handler_;
  Descriptor wake_;
  std::unique_ptr<event_base, void (*)(event_base*)> base_;
  std::unique_ptr<evhttp, void (*)(evhttp*)> http_;
  using Event = std::unique_ptr<::event, void (*)(::event*)>;
  std::vector<Event> signals_;
  Event task_event_;
  evconnlistener* listener_ = nullptr;
  evhttp_bound_socket* bound_ = nullptr;  // has the listener
  int port_ = 0;
  bool is_loopback_ = false;
  bool finishes_ = false;
  std::function<void(int)> stop_handler_;
  std::set<std::shared_ptr<HttpReply>> replies_;  // that have not been sent
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;  // guarded
};

}  // namespace tessera
