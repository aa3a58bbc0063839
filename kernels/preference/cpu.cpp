#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cross_entropy/op.h"
#include "kernels/preference/op.h"
#include "kernels/preference/pair.h"
#include "runtime/elementary.h"
#include "runtime/threads.h"

namespace tessera::cpu {
namespace {

struct Math {
  static double softplus(double x) {
    return std::max(x, 0.0) + logarithm(1.0 + exponential(-std::abs(x)));
  }
  static double sigmoid(double x) { return exponential(-softplus(-x)); }
};

/// Tokens [first, last) of all rows: a document, and its sums.
struct Document {
  std::int64_t first, last;
  AnswerSums<double> sums;
};

template <typename T>
class Pairs {
 public:
  Pairs(const Tensor& losses, const Tensor& targets, const Tensor& starts, const Tensor& reference)
      : losses_(losses.data<T>()),
        reference_(reference.data<T>()),
        targets_(targets.data<std::int32_t>()),
        starts_(starts.data<std::int32_t>()) {}

  /// The document that begins with token `first`, of a row that ends before `row_end`.
  Document document(std::int64_t first, std::int64_t row_end) const {
    Document document{.first = first, .last = first, .sums = {}};
    for (; document.last < row_end && starts_[document.last] == starts_[first]; ++document.last) {
      document.sums.sum -= static_cast<double>(losses_[document.last]);
      document.sums.targets += targets_[document.last] != kIgnoreIndex ? 1.0 : 0.0;
    }
    // The reference was rounded once, too.
    document.sums.sum = static_cast<double>(static_cast<T>(document.sums.sum));
    document.sums.reference = static_cast<double>(reference_[first]);
    return document;
  }

 private:
  const T *losses_, *reference_;
  const std::int32_t *targets_, *starts_;
};

template <typename T>
void compute(Out sums, Out factors, Out sequences, const Pairs<T>& pairs, std::int64_t rows,
             std::int64_t length, const PreferenceLoss& options, double scale) {
  std::array<double, kPreferenceSums> totals{};
  const auto fill = [](Out to, const Document& document, double value) {
    std::fill(to.data<T>() + document.first, to.data<T>() + document.last, static_cast<T>(value));
  };
  const auto note = [&](const Document& document) {
    if (!sequences.defined()) return;
    fill(sequences, document, 0.0);
    sequences.data<T>()[document.first] = static_cast<T>(document.sums.sum);
  };
  for (std::int64_t row_end = length; row_end <= rows * length; row_end += length) {
    for (std::int64_t first = row_end - length; first < row_end;) {
      const Document chosen = pairs.document(first, row_end);
      note(chosen);
      first = chosen.last;
      if (first == row_end) {
        if (factors.defined()) fill(factors, chosen, 0.0);
        break;
      }
      const Document rejected = pairs.document(first, row_end);
      note(rejected);
      first = rejected.last;
      const auto terms = terms_of<Math>(chosen.sums, rejected.sums, options);
      totals[kPairLoss] += terms.loss;
      totals[kPairAccuracy] += terms.chosen_reward > terms.rejected_reward ? 1.0 : 0.0;
      totals[kChosenReward] += terms.chosen_reward;
      totals[kRejectedReward] += terms.rejected_reward;
      if (!factors.defined()) continue;
      fill(factors, chosen, scale * terms.chosen_factor);
      fill(factors, rejected, scale * terms.rejected_factor);
    }
  }
  for (std::size_t i = 0; i < totals.size(); ++i) {
    sums.data<T>()[i] = static_cast<T>(scale * totals[i]);
  }
}

}  // namespace

void preference_loss(Out sums, Out factors, Out sequences, const Tensor& losses,
                     const Tensor& targets, const Tensor& starts, const Tensor& reference,
                     const PreferenceLoss& options, double scale) {
  on_one_thread([&] {
    const auto compute_in = [&](auto type) {
      compute(sums, factors, sequences, Pairs<decltype(type)>(losses, targets, starts, reference),
              losses.size(0), losses.size(1), options, scale);
    };
    losses.dtype() == DType::f64 ? compute_in(double()) : compute_in(float());
  });
}

}  // namespace tessera::cpu
