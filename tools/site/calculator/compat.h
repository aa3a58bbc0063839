// The parts of C++20's standard library that Emscripten 3.1 lacks and the planner uses.
#pragma once

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

namespace std {

template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

inline from_chars_result from_chars(const char* first, const char* last, double& value) {
  const string text(first, last);
  char* end = nullptr;
  const double number = strtod(text.c_str(), &end);
  if (end == text.c_str()) return {first, errc::invalid_argument};
  value = number;
  return {first + (end - text.c_str()), errc()};
}

/// The only operation that the planner uses. A calculator has one thread.
template <class Value>
class atomic_ref {
 public:
  explicit atomic_ref(Value& value) : value_(&value) {}
  Value fetch_add(Value more, memory_order) const {
    const Value before = *value_;
    *value_ += more;
    return before;
  }

 private:
  Value* value_;
};

namespace ranges {

template <class Range, class Predicate>
bool all_of(Range&& range, Predicate predicate) {
  return std::all_of(std::begin(range), std::end(range), predicate);
}
template <class Range, class Predicate>
bool any_of(Range&& range, Predicate predicate) {
  return std::any_of(std::begin(range), std::end(range), predicate);
}
template <class Range, class Predicate>
auto adjacent_find(Range&& range, Predicate predicate) {
  return std::adjacent_find(std::begin(range), std::end(range), predicate);
}
template <class Range, class Function>
void for_each(Range&& range, Function function) {
  std::for_each(std::begin(range), std::end(range), function);
}
template <class Range, class Iterator>
void copy(Range&& range, Iterator out) {
  std::copy(std::begin(range), std::end(range), out);
}
template <class Range, class Iterator, class Function>
void transform(Range&& range, Iterator out, Function function) {
  std::transform(std::begin(range), std::end(range), out, function);
}
template <class Range, class Value, class Projection = identity>
auto find(Range&& range, const Value& value, Projection projection = {}) {
  return std::find_if(std::begin(range), std::end(range),
                      [&](const auto& one) { return std::invoke(projection, one) == value; });
}

}  // namespace ranges
}  // namespace std
