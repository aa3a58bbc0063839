#include "sharding/comm/stream.h"

#include "runtime/context.h"
#include "runtime/update_stream.h"

namespace tessera {

const Stream& communication_stream() {
  return context().side_stream("communication");
}

const Stream& update_stream() {
  return context().side_stream(kUpdateStream);
}

void wait_for_communication(const Event& event) {
  const Span span("exposed communication");
  context().compute_stream().wait(event);
}

void wait_for_communication(std::optional<Event>& event) {
  if (event) wait_for_communication(*event);
  event.reset();
}

void wait_for_update(std::optional<Event>& event) {
  if (!event) return;
  const Span span("exposed update");
  context().compute_stream().wait(*event);
  event.reset();
}

}  // namespace tessera
