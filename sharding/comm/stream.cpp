#include "sharding/comm/stream.h"

#include "runtime/context.h"

namespace tessera {

const Stream& communication_stream() {
  return context().side_stream("communication");
}

void wait_for_communication(const Event& event) {
  const Span span("exposed communication");
  context().compute_stream().wait(event);
}

void wait_for_communication(std::optional<Event>& event) {
  if (event) wait_for_communication(*event);
  event.reset();
}

}  // namespace tessera
