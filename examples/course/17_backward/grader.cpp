// Grades a backward pass against differences of the forward pass in f64.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "examples/course/17_backward/swiglu.h"
#include "examples/course/grader.h"
#include "runtime/random.h"

namespace tessera::course {
namespace {

constexpr std::size_t kCount = 400;

double forward(double gate, double up) {
  return gate / (1.0 + std::exp(-gate)) * up;
}

struct Operands {
  std::vector<float> gate, up, dy, dgate, dup;

  /// Gates from -6 to 6, and a few far outside of it.
  Operands() : dgate(kCount, NAN), dup(kCount, NAN) {
    const RandomStream random(5, "operands", 0, 0);
    const auto draw = [&](std::uint64_t i, float most) {
      return most * (static_cast<float>(random.below(i, 2'000'001)) * 1e-6f - 1.0f);
    };
    for (std::uint64_t i = 0; i < kCount; ++i) {
      gate.push_back(draw(3 * i, i % 50 == 0 ? 100.0f : 6.0f));
      up.push_back(draw(3 * i + 1, 2.0f));
      dy.push_back(draw(3 * i + 2, 1.0f));
    }
    swiglu_backward(gate, up, dy, dgate, dup);
  }
};

/// Compares with expected(i), which errs by at most 1e-5 of its scale.
template <typename Expected>
std::string compare(const char* name, const std::vector<float>& found, Expected expected,
                    const Operands& o, const char* idea) {
  for (std::size_t i = 0; i < kCount; ++i) {
    const double right = expected(i);
    if (std::abs(found[i] - right) <= 2e-5 * (std::abs(right) + 0.1)) continue;
    const std::string place =
        fmt::format("{}[{}] is {:.6f} instead of {:.6f}, for gate {:.3f}, up {:.3f}, dy {:.3f}",
                    name, i, found[i], right, o.gate[i], o.up[i], o.dy[i]);
    if (std::isnan(found[i])) return place + ": is it written at all, and can a number overflow?";
    return place + ": " + idea;
  }
  return "";
}

std::string wrong_dup() {
  const Operands o;
  return compare(
      "dup", o.dup, [&](std::size_t i) { return o.dy[i] * forward(o.gate[i], 1.0); }, o,
      "y is linear in up, so dup is dy times the factor of up");
}

std::string wrong_dgate() {
  const Operands o;
  constexpr double kStep = 1e-5;
  const auto difference = [&](std::size_t i) {
    const double gate = o.gate[i];
    return o.dy[i] * (forward(gate + kStep, o.up[i]) - forward(gate - kStep, o.up[i])) /
           (2 * kStep);
  };
  return compare("dgate", o.dgate, difference, o,
                 "silu is a product, g times its sigmoid, and both factors depend on g");
}

std::string wrong_in_place() {
  const Operands o;
  std::vector<float> gate = o.gate, up = o.up;
  swiglu_backward(gate, up, o.dy, gate, up);
  if (gate == o.dgate && up == o.dup) return "";
  return "with dgate in gate's memory and dup in up's the results differ: a value is read again "
         "after "
         "its gradient has been written over it";
}

}  // namespace
}  // namespace tessera::course

int main() {
  using namespace tessera::course;
  Grader grader;
  grader.run("dup", wrong_dup);
  grader.run("dgate", wrong_dgate);
  grader.run("in place", wrong_in_place);
  return grader.status();
}
