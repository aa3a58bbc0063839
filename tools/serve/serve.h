// `tessera serve`: loads a model and serves it until a signal.
#pragma once

#include "tools/serve/server.h"

namespace tessera {

/// Prints one line once the server accepts requests, and one at the end. Where other machines can reach
/// the server, a line warns of it.
void serve(const ServeOptions& options);

}  // namespace tessera
