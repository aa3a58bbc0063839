// How a GPU computes matrix products.
#pragma once

namespace tessera {

struct MatmulOptions {
  /// The library's algorithm for a shape. `suggested` is the first that the library suggests: the
  /// same in every run. `measured` is the fastest of several by measurement: it may differ between
  /// runs, and with it the bits.
  enum class Choice { suggested, measured } choice = Choice::suggested;
  /// May f32 factors be rounded to the 11 significant bits of tf32, which is several times faster?
  bool tf32 = false;
};

/// The options of the calling thread's rank. An assignment holds for the products that follow.
MatmulOptions& matmul_options();

}  // namespace tessera
