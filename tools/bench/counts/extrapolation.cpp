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

Extrapolation::Extrapolation(const Nodes& widths, const Nodes& sequences, const SizeEnds& classes,
                             const SizeEnds& experts)
    : widths_(widths), sequences_(sequences), classes_(classes), experts_(experts) {
  const auto add_corner = [&](StepSize size) {
    for (const double width : widths) {
      for (const double sequence : sequences) {
        size.width = width, size.sequence = sequence;
        runs_.push_back(size);
      }
    }
  };
  const StepSize base = {.classes = classes.least, .experts = experts.least};
  add_corner(base);
  add_corner({.layers = 2, .classes = base.classes, .experts = base.experts});
  add_corner({.classes = classes.most, .experts = base.experts});
  if (experts.most > experts.least) {
    add_corner({.classes = base.classes, .experts = experts.most});
  }
}

// One more sequence adds the difference between one sequence and none.
std::vector<double> Extrapolation::weights(const StepSize& size, const Corners& corners) const {
  const Nodes by_width = lagrange_weights(widths_, size.width);
  const Nodes with = lagrange_weights(sequences_, size.sequence);
  const Nodes without = lagrange_weights(sequences_, 0.0);
  std::vector<double> weights;
  for (const double corner : {corners.base, corners.layers, corners.classes, corners.experts}) {
    for (const double width : by_width) {
      for (std::size_t i = 0; i < 3; ++i) {
        const double sequences = size.batch * with[i] - (size.batch - 1.0) * without[i];
        weights.push_back(corner * width * sequences);
      }
    }
  }
  weights.resize(runs_.size());  // without experts their corner is not there
  return weights;
}

std::vector<double> Extrapolation::weights(const StepSize& size) const {
  const double layers = size.layers - 1.0;
  const double classes = classes_.part(size.classes);
  const double experts = size.layers * experts_.part(size.experts);
  return weights(size, {1.0 - layers - classes - experts, layers, classes, experts});
}

std::vector<double> Extrapolation::layer_weights(const StepSize& size) const {
  const double experts = experts_.part(size.experts);
  return weights(size, {-1.0 - experts, 1.0, 0.0, experts});
}

}  // namespace tessera
