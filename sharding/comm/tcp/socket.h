// TCP connections: opening, accepting, sending and receiving without blocking.
#pragma once

#include <chrono>
#include <string>

#include "runtime/descriptor.h"

namespace tessera::tcp {

/// The listening socket of a port, on all addresses of this machine. Raises
/// Error with `variable` in the message if the port cannot be had.
int listen_on(int port, const char* variable);

/// The port of a listening socket: where it was opened with 0, one that the system chose.
int port_of(int listener);

/// A new connection of a listening socket, or -1 if no client waits. It does not block.
int accept_from(int listener);

/// A connection to a port of a host, or -1 if no program is listening yet. Raises
/// Error if the host's name has no address.
int connect_to(const std::string& host, int port);

/// A machine that cannot be reached any more is noticed within the deadline and
/// 30 s, whichever is less, but not below 3 s; also while nothing is sent.
void notice_dead_peer(int socket, std::chrono::milliseconds deadline);

/// Sends the beginning of `bytes` and removes it. False if the connection has
/// ended.
bool send_some(int socket, std::string& bytes);
/// Appends the bytes that have arrived. False if the connection has ended.
bool receive_some(int socket, std::string& bytes);

}  // namespace tessera::tcp
