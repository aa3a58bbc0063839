#include "runtime/emulation/device/warpgroup.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/sanitizers.h"
#include "runtime/emulation/device/warpgroup_tiles.h"

namespace tessera::emulation {
namespace {

constexpr int kRows = kWarpgroupRows, kDepth = kWarpgroupDepth;
constexpr int kRowBytes = kPanelRowBytes, kSwizzleBytes = 8 * kRowBytes;
constexpr unsigned kFullWarp = ~0u;

void read_left_registers(LeftMatrix& a, const WarpgroupProduct* const* lanes) {
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int r = 0; r < 4; ++r) {
      const unsigned both = lanes[lane]->registers[r];
      std::memcpy(&a.bits[group + r % 2 * 8][pair + r / 2 * 8], &both, sizeof both);
    }
  }
}

void read_left(LeftMatrix& a, const WarpgroupProduct* const* lanes, int warp) {
  const WarpgroupProduct& first = *lanes[0];
  if (first.registers != nullptr) return read_left_registers(a, lanes);
  (first.a_by_columns ? read_left_columns : read_left_rows)(a, first.a, warp);
}

/// f(index in c [rows, columns], lane, index of its register) for the values of a result.
template <typename F>
void for_each_value(int columns, F f) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < columns / 2; ++i) {
      const int row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      f(static_cast<std::size_t>(row * columns + column), static_cast<std::size_t>(lane), i);
    }
  }
}

// The operands of the product that is issued: too much for every fiber's stack.
LeftMatrix left_operand;
RightMatrix right_operand;

WarpProducts& products() {
  return block.products(block.thread().number / kWarpSize);
}

}  // namespace

void WarpProducts::clear() {
  *this = {};
}

WarpProducts::Result& WarpProducts::result_of(const WarpgroupProduct* const* lanes) {
  for (Result& result : results_) {
    if (result.c[0] == lanes[0]->c) return result;
  }
  Result result{{}, lanes[0]->columns, {}, 0};
  for (std::size_t lane = 0; lane < 32; ++lane) result.c[lane] = lanes[lane]->c;
  result.values.resize(static_cast<std::size_t>(kRows * result.columns));
  for_each_value(result.columns, [&](std::size_t at, std::size_t lane, int i) {
    result.values[at] = std::exchange(result.c[lane][i], std::bit_cast<float>(~0u));
  });
  results_.push_back(std::move(result));
  return results_.back();
}

template <typename T>
void WarpProducts::issue(const WarpgroupProduct* const* lanes, int warp) {
  const Unobserved unobserved;
  const WarpgroupProduct& first = *lanes[0];
  if (!begun_) block.fail("wgmma without a wgmma.fence before its group", first.site);
  if (warp == 0) ++block.statistics.warpgroup_products;
  block.record(
      first.registers != nullptr ? EventKind::registers_multiplied : EventKind::tiles_multiplied,
      static_cast<int>(committed_), 0, first.columns);
  block.statistics.matrix_flops +=
      static_cast<std::uint64_t>(2 * kRows * kDepth * kValuesOf<T> * first.columns);
  LeftMatrix& a = left_operand;
  RightMatrix& b = right_operand;
  read_left(a, lanes, warp);
  (first.b_by_rows ? read_right_rows : read_right_columns)(b, first.b, first.columns);
  convert<T>(a);
  convert<T>(b, first.columns);
  Result& result = result_of(lanes);
  result.group = committed_;
  if (!first.add) std::fill(result.values.begin(), result.values.end(), 0.0f);
  add_product<T>(result.values.data(), a, b, first.columns);

  if (first.registers != nullptr) {
    Operand operand{{}, {}, committed_};
    for (std::size_t lane = 0; lane < 32; ++lane) {
      operand.registers[lane] = lanes[lane]->registers;
      std::copy_n(lanes[lane]->registers, 4, operand.values[lane].begin());
    }
    operands_.push_back(operand);
  } else if (first.a_by_columns) {
    ranges_.push_back({first.a.start, kDepth * kRowBytes, committed_});
  } else {
    ranges_.push_back(
        {first_row(first.a) + warp * kRows * kRowBytes, kRows * kRowBytes, committed_});
  }
  if (first.b_by_rows) {
    for (int panel = 0; panel < first.columns / kPanelColumns; ++panel) {
      ranges_.push_back(
          {first.b.start + panel * first.b.panel_bytes, kDepth * kRowBytes, committed_});
    }
  } else {
    ranges_.push_back(
        {first_row(first.b), static_cast<std::size_t>(first.columns) * kRowBytes, committed_});
  }
  sequence_ = sequence_ * 1000003 + first.site.line() * 8 + (first.b_by_rows ? 1 : 0);
}

void WarpProducts::commit() {
  block.record(EventKind::products_committed, static_cast<int>(committed_));
  ++committed_;
  begun_ = false;
}

void WarpProducts::deliver(const Result& result, const Site& site) {
  for_each_value(result.columns, [&](std::size_t at, std::size_t lane, int i) {
    float& c = result.c[lane][i];
    if (std::bit_cast<unsigned>(c) != ~0u) {
      block.fail("registers that a wgmma in flight writes were written before this wait", site);
    }
    c = result.values[at];
  });
}

