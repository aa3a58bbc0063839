// Messages between the ranks of a TCP rendezvous and its server, as bytes.
//
// A message is a header of 8 bytes, its kind and the length of its body, and
// the body. A connection begins with `hello`, which has a fixed length and a
// magic number. The server closes a connection that begins with anything else.
// All machines are little-endian.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tcp {

enum class Kind : std::uint32_t {
  hello = 1,  // to the server: Hello
  welcome,    // to all, when all have joined: the number of the node of every
              // rank, i32 each
  refused,    // to a rank that may not join: text
  gather,     // to the server: Gather, and this rank's bytes
  gathered,   // to the group: GatherKey, and the bytes of every rank, each after
              // its length
  query,      // to the server: GatherKey
  arrived,    // the answer: GatherKey, and the ranks in the group that have sent
              // theirs, i32 each
  failed,     // to the server, and from it to all: the rank that reports it, i32,
              // and text
  ended,      // to the server: this rank has left its body; to all: all ranks have
};

inline constexpr char kMagic[8] = {'T', 'E', 'S', 'S', 'E', 'R', 'A', '1'};

struct Hello {
  char magic[8] = {};
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  /// A hash of the launcher's name for the run.
  std::uint64_t run = 0;
  /// A hash of the machine's name.
  std::uint64_t machine = 0;
};

/// One exchange of a group. All its members use the same.
struct GatherKey {
  std::uint64_t group = 0;
  std::uint64_t number = 0;
  auto operator<=>(const GatherKey&) const = default;
};

struct Gather {
  GatherKey key;
  /// This rank's number in the group, and the ranks of the group.
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
};

/// Longer messages to the server are not ours: it ends the connection.
inline constexpr std::size_t kLongestToServer = 1 << 20;

struct Message {
  Kind kind = Kind::hello;
  std::string body;
};

/// The bytes of a value.
template <typename Value>
std::string bytes_of(const Value& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Takes a value from the front of `bytes`. Raises Error if there are too few.
template <typename Value>
Value take(std::string_view& bytes);
void check_length(std::string_view bytes, std::size_t needed);

template <typename Value>
Value take(std::string_view& bytes) {
  check_length(bytes, sizeof(Value));
  Value value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

/// Takes a whole list of values.
template <typename Value>
std::vector<Value> take_all(std::string_view& bytes) {
  std::vector<Value> values;
  while (!bytes.empty()) values.push_back(take<Value>(bytes));
  return values;
}

/// A hash of a name.
std::uint64_t hash_of(std::string_view name);

/// A message as it travels.
std::string encoded(Kind kind, std::string_view body);

/// Takes the first message of `buffer`, if it has arrived completely. Raises
/// Error if it is longer than `longest`.
std::optional<Message> take_message(std::string& buffer, std::size_t longest);

}  // namespace tessera::tcp
