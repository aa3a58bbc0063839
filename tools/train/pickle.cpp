#include "tools/train/pickle.h"

#include <bit>
#include <cstdint>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// The opcodes of Python's Lib/pickletools.py.
constexpr char kProtocol2[] = "\x80\x02";
constexpr char kStop = '.', kNone = 'N', kTrue = '\x88', kFalse = '\x89';
constexpr char kMark = '(', kEmptyDict = '}', kSetItems = 'u', kEmptyList = ']', kAppends = 'e';
constexpr char kText = 'X', kFloat = 'G', kLong = '\x8a';

void add_text(std::string& out, const std::string& text) {
  out += kText;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(text.size() >> (8 * i) & 0xff);
  out += text;
}

/// Eight bytes with a sign, the lowest first. (PyTorch's viewer reads longer ones as BigInt, which its
/// arithmetic does not take.) A ninth byte is the sign of numbers from 2^63 on.
void add_whole(std::string& out, std::uint64_t bits, bool is_large) {
  out += kLong;
  out += is_large ? '\x09' : '\x08';
  for (int i = 0; i < 8; ++i) out += static_cast<char>(bits >> (8 * i) & 0xff);
  if (is_large) out += '\x00';
}

void add_float(std::string& out, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  out += kFloat;
  for (int i = 7; i >= 0; --i) out += static_cast<char>(bits >> (8 * i) & 0xff);
}

void add(std::string& out, const Json& value) {
  if (value.is_null()) {
    out += kNone;
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? kTrue : kFalse;
  } else if (value.is_string()) {
    add_text(out, value.get_ref<const std::string&>());
  } else if (value.is_number_unsigned()) {
    add_whole(out, value.get<std::uint64_t>(), value.get<std::uint64_t>() >> 63 != 0);
  } else if (value.is_number_integer()) {
    add_whole(out, static_cast<std::uint64_t>(value.get<std::int64_t>()), false);
  } else if (value.is_number()) {
    add_float(out, value.get<double>());
  } else if (value.is_array()) {
    out += kEmptyList;
    out += kMark;
    for (const Json& item : value) add(out, item);
    out += kAppends;
  } else {
    out += kEmptyDict;
    out += kMark;
    for (const auto& [key, item] : value.items()) {
      add_text(out, key);
      add(out, item);
    }
    out += kSetItems;
  }
}

}  // namespace

std::string to_pickle(const Json& value) {
  std::string out = kProtocol2;
  add(out, value);
  return out + kStop;
}

}  // namespace tessera
