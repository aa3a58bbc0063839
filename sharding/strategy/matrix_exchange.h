// The exchange of whole matrices between the ranks of a plan's groups.
#pragma once

#include <functional>
#include <memory>

#include "runtime/matrix_exchange.h"
#include "sharding/plan/plan.h"
#include "sharding/strategy/mesh_communicators.h"

namespace tessera {

/// The exchange of the matrices of parameters that `includes` accepts; all have one dtype. The
/// plan and the communicators must outlive it. A collective: it may split communicators off.
std::unique_ptr<MatrixExchange> make_matrix_exchange(
    const Plan& plan, int rank, MeshCommunicators& communicators,
    const std::function<bool(const Parameter&)>& includes);

}  // namespace tessera
