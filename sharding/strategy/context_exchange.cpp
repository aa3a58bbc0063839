#include "sharding/strategy/context_exchange.h"

namespace tessera {

ContextExchange::~ContextExchange() {
  if (groups_.keys != nullptr) keys_.enqueue([keys = groups_.keys] {});
}

Event ContextExchange::start_gather(const std::vector<Tensor>& wholes) const {
  const Event filled = context().compute_stream().record();
  if (groups_.keys == nullptr) return filled;
  keys_.wait(filled);
  return groups_.keys->all_gather(wholes, keys_, "keys and values");
}

void ContextExchange::reduce_scatter(const Tensor& part, const Tensor& whole) const {
  if (groups_.gradients == nullptr) return part.copy_from(whole);
  const Span span("exposed communication");
  groups_.gradients->reduce_scatter({part}, {whole}, context().compute_stream(),
                                    "gradients of keys and values");
}

}  // namespace tessera
