#include "tools/pickle/writer.h"

#include <bit>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

/// The lowest byte first.
std::string bytes_of(std::uint64_t bits, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>(bits >> (8 * i) & 0xff);
  return out;
}

std::string between(std::string_view begin, const std::vector<std::string>& items, char end) {
  std::string out(begin);
  for (const std::string& item : items) out += item;
  return out + end;
}

std::string value_of(const Json& value) {
  if (value.is_null()) return pickled::none();
  if (value.is_boolean()) return pickled::boolean(value.get<bool>());
  if (value.is_string()) return pickled::text(value.get_ref<const std::string&>());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() >> 63 != 0) {
    // A ninth byte is the sign of numbers from 2^63 on.
    return "\x8a\x09" + bytes_of(value.get<std::uint64_t>(), 8) + '\0';
  }
  if (value.is_number_integer()) return pickled::whole(value.get<std::int64_t>());
  if (value.is_number()) return pickled::real(value.get<double>());
  std::vector<std::string> items;
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) items.push_back(pickled::text(key));
    items.push_back(value_of(item));
  }
  return value.is_array() ? pickled::list(items) : pickled::dict(items);
}

}  // namespace

namespace pickled {

std::string none() {
  return "N";
}

std::string boolean(bool value) {
  return value ? "\x88" : "\x89";
}

/// Eight bytes with a sign. (PyTorch's viewer reads longer ones as BigInt, which its arithmetic does not
/// take.)
std::string whole(std::int64_t value) {
  return "\x8a\x08" + bytes_of(static_cast<std::uint64_t>(value), 8);
}

std::string real(double value) {
  const std::string low_first = bytes_of(std::bit_cast<std::uint64_t>(value), 8);
  return "G" + std::string(low_first.rbegin(), low_first.rend());
}

std::string text(std::string_view value) {
  return "X" + bytes_of(value.size(), 4) + std::string(value);
}

std::string tuple(const std::vector<std::string>& items) {
  return between("(", items, 't');
}

std::string list(const std::vector<std::string>& items) {
  return between("](", items, 'e');
}

std::string dict(const std::vector<std::string>& items) {
  return between("}(", items, 'u');
}

std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}

std::string call(const std::string& callable, const std::string& arguments) {
  return callable + arguments + "R";
}

std::string object(const std::string& type, const std::string& state) {
  return type + ")\x81" + state + "b";
}

std::string persistent(const std::string& id) {
  return id + "Q";
}

std::string finished(const std::string& value) {
  return "\x80\x02" + value + ".";
}

}  // namespace pickled

std::string to_pickle(const Json& value) {
  return pickled::finished(value_of(value));
}

}  // namespace tessera
