// The table of configuration keys: the one place that knows their names.
//
// Reading YAML, command-line overrides, writing the resolved configuration and the reference in
// docs/configuration.md are all loops over this table, so none can disagree with another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/config/config.h"

namespace tessera {

/// Which values a key takes besides having the right type.
struct Allowed {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_excluded = false;
  bool most_excluded = false;
  /// For text: any, if empty.
  std::vector<std::string> choices;
  /// For text of forms that no list of choices can hold: what tells them, and their names.
  bool (*is_form)(std::string_view) = nullptr;
  std::string forms = "";

  bool contains(double number) const;
  bool contains(std::string_view text) const;
};

/// One key: where its value lives in a Config, what it may be and what it means.
struct Key {
  using Field = std::variant<std::string*, std::filesystem::path*, std::int64_t*, double*, bool*>;

  std::string name;  // "data.batch_size"
  Field field;
  Allowed allowed;
  std::string documentation;

  std::string_view section() const;

  /// Stores the value that `text` spells. False, with nothing stored, if it spells none that is
  /// allowed.
  bool parse(std::string_view text) const;
  /// What parse accepts: "a whole number >= 1", "one of adamw, sgd".
  std::string expected() const;
  /// The value as text that parse reads back to the same value.
  std::string text() const;
};

struct Section {
  std::string name;
  std::string documentation;
};

/// The sections in the order of the reference.
const std::vector<Section>& sections();

/// The table, section by section, with pointers into `config`, which must outlive it.
std::vector<Key> keys_of(Config& config);

}  // namespace tessera
