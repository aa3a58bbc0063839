// The rungs of the ladder of matrix products, in files of their names.
#pragma once

#include "examples/kernel_ladder/matmul/product.h"
#include "examples/kernel_ladder/rung.h"

namespace tessera::kernel_ladder {

// All add an element's products in the order of k, by fused multiply-adds. So all have the same bits.
void three_loops(const Product<float>& p);
void loop_order(const Product<float>& p);
void cache_block(const Product<float>& p);
void register_tile(const Product<float>& p);
void packed_panels(const Product<float>& p);
void three_levels(const Product<float>& p);
void avx512(const Product<float>& p);
void threads(const Product<float>& p);

using MatmulRung = Rung<Product<float>>;

inline constexpr MatmulRung kMatmulRungs[] = {
    {"three_loops", three_loops, cpu::Isa::avx2},
    {"loop_order", loop_order, cpu::Isa::avx2},
    {"cache_block", cache_block, cpu::Isa::avx2},
    {"register_tile", register_tile, cpu::Isa::avx2},
    {"packed_panels", packed_panels, cpu::Isa::avx2},
    {"three_levels", three_levels, cpu::Isa::avx2},
    {"avx512", avx512, cpu::Isa::avx512},
    {"threads", threads, cpu::Isa::avx512, true},
};

/// The last rung, on all threads. Only where has(Isa::amx).
void amx(const Product<bfloat16>& p);

}  // namespace tessera::kernel_ladder
