// A warpgroup's products of matrices (wgmma) and its share of registers (setmaxnreg).
//
// A product is computed when it is issued, warp by warp: each of the four has 16 of the 64 rows. The
// results reach the registers at the wait, until then these are NaN. It is an error to touch the
// registers in between, or to overwrite an operand in shared memory. Operands in shared memory are
// read as the engines see it: ordinary writes show only after a fence. Source: PTX ISA,
// "Asynchronous Warpgroup Level Matrix Instructions" and "setmaxnreg".
#pragma once

#include <array>
#include <cstdint>
#include <source_location>
#include <utility>
#include <vector>

#include "runtime/half.h"

namespace tessera::emulation {

using Site = std::source_location;

/// An operand in shared memory: panels of 64 elements to a row, swizzled.
struct Panel {
  const unsigned char* start;
  int panel_bytes;  // from one panel to the next, where a panel's rows are columns of A or rows of B
};

/// One warp's part of a product: c (16 x columns) = a b, or c += a b.
struct WarpgroupProduct {
  float* c;                   // the lane's, columns / 2
  const unsigned* registers;  // the lane's four of a, or null: a is in shared memory
  Panel a, b;
  int columns;
  bool a_by_columns;  // a's panel has columns of a, otherwise rows
  bool b_by_rows;     // b's panels have rows of b, otherwise columns
  bool add;
  Site site;
};

/// The products that a warp has in flight.
class WarpProducts {
 public:
  void clear();
  void begin() { begun_ = true; }
  template <typename T>
  void issue(const WarpgroupProduct* const* lanes, int warp_of_group);
  void commit();
  /// `c` are the registers of lane 0 that the caller wants to use, or null.
  void wait(unsigned in_flight, const float* c, const Site& site);

  bool empty() const { return results_.empty(); }
  bool read(const void* data, std::size_t bytes) const;
  /// A number that tells sequences of products apart.
  std::uint64_t sequence() const { return sequence_; }

 private:
  /// Registers of all lanes and the values that they will have.
  struct Result {
    std::array<float*, 32> c;
    int columns;
    std::vector<float> values;  // [16, columns]
    unsigned group;             // the last that adds to them
  };
  struct Operand {
    std::array<const unsigned*, 32> registers;
    std::array<std::array<unsigned, 4>, 32> values;
    unsigned group;
  };
  struct Range {
    const unsigned char* data;
    std::size_t bytes;
    unsigned group;
  };
  Result& result_of(const WarpgroupProduct* const* lanes);
  void deliver(const Result& result, const Site& site);

  bool begun_ = false;
  unsigned committed_ = 0;  // groups
  std::uint64_t sequence_ = 0;
  std::vector<Result> results_;
  std::vector<Operand> operands_;
  std::vector<Range> ranges_;
};

/// Does a wgmma in flight read any of these bytes?
bool warpgroups_read(const void* data, std::size_t bytes);

void begin_products(const Site& site);
template <typename T>
void issue_product(const WarpgroupProduct& product);
void commit_products(const Site& site);
void wait_products(unsigned in_flight, const float* c, const Site& site);
/// Raises Failure where the tile or the step within it does not begin as the swizzle needs.
Panel panel_of_rows(const void* start, const Site& site);
Panel panel_of_columns(const void* start, int panel_bytes, const Site& site);

void change_registers(int registers, bool raise, const Site& site);
bool elect_lane(const Site& site);

}  // namespace tessera::emulation
