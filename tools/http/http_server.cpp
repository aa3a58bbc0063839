#include "tools/http/http_server.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <utility>

#include "runtime/check.h"

namespace tessera {
namespace {

/// A client that sends, or takes, nothing for so long is gone.
constexpr timeval kPatience{60, 0};
constexpr ev_ssize_t kMostHeaders = 64 << 10;
/// libevent answers a longer body itself, without JSON.
constexpr ev_ssize_t kMostRead = 16 << 20;
/// Bytes that a client may send before it has its reply.
constexpr std::size_t kMostAhead = 64 << 10;

sockaddr_storage address_of(const HttpOptions& options) {
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  sockaddr_storage address{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  const auto port = htons(static_cast<std::uint16_t>(options.port));
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    address.ss_family = AF_INET;
    v4.sin_port = port;
  } else {
    check(::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1,
          "--host {}: expected localhost or an IP address of this machine, such as 127.0.0.1 or "
          "0.0.0.0",
          options.host);
    address.ss_family = AF_INET6;
    v6.sin6_port = port;
  }
  return address;
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
  }
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

std::string body_of(evhttp_request* request) {
  evbuffer* const buffer = evhttp_request_get_input_buffer(request);
  std::string body(evbuffer_get_length(buffer), '\0');
  evbuffer_remove(buffer, body.data(), body.size());
  return body;
}

std::string path_of(evhttp_request* request) {
  const evhttp_uri* const uri = evhttp_request_get_evhttp_uri(request);
  const char* const path = uri != nullptr ? evhttp_uri_get_path(uri) : nullptr;
  if (path == nullptr) return "";
  std::size_t size = 0;
  const std::unique_ptr<char, void (*)(void*)> decoded(
      evhttp_uridecode(path, /*decode_plus=*/0, &size), std::free);
  return {decoded.get(), size};
}

using Buffer = std::unique_ptr<evbuffer, void (*)(evbuffer*)>;

Buffer buffer_of(std::string_view text) {
  Buffer buffer(evbuffer_new(), evbuffer_free);
  evbuffer_add(buffer.get(), text.data(), text.size());
  return buffer;
}

void add_header(evhttp_request* request, const char* name, const char* value) {
  evhttp_add_header(evhttp_request_get_output_headers(request), name, value);
}

}  // namespace

/// Functions that libevent calls. No exception may leave them.
struct HttpServer::Callbacks {
  static HttpServer& server_of(void* server) { return *static_cast<HttpServer*>(server); }

  static void request(evhttp_request* request, void* server) { server_of(server).handle(request); }

  static void task(evutil_socket_t /*wake*/, short /*events*/, void* server) {
    server_of(server).run_tasks();
  }

  static void signal(evutil_socket_t number, short /*events*/, void* server) {
    server_of(server).signals_.clear();
    server_of(server).stop_handler_(static_cast<int>(number));
  }

  /// Too many files are open: try again in a second.
  static void accept_failed(evconnlistener* listener, void* server) {
    evconnlistener_disable(listener);
    const timeval second{1, 0};
    event_base_once(server_of(server).base_.get(), -1, EV_TIMEOUT, accept_again, server, &second);
  }
  static void accept_again(evutil_socket_t /*none*/, short /*events*/, void* server) {
    if (evconnlistener* const listener = server_of(server).listener_) {
      evconnlistener_enable(listener);
    }
  }

