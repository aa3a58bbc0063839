// The streams of messages between ranks that run different passes: stages of a pipeline.
//
// Ranks that are threads wait for each other on the host in every call, and ranks of NCCL in the first ones. A rank
// may queue a receive before the send that lets the other rank go on. On the CPU a stream has a thread, which waits.
// On a GPU the host queues the work of its streams, so such a stream gets a thread there as well:
//
//   rank 0   forward 0, receive gradient 0 ... forward 1, send activation 1
//   rank 1   forward 0, receive activation 1 ... backward 0, send gradient 0
#pragma once

#include <map>
#include <string>

#include "runtime/backends.h"
#include "runtime/context.h"
#include "runtime/cuda/backend.h"

namespace tessera {

/// The current context's side stream of this name. Its work does not hold up the host.
inline Stream message_stream(const std::string& name) {
  const Stream& stream = context().side_stream(name);
  if constexpr (kHasCuda) {
    if (!context().device().is_cpu()) {
      struct Threaded {
        std::map<std::string, Stream> streams;
      };
      auto& streams = context().state<Threaded>().streams;
      if (!streams.contains(name)) streams[name] = cuda::queued_by_thread(stream, context());
      return streams[name];
    }
  }
  return stream;
}

}  // namespace tessera
