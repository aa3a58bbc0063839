#include <algorithm>
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sigmoid.h"
#include "kernels/dispatch/rows.h"
#include "kernels/gelu/tanh_form.h"
#include "kernels/swiglu/op.h"
#include "kernels/swiglu/parts.h"

namespace tessera::cpu {
namespace {

/// The rows of a matrix from column `column` on, as a loop reads them.
template <typename T>
class Rows {
 public:
  Rows(const Tensor& x, std::int64_t column) : first_(x.data<T>() + column), stride_(x.size(1)) {}
  Rows(const Columns& x, std::int64_t column) : Rows(x.tensor, x.first + column) {}
  T* operator[](std::int64_t n) const { return first_ + n * stride_; }

 private:
  T* first_;
  std::int64_t stride_;
};

struct Silu {
  template <typename C>
  static C value(C g) {
    return g * sigmoid(g);
  }
  template <typename C>
  static C derivative(C g) {
    const C s = sigmoid(g);
    return s * (C(1) + g * (C(1) - s));
  }
};

/// Calls f(Silu()) or f(TanhGelu()).
template <typename F>
void visit(Gate activation, const F& f) {
  activation == Gate::silu ? f(Silu()) : f(TanhGelu());
}

template <typename Activation = Silu, typename T>
void forward_row(T* y, const T* gate, const T* up, std::int64_t columns) {
#pragma GCC ivdep
  for (std::int64_t f = 0; f < columns; ++f) {
    store(y[f], Activation::value(load(gate[f])) * load(up[f]));
  }
}

/// Each of dgate and dup may be gate or up.
template <typename Activation = Silu, typename T>
void backward_row(T* dgate, T* dup, const T* dy, const T* gate, const T* up, std::int64_t columns) {
  using C = compute_t<T>;
#pragma GCC ivdep
  for (std::int64_t f = 0; f < columns; ++f) {
    const C d = load(dy[f]), g = load(gate[f]), u = load(up[f]);
    store(dup[f], d * Activation::value(g));
    store(dgate[f], d * u * Activation::derivative(g));
  }
}

/// A loop over rows [begin, end), for the columns of a part.
template <typename Activation, typename T>
auto forward_rows(const Rectangle& part, const Tensor& y, const Columns& gate, const Columns& up) {
  return
      [to = Rows<T>(y, part.column), g = Rows<T>(gate, part.column), u = Rows<T>(up, part.column),
       columns = part.columns](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n)
          forward_row<Activation>(to[n], g[n], u[n], columns);
      };
}
template <typename Activation, typename T>
auto backward_rows(const Rectangle& part, const Columns& dgate, const Columns& dup,
                   const Tensor& dy, const Columns& gate, const Columns& up) {
  return
      [dg = Rows<T>(dgate, part.column), du = Rows<T>(dup, part.column),
       from = Rows<T>(dy, part.column), g = Rows<T>(gate, part.column),
       u = Rows<T>(up, part.column), columns = part.columns](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
          backward_row<Activation>(dg[n], du[n], from[n], g[n], u[n], columns);
        }
      };
}

/// Calls run(loop) with the loop of these tensors' dtype and of the activation.
template <typename Run>
void with_forward_rows(const Rectangle& part, const Tensor& y, const Columns& gate,
                       const Columns& up, Gate activation, const Run& run) {
  visit_floating(y.dtype(), [&](auto type) {
    visit(activation,
          [&](auto a) { run(forward_rows<decltype(a), decltype(type)>(part, y, gate, up)); });
  });
}
template <typename Run>
void with_backward_rows(const Rectangle& part, const Columns& dgate, const Columns& dup,
                        const Tensor& dy, const Columns& gate, const Columns& up, Gate activation,
                        const Run& run) {
  visit_floating(dy.dtype(), [&](auto type) {
    visit(activation, [&](auto a) {
      run(backward_rows<decltype(a), decltype(type)>(part, dgate, dup, dy, gate, up));
    });
  });
}

/// All of y, and the rows of a chunk of about kElementwiseChunk elements.
Rectangle all_of(const Tensor& y) {
  return {.rows = y.size(0), .columns = y.size(1)};
}
std::int64_t rows_of_chunk(const Tensor& y) {
  return std::max<std::int64_t>(1, kElementwiseChunk / std::max<std::int64_t>(1, y.size(1)));
}

}  // namespace

void swiglu_forward(Out y, const Columns& gate, const Columns& up, Gate activation) {
  with_forward_rows(all_of(y), y, gate, up, activation,
                    [&](const auto& rows) { parallel_for(y.size(0), rows_of_chunk(y), rows); });
}

void swiglu_backward(const Columns& dgate, const Columns& dup, const Tensor& dy,
                     const Columns& gate, const Columns& up, Gate activation) {
  with_backward_rows(all_of(dy), dgate, dup, dy, gate, up, activation,
                     [&](const auto& rows) { parallel_for(dy.size(0), rows_of_chunk(dy), rows); });
}

void weighed_swiglu_backward(Out y, Out dweights, const Columns& dgate, const Columns& dup,
                             const Tensor& dy, const Columns& gate, const Columns& up,
                             const Tensor& places, const Tensor& weights) {
  visit_floating(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const Slots<T> slots(places, weights);
    const Rows<T> to(y, 0), from(dy, 0), dg(dgate, 0), du(dup, 0), g(gate, 0), u(up, 0);
    const std::int64_t F = dy.size(1);
    const auto run = [&](auto* sums, std::int64_t parts) {
      const std::int64_t width = F / parts;
      parallel_for(dy.size(0), rows_of_chunk(dy), [&](std::int64_t begin, std::int64_t end) {
        std::vector<T> h(static_cast<std::size_t>(F)), dh(h.size());  // in the first-level cache
        for (std::int64_t slot = begin; slot < end; ++slot) {
          const std::int64_t p = slots.place(slot);
          const compute_t<T> weight = slots.weight(slot);
          forward_row(h.data(), g[p], u[p], F);
          for (std::int64_t i = 0; sums != nullptr && i < parts; ++i) {
            store(sums[i * dy.size(0) + slot],
                  dot(from[p] + i * width, h.data() + i * width, width));
          }
          scale_row(dh.data(), from[p], weight, F);
          backward_row(dg[p], du[p], dh.data(), g[p], u[p], F);
          scale_row(to[p], h.data(), weight, F);
        }
      });
    };
    if (!dweights.defined()) return run(static_cast<T*>(nullptr), 1);
    if (dweights.rank() == 2) return run(dweights.data<T>(), 1);
    run(dweights.data<compute_t<T>>(), dweights.size(0));
  });
}

void swiglu_forward(Isa isa, const Rectangle& part, Out y, const Columns& gate, const Columns& up,
                    Gate activation) {
  with_forward_rows(part, y, gate, up, activation,
                    [&](const auto& rows) { run_loop(isa, rows, part.row, part.row + part.rows); });
}

void swiglu_backward(Isa isa, const Rectangle& part, const Columns& dgate, const Columns& dup,
                     const Tensor& dy, const Columns& gate, const Columns& up, Gate activation) {
  with_backward_rows(part, dgate, dup, dy, gate, up, activation, [&](const auto& rows) {
    run_loop(isa, rows, part.row, part.row + part.rows);
  });
}

}  // namespace tessera::cpu
