#include "sharding/comm/tcp/message.h"

#include "runtime/check.h"
#include "runtime/hash.h"

namespace tessera::tcp {
namespace {

struct Header {
  Kind kind;
  std::uint32_t length;
};

}  // namespace

void check_length(std::string_view bytes, std::size_t needed) {
  check(bytes.size() >= needed, "a message of {} bytes is too short", bytes.size());
}

std::uint64_t hash_of(std::string_view name) {
  Fnv1a hash;
  hash.add(name);
  return hash.value();
}

std::string encoded(Kind kind, std::string_view body) {
  std::string message =
      bytes_of(Header{.kind = kind, .length = static_cast<std::uint32_t>(body.size())});
  return message.append(body);
}

std::optional<Message> take_message(std::string& buffer, std::size_t longest) {
  if (buffer.size() < sizeof(Header)) return std::nullopt;
  std::string_view bytes = buffer;
  const Header header = take<Header>(bytes);
  check(header.length <= longest, "a message of {} bytes is too long", header.length);
  if (bytes.size() < header.length) return std::nullopt;
  Message message{header.kind, std::string(bytes.substr(0, header.length))};
  buffer.erase(0, sizeof(Header) + header.length);
  return message;
}

}  // namespace tessera::tcp
