#include "tools/pickle/reader.h"

#include <array>
#include <bit>
#include <map>

#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

using ValueKind = PickleValue::Kind;

constexpr std::array<std::string_view, 11> kKindNames = {
    "None",   "a boolean", "a whole number", "a number",           "a text", "a tuple", "a list",
    "a dict", "a class",   "an object",      "a persistent object"};

std::string_view name_of(ValueKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

/// The machine that a pickle is a program for.
class StackMachine {
 public:
  StackMachine(std::string_view text, std::deque<PickleValue>& values)
      : text_(text), values_(values) {}

  const PickleValue* run() {
    while (true) {
      at_ = next_;
      const auto opcode = static_cast<unsigned char>(take(1)[0]);
      if (opcode == '.') return pop();
      if (!constant(opcode) && !collection(opcode) && !object(opcode) && !memory(opcode)) {
        fail("byte {} has the opcode {:#04x}, which is not known", at_, opcode);
      }
    }
  }

 private:
  bool constant(unsigned char opcode) {
    switch (opcode) {
      case 'N':
        push({});
        return true;
      case 0x88:
      case 0x89:
        push({.kind = ValueKind::boolean, .whole = opcode == 0x88});
        return true;
      case 'K':
        push_whole(number(1));
        return true;
      case 'M':
        push_whole(number(2));
        return true;
      case 'J':
        push_whole(static_cast<std::int32_t>(number(4)));
        return true;
      case 0x8a:
        push_whole(long_number(number(1)));
        return true;
      case 'G':
        push({.kind = ValueKind::real, .real = real()});
        return true;
      case 'X':
        push_text(take(number(4)));
        return true;
      case 0x8c:
        push_text(take(number(1)));
        return true;
      case 0x8d:
        push_text(take(number(8)));
        return true;
      default:
        return false;
    }
  }

  bool collection(unsigned char opcode) {
    switch (opcode) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ')':
        push({.kind = ValueKind::tuple});
        return true;
      case ']':
        push({.kind = ValueKind::list});
        return true;
      case '}':
        push({.kind = ValueKind::dict});
        return true;
      case 't':
        push({.kind = ValueKind::tuple, .items = pop_to_mark()});
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        push({.kind = ValueKind::tuple, .items = pop_last(opcode - 0x84u)});
        return true;
      case 'a':
        extend(ValueKind::list, pop_last(1));
        return true;
      case 'e':
        extend(ValueKind::list, pop_to_mark());
        return true;
      case 's':
        extend(ValueKind::dict, pop_last(2));
        return true;
      case 'u':
        extend(ValueKind::dict, pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  bool object(unsigned char opcode) {
    switch (opcode) {
      case 'c': {
        const std::string module = line();
        push({.kind = ValueKind::global, .text = module + "." + line()});
        return true;
      }
      case 0x93: {
        const std::vector<const PickleValue*> names = pop_last(2);
        push({.kind = ValueKind::global, .text = names[0]->as_text() + "." + names[1]->as_text()});
        return true;
      }
      case 'R':
      case 0x81: {
        std::vector<const PickleValue*> made = pop_last(2);
        made[0]->expect(ValueKind::global);
        made[1]->expect(ValueKind::tuple);
        push({.kind = ValueKind::object, .items = std::move(made)});
        return true;
      }
      case 'b': {
        const PickleValue* const state = pop();
        top(ValueKind::object).items.resize(2);
        top(ValueKind::object).items.push_back(state);
        return true;
      }
      case 'Q':
        push({.kind = ValueKind::persistent, .items = pop_last(1)});
        return true;
      default:
        return false;
    }
  }

  bool memory(unsigned char opcode) {
    switch (opcode) {
      case 0x80:  // the protocol
        take(1);
        return true;
      case 0x95:  // the bytes of a frame
        take(8);
        return true;
      case 0x94:
        remember(memo_.size());
        return true;
      case 'q':
        remember(number(1));
        return true;
      case 'r':
        remember(number(4));
        return true;
      case 'h':
        recall(number(1));
        return true;
      case 'j':
        recall(number(4));
        return true;
      default:
        return false;
    }
  }

  std::string_view take(std::uint64_t count) {
    check(count <= text_.size() - next_, "it ends at byte {}, within the value at byte {}",
          text_.size(), at_);
    next_ += count;
    return text_.substr(next_ - count, count);
  }

  /// The lowest byte first.
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    std::size_t shift = 0;
    for (const char c : take(bytes)) {
      value |= std::uint64_t{static_cast<unsigned char>(c)} << shift;
      shift += 8;
    }
    return value;
  }

  /// With a sign, in as few bytes as it needs.
  std::uint64_t long_number(std::uint64_t bytes) {
    check(bytes <= 8, "byte {} has a whole number of {} bytes; expected at most 8", at_, bytes);
    if (bytes == 0) return 0;
    const std::uint64_t value = number(bytes);
    const bool negative = (value >> (8 * bytes - 1)) != 0;
    return negative && bytes < 8 ? value | ~std::uint64_t{0} << (8 * bytes) : value;
  }

  double real() {
    std::uint64_t bits = 0;
    for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
    return std::bit_cast<double>(bits);
  }

  std::string line() {
    const std::size_t end = text_.find('\n', next_);
    check(end != std::string_view::npos, "it ends within the name at byte {}", at_);
    const std::string_view found = take(end - next_);
    take(1);
    return std::string(found);
  }

  void push(PickleValue value) { stack_.push_back(&values_.emplace_back(std::move(value))); }
  void push_whole(std::uint64_t value) {
    push({.kind = ValueKind::whole, .whole = static_cast<std::int64_t>(value)});
  }
  void push_text(std::string_view value) {
    push({.kind = ValueKind::text, .text = std::string(value)});
  }

  /// The last values above the last mark.
  std::vector<const PickleValue*> pop_last(std::size_t count) {
    const std::size_t bottom = marks_.empty() ? 0 : marks_.back();
    check(stack_.size() >= bottom + count, "byte {} needs {} values on the stack", at_, count);
    const std::vector<const PickleValue*> items(stack_.end() - static_cast<std::ptrdiff_t>(count),
                                                stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  const PickleValue* pop() { return pop_last(1)[0]; }
  std::vector<const PickleValue*> pop_to_mark() {
    check(!marks_.empty(), "byte {} needs a mark on the stack", at_);
    std::vector<const PickleValue*> items = pop_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }

  PickleValue& top(ValueKind kind) {
    check(stack_.size() > (marks_.empty() ? 0 : marks_.back()) && stack_.back()->kind == kind,
          "byte {} needs {} on the stack", at_, name_of(kind));
    return *stack_.back();
  }
  void extend(ValueKind kind, const std::vector<const PickleValue*>& items) {
    check(kind != ValueKind::dict || items.size() % 2 == 0, "byte {} has a key without a value",
          at_);
    std::vector<const PickleValue*>& all = top(kind).items;
    all.insert(all.end(), items.begin(), items.end());
  }

  void remember(std::uint64_t place) {
    check(!stack_.empty(), "byte {} needs a value on the stack", at_);
    memo_[place] = stack_.back();
  }
  void recall(std::uint64_t place) {
    const auto found = memo_.find(place);
    check(found != memo_.end(), "byte {} recalls value {}, which was not stored", at_, place);
    stack_.push_back(found->second);
  }

  std::string_view text_;
  std::deque<PickleValue>& values_;
  std::size_t next_ = 0, at_ = 0;
  std::vector<PickleValue*> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, PickleValue*> memo_;
};

}  // namespace

std::string_view PickleValue::type() const {
  return kind == ValueKind::object ? std::string_view(items[0]->text) : std::string_view();
}

const PickleValue& PickleValue::expect(ValueKind expected) const {
  check(kind == expected, "expected {}, found {}", name_of(expected), description());
  return *this;
}

const PickleValue& PickleValue::arguments(std::string_view expected) const {
  check(type() == expected, "expected {}, found {}", expected, description());
  return *items[1];
}

const PickleValue* PickleValue::find_member(std::string_view expected,
                                            std::string_view name) const {
  arguments(expected);
  if (items.size() < 3) return nullptr;
  const std::vector<const PickleValue*>& members = items[2]->expect(ValueKind::dict).items;
  for (std::size_t i = 0; i < members.size(); i += 2) {
    if (members[i]->kind == ValueKind::text && members[i]->text == name) return members[i + 1];
  }
  return nullptr;
}

const PickleValue& PickleValue::member(std::string_view expected, std::string_view name) const {
  const PickleValue* const found = find_member(expected, name);
  check(found != nullptr, "{} has no member {}", expected, name);
  return *found;
}

std::string PickleValue::description() const {
  return kind == ValueKind::object ? excerpt(type()) : std::string(name_of(kind));
}

Pickle::Pickle(std::string_view text) : root_(StackMachine(text, values_).run()) {}

}  // namespace tessera
