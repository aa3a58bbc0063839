#include "sharding/strategy/context_exchange.h"

#include "runtime/context.h"

namespace tessera {

void ContextExchange::all_gather(const std::vector<Tensor>& wholes) const {
  if (group_ == nullptr) return;
  const Span span("exposed communication");
  group_->all_gather(wholes, context().compute_stream(), "keys and values");
}

void ContextExchange::reduce_scatter(const Tensor& part, const Tensor& whole) const {
  if (group_ == nullptr) return part.copy_from(whole);
  const Span span("exposed communication");
  group_->reduce_scatter({part}, {whole}, context().compute_stream(),
                         "gradients of keys and values");
}

}  // namespace tessera
