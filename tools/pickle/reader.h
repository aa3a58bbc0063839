// Pickle: Python's format for values, read without Python.
//
// A pickle is a program for a stack machine, which may import any module and call any function. Here nothing is
// imported and nothing called: a class is its name, and an object is the class, the arguments of the call that
// would have made it, and its state. So a file from anywhere can do no harm. Opcodes of protocols 2 to 5 that the
// files of torch.save and torch.distributed.checkpoint have are known (Python's Lib/pickletools.py).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct PickleValue {
  enum class Kind {
    none,
    boolean,
    whole,
    real,
    text,
    tuple,
    list,
    dict,
    global,
    object,
    persistent
  };

  Kind kind = Kind::none;
  /// A boolean's, too: 0 or 1.
  std::int64_t whole = 0;
  double real = 0.0;
  /// A text; or the name of a global: "torch.Size".
  std::string text = {};
  /// The items of a tuple or list; keys and values of a dict in turn; the class, arguments and state (if
  /// it has one) of an object; the id of a persistent object.
  std::vector<const PickleValue*> items = {};

  /// The class of an object, "torch.Size"; empty for other values.
  std::string_view type() const;
  /// The following raise Error that says what was expected and found.
  const PickleValue& expect(Kind expected) const;
  std::int64_t as_whole() const { return expect(Kind::whole).whole; }
  const std::string& as_text() const { return expect(Kind::text).text; }
  /// An object of this class: its arguments, a tuple.
  const PickleValue& arguments(std::string_view type) const;
  /// An object of this class whose state is a dict: a member by its name; null if it does not have it.
  const PickleValue* find_member(std::string_view type, std::string_view name) const;
  const PickleValue& member(std::string_view type, std::string_view name) const;
  /// For messages: "a tuple", "torch.Size".
  std::string description() const;
};

/// A pickle's values. They live as long as it does.
class Pickle {
 public:
  /// Raises Error, with the byte, if the text ends early or has an opcode that is not known.
  explicit Pickle(std::string_view text);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const PickleValue& root() const { return *root_; }

 private:
  /// A list may contain itself, so no value owns another.
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace tessera
