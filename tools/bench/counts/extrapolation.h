// Counts of a large training step from counts of small ones.
//
// A counter of a step is taken to be a polynomial of its size: of degree 1 in the layers, a layer's
// experts, the classes of the head and the sequences of a batch, and of degree 2 in the width and the
// length of a sequence. (A product's FLOPs grow with the square of the width, attention's work with
// the square of the length.) Terms of classes and layers are not multiplied with each other. All
// experts are in layers. Runs at the nodes of a grid decide the polynomial, so the result is exact for
// every counter that is one. A run at another size shows which are.
//
// Width is counted in units: a unit has the fewest heads of queries that go with whole heads of keys,
// and its share of all other channels.
#pragma once

#include <array>
#include <vector>

namespace tessera {

struct StepSize {
  double layers = 1;
  double width = 1;     // units
  double sequence = 1;  // tokens
  double classes = 1;
  double batch = 1;    // sequences
  double experts = 0;  // of a layer
};

/// Two sizes that decide a polynomial of degree 1.
struct SizeEnds {
  double least = 0, most = 0;

  /// The way from the least to the most that leads to `x`.
  double part(double x) const { return most == least ? 0 : (x - least) / (most - least); }
};

class Extrapolation {
 public:
  using Nodes = std::array<double, 3>;
  /// A model without experts has none at both ends, and fewer runs.
  Extrapolation(const Nodes& widths, const Nodes& sequences, const SizeEnds& classes,
                const SizeEnds& experts = {});

  /// The runs that must be counted.
  const std::vector<StepSize>& runs() const { return runs_; }

  /// A counter at `size` is the sum of its counts in the runs with these weights.
  std::vector<double> weights(const StepSize& size) const;
  /// The same for the counts that one more layer adds.
  std::vector<double> layer_weights(const StepSize& size) const;

 private:
  /// The corners of the grid: of one layer, and of one with more layers, classes or experts.
  struct Corners {
    double base, layers, classes, experts;
  };
  std::vector<double> weights(const StepSize& size, const Corners& corners) const;

  Nodes widths_, sequences_;
  SizeEnds classes_, experts_;
  std::vector<StepSize> runs_;
};

}  // namespace tessera