  /// The client has closed its end: so does the server, and `lost` follows.
  static void closed(evutil_socket_t /*socket*/, short /*events*/, void* reply) {
    evhttp_connection_free(static_cast<HttpReply*>(reply)->connection());
  }
  static void lost(evhttp_connection* /*connection*/, void* reply) {
    static_cast<HttpReply*>(reply)->lose();
  }
  /// The reply has been written: the connection may take another request.
  static void sent(evhttp_request* request, void* reply) {
    evhttp_connection* const connection = evhttp_request_get_connection(request);
    evhttp_connection_set_closecb(connection, nullptr, nullptr);
    bufferevent* const stream = evhttp_connection_get_bufferevent(connection);
    bufferevent_set_timeouts(stream, &kPatience, &kPatience);
    bufferevent_setwatermark(stream, EV_READ, 0, 0);
    auto& own = *static_cast<HttpReply*>(reply);
    own.server_.reply_is_over(own);
  }
};

HttpReply::HttpReply(HttpServer& server, evhttp_request* request)
    : server_(server), request_(request) {
  evhttp_connection* const connection = evhttp_request_get_connection(request);
  evhttp_connection_set_closecb(connection, HttpServer::Callbacks::lost, this);
  evhttp_request_set_on_complete_cb(request, HttpServer::Callbacks::sent, this);
  bufferevent* const stream = evhttp_connection_get_bufferevent(connection);
  bufferevent_set_timeouts(stream, nullptr, &kPatience);
  bufferevent_setwatermark(stream, EV_READ, 0, kMostAhead);
  close_ = event_new(server.base_.get(), bufferevent_getfd(stream), EV_CLOSED,
                     HttpServer::Callbacks::closed, this);
  event_add(close_, nullptr);
}

HttpReply::~HttpReply() {
  if (close_ != nullptr) event_free(close_);
}

evhttp_connection* HttpReply::connection() const {
  return evhttp_request_get_connection(request_);
}

evhttp_request* HttpReply::release() {
  event_free(std::exchange(close_, nullptr));
  return std::exchange(request_, nullptr);
}

void HttpReply::send(int status, const std::string& body, const char* content_type) {
  if (request_ == nullptr) return;
  add_header(request_, "Content-Type", content_type);
  evhttp_send_reply(release(), status, nullptr, buffer_of(body).get());
}

void HttpReply::begin_events() {
  if (request_ == nullptr) return;
  add_header(request_, "Content-Type", "text/event-stream");
  add_header(request_, "Cache-Control", "no-cache");
  evhttp_send_reply_start(request_, HTTP_OK, nullptr);
}

void HttpReply::send_event(const std::string& data) {
  if (request_ == nullptr) return;
  evhttp_send_reply_chunk(request_, buffer_of("data: " + data + "\n\n").get());
}

void HttpReply::end_events() {
  if (request_ != nullptr) evhttp_send_reply_end(release());
}

void HttpReply::lose() {
  if (request_ != nullptr) {
    evhttp_request* const request = release();
    // libevent has left it to its user after an error, and frees it with the connection otherwise.
    if (evhttp_request_get_connection(request) == nullptr) evhttp_request_free(request);
    if (gone_) gone_();
  }
  server_.reply_is_over(*this);
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : handler_(std::move(handler)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      base_(event_base_new(), event_base_free),
      http_(evhttp_new(base_.get()), evhttp_free),
      task_event_(
          event_new(base_.get(), wake_.number(), EV_READ | EV_PERSIST, Callbacks::task, this),
          event_free) {
  check(wake_.number() >= 0 && base_ && http_ && task_event_, "an HTTP server cannot be made: {}",
        std::generic_category().message(errno));
  evhttp_set_gencb(http_.get(), Callbacks::request, this);
  evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET | EVHTTP_REQ_POST);
  evhttp_set_max_headers_size(http_.get(), kMostHeaders);
  evhttp_set_max_body_size(http_.get(), kMostRead);
  evhttp_set_timeout_tv(http_.get(), &kPatience);
  listen(options);
  event_add(task_event_.get(), nullptr);
}

HttpServer::~HttpServer() {
  http_.reset();  // its connections tell replies_
}

void HttpServer::listen(const HttpOptions& options) {
  check(options.port >= 0 && options.port < 65536, "{} {}: expected 0 to 65535",
        options.port_setting, options.port);
  sockaddr_storage address = address_of(options);
  socklen_t size = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  constexpr unsigned kFlags =
      LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_DISABLED;
  listener_ = evconnlistener_new_bind(base_.get(), nullptr, nullptr, kFlags, /*backlog=*/1024, any,
                                      static_cast<int>(size));
  check(listener_ != nullptr, "{} {} cannot be used on {}: {}; choose another port",
        options.port_setting, options.port, options.host, std::generic_category().message(errno));
  bound_ = evhttp_bind_listener(http_.get(), listener_);
  evconnlistener_set_error_cb(listener_, Callbacks::accept_failed);
  ::getsockname(evconnlistener_get_fd(listener_), any, &size);
  port_ = ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);  // IPv6 has it there, too
  is_loopback_ = tessera::is_loopback(address);
}

void HttpServer::on_stop_signal(std::function<void(int)> handler) {
  stop_handler_ = std::move(handler);
  for (const int number : {SIGINT, SIGTERM}) {
    signals_.emplace_back(evsignal_new(base_.get(), number, Callbacks::signal, this), event_free);
    event_add(signals_.back().get(), nullptr);
  }
}

void HttpServer::run() {
  sigset_t pipe;  // a client may close its end at any time
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  evconnlistener_enable(listener_);
  event_base_dispatch(base_.get());
}

void HttpServer::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  ::eventfd_write(wake_.number(), 1);
}

void HttpServer::run_tasks() {
  eventfd_t count = 0;
  ::eventfd_read(wake_.number(), &count);
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

void HttpServer::stop_accepting() {
  post([this] {
    if (listener_ == nullptr) return;
    listener_ = nullptr;
    evhttp_del_accept_socket(http_.get(), bound_);
  });
}

void HttpServer::finish() {
  post([this] {
    finishes_ = true;
    if (replies_.empty()) event_base_loopbreak(base_.get());
  });
}

void HttpServer::stop() {
  post([this] { event_base_loopbreak(base_.get()); });
}

void HttpServer::handle(evhttp_request* request) {
  const auto reply = std::make_shared<HttpReply>(*this, request);
  replies_.insert(reply);
  const bool is_get = evhttp_request_get_command(request) == EVHTTP_REQ_GET;
  HttpRequest own = {.method = is_get ? "GET" : "POST", .path = path_of(request), .body = {}};
  own.too_long = evbuffer_get_length(evhttp_request_get_input_buffer(request)) > kMostBody;
  if (!own.too_long) own.body = body_of(request);
  handler_(own, reply);
}

void HttpServer::reply_is_over(HttpReply& reply) {
  std::erase_if(replies_, [&](const auto& one) { return one.get() == &reply; });
  if (finishes_ && replies_.empty()) event_base_loopbreak(base_.get());
}

}  // namespace tessera
