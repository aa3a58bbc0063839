// Counts of a large training step from counts of small ones.
//
// A counter of a step is taken to be a polynomial of its size: of degree 1 in the layers, the
// classes of the head and the sequences of a batch, and of degree 2 in the width and the length of
// a sequence. (A product's FLOPs grow with the square of the width, attention's work with the
// square of the length.) Terms of classes and layers are not multiplied with each other. Runs at
// the nodes of a grid decide the polynomial, so the result is exact for every counter that is one.
// A run at another size shows which are.
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
  double batch = 1;  // sequences
};

class Extrapolation {
 public:
  using Nodes = std::array<double, 3>;

  Extrapolation(const Nodes& widths, const Nodes& sequences, double classes, double more_classes);

  /// The runs that must be counted.
  const std::vector<StepSize>& runs() const { return runs_; }

  /// A counter at `size` is the sum of its counts in the runs with these weights.
  std::vector<double> weights(const StepSize& size) const;
  /// The same for the counts that one more layer adds.
  std::vector<double> layer_weights(const StepSize& size) const;

 private:
  std::vector<double> weights(const StepSize& size, const std::array<double, 3>& corners) const;

  Nodes widths_, sequences_;
  double classes_, more_classes_;
  std::vector<StepSize> runs_;
};

}  // namespace tessera
