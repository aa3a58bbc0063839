// RowKind: how the rows of a batch are filled.
#pragma once

#include "runtime/enum_names.h"

namespace tessera {

enum class RowKind {
  windows,  // of the sequence of all tokens, whatever documents they cut
  packed,   // as many whole documents as fit
  padded,   // one document
};
template <>
inline constexpr EnumNames<RowKind> kEnumNames<RowKind> = {"rows", {"windows", "packed", "padded"}};

}  // namespace tessera
