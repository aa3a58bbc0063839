#include "tools/bench/counts/extrapolation.h"

namespace tessera {
namespace {

/// The weights of values at three nodes in the value at x of the polynomial through them.
Extrapolation::Nodes lagrange_weights(const Extrapolation::Nodes& nodes, double x) {
  Extrapolation::Nodes weights;
  for (std::size_t i = 0; i < 3; ++i) {
    weights[i] = 1.0;
    for (std::size_t j = 0; j < 3; ++j) {
      if (j != i) weights[i] *= (x - nodes[j]) / (nodes[i] - nodes[j]);
    }
  }
  return weights;
}

}  // namespace

Extrapolation::Extrapolation(const Nodes& widths, const Nodes& sequences, double classes,
                             double more_classes)
    : widths_(widths), sequences_(sequences), classes_(classes), more_classes_(more_classes) {
  // The corners: one layer, one more layer, more classes.
  for (const auto& [layers, of_head] :
       {std::pair(1.0, classes), {2.0, classes}, {1.0, more_classes}}) {
    for (const double width : widths) {
      for (const double sequence : sequences) {
        runs_.push_back({layers, width, sequence, of_head, 1.0});
      }
    }
  }
}

// One more sequence adds the difference between one sequence and none.
std::vector<double> Extrapolation::weights(const StepSize& size,
                                           const std::array<double, 3>& corners) const {
  const Nodes by_width = lagrange_weights(widths_, size.width);
  const Nodes with = lagrange_weights(sequences_, size.sequence);
  const Nodes without = lagrange_weights(sequences_, 0.0);
  std::vector<double> weights;
  for (const double corner : corners) {
    for (const double width : by_width) {
      for (std::size_t i = 0; i < 3; ++i) {
        const double sequences = size.batch * with[i] - (size.batch - 1.0) * without[i];
        weights.push_back(corner * width * sequences);
      }
    }
  }
  return weights;
}

std::vector<double> Extrapolation::weights(const StepSize& size) const {
  const double layers = size.layers - 1.0;
  const double classes = (size.classes - classes_) / (more_classes_ - classes_);
  return weights(size, {1.0 - layers - classes, layers, classes});
}

std::vector<double> Extrapolation::layer_weights(const StepSize& size) const {
  return weights(size, {-1.0, 1.0, 0.0});
}

}  // namespace tessera