void WarpProducts::wait(unsigned in_flight, const float* c, const Site& site) {
  const Unobserved unobserved;
  const auto complete = [&](const auto& of_group) {
    return of_group.group + in_flight < committed_;
  };
  for (const Operand& operand : operands_) {
    if (!complete(operand)) continue;
    for (std::size_t lane = 0; lane < 32; ++lane) {
      if (!std::equal(operand.values[lane].begin(), operand.values[lane].end(),
                      operand.registers[lane])) {
        block.fail("registers that a wgmma in flight reads were written before this wait", site);
      }
    }
  }
  for (const Result& result : results_) {
    if (complete(result)) deliver(result, site);
  }
  std::erase_if(operands_, complete);
  std::erase_if(results_, complete);
  std::erase_if(ranges_, complete);
  block.record(EventKind::products_waited, static_cast<int>(committed_ - in_flight) - 1, 0,
               static_cast<int>(in_flight));
  for (const Result& result : results_) {
    if (result.c[0] == c) {
      block.fail("the wait leaves in flight the group of the registers that it names", site);
    }
  }
}

bool WarpProducts::read(const void* data, std::size_t bytes) const {
  const auto* const first = static_cast<const unsigned char*>(data);
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return first < range.data + range.bytes && range.data < first + bytes;
  });
}

bool warpgroups_read(const void* data, std::size_t bytes) {
  for (unsigned warp = 0; warp < block.warps(); ++warp) {
    if (block.products(warp).read(data, bytes)) return true;
  }
  return false;
}

void begin_products(const Site& site) {
  block.collective(
      kFullWarp, "wgmma.fence", nullptr, [](void* const*) { products().begin(); }, false, site);
}

template <typename T>
void issue_product(const WarpgroupProduct& product) {
  WarpgroupProduct operands = product;
  const auto execute = [](void* const* lanes) {
    products().issue<T>(reinterpret_cast<const WarpgroupProduct* const*>(lanes),
                        static_cast<int>(block.thread().number / kWarpSize % 4));
  };
  block.collective(kFullWarp, "wgmma", &operands, execute, false, product.site);
}
template void issue_product<bfloat16>(const WarpgroupProduct&);
template void issue_product<float16>(const WarpgroupProduct&);
template void issue_product<E4m3Pair>(const WarpgroupProduct&);

void commit_products(const Site& site) {
  block.collective(
      kFullWarp, "wgmma.commit_group", nullptr, [](void* const*) { products().commit(); }, false,
      site);
}

void wait_products(unsigned in_flight, const float* c, const Site& site) {
  struct Operands {
    unsigned in_flight;
    const float* c;
    const Site& site;
  } operands{in_flight, c, site};
  const auto execute = [](void* const* lanes) {
    const auto& first = *static_cast<const Operands*>(lanes[0]);
    products().wait(first.in_flight, first.c, first.site);
  };
  block.collective(kFullWarp, "wgmma.wait_group", &operands, execute, false, site);
}

Panel panel_of_rows(const void* start, const Site& site) {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  if (address % kSwizzleBytes >= kRowBytes || address % 32 != 0) {
    block.fail(
        "a descriptor of rows begins at the first of eight rows, at a multiple of 16 elements",
        site);
  }
  return {static_cast<const unsigned char*>(start), 0};
}

Panel panel_of_columns(const void* start, int panel_bytes, const Site& site) {
  if (reinterpret_cast<std::uintptr_t>(start) % kSwizzleBytes != 0 ||
      panel_bytes % kSwizzleBytes != 0) {
    block.fail("a descriptor of columns begins at a multiple of eight rows, and so does each panel",
               site);
  }
  return {static_cast<const unsigned char*>(start), panel_bytes};
}

// ---- Registers ----------------------------------------------------------------------------------

void change_registers(int registers, bool raise, const Site& site) {
  struct Operands {
    int registers;
    bool raise;
    const Site& site;
  } operands{registers, raise, site};
  const auto execute = [](void* const* lanes) {
    const auto& wanted = *static_cast<const Operands*>(lanes[0]);
    int& of_warp = block.registers(block.thread().number / kWarpSize);
    if (wanted.registers < 24 || wanted.registers > 256 || wanted.registers % 8 != 0) {
      block.fail("setmaxnreg takes a multiple of 8 from 24 to 256", wanted.site);
    }
    if (wanted.raise ? wanted.registers < of_warp : wanted.registers > of_warp) {
      block.fail(std::string("setmaxnreg.") + (wanted.raise ? "inc" : "dec") + " from " +
                     std::to_string(of_warp) + " to " + std::to_string(wanted.registers) +
                     " registers",
                 wanted.site);
    }
  };
  block.collective(kFullWarp, "setmaxnreg", &operands, execute, false, site);
  int& of_warp = block.registers(block.thread().number / kWarpSize);
  if (of_warp == registers) return;  // another lane was first
  while (of_warp != registers &&
         block.registers_in_use() + 32 * (registers - of_warp) > block.registers_at_start()) {
    block.wait_in(block.register_waiters(), "setmaxnreg.inc", site);
  }
  of_warp = registers;
  block.wake(block.register_waiters());
}

bool elect_lane(const Site& site) {
  bool elected = false;
  const auto execute = [](void* const* lanes) {
    *static_cast<bool*>(lanes[block.favoured_lane()]) = true;
  };
  block.collective(kFullWarp, "elect.sync", &elected, execute, false, site);
  return elected;
}

}  // namespace tessera::emulation
