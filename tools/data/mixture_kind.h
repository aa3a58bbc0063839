// MixtureKind: the meaning of the weights in a mixture.
#pragma once

#include "runtime/enum_names.h"

namespace tessera {

enum class MixtureKind {
  by_tokens,  // shares of the tokens
  by_epochs,  // passes over the sources: each time all pass, a source has so many
};
template <>
inline constexpr EnumNames<MixtureKind> kEnumNames<MixtureKind> = {"mixture",
                                                                   {"by_tokens", "by_epochs"}};

}  // namespace tessera
