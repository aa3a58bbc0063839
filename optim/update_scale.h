// The factor of Muon's updates.
#pragma once

#include <cstdint>

#include "runtime/enum_names.h"

namespace tessera {

/// The factor by a layer's outputs A and inputs B:
///   original          sqrt(max(1, A / B)) (Jordan et al. 2024)
///   match_rms_adamw   0.2 sqrt(max(A, B)): an update has the root mean square of AdamW's, so both can have
///                     one learning rate (Liu et al. 2025, "Muon is Scalable for LLM Training")
enum class UpdateScale : std::uint8_t { original, match_rms_adamw };

template <>
inline constexpr EnumNames<UpdateScale> kEnumNames<UpdateScale> = {"update scale",
                                                                   {"original", "match_rms_adamw"}};

double update_ratio(UpdateScale scale, std::int64_t outputs, std::int64_t inputs);

}  // namespace tessera
