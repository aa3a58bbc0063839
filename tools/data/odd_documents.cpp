#include "tools/data/odd_documents.h"

#include <fmt/format.h>

#include <span>
#include <utility>

namespace tessera {

bool HashSet::insert(std::uint64_t hash) {
  if (hash == 0) return !std::exchange(has_zero_, true);  // 0 marks a free slot
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (slots_[slot] == hash) return false;
  }
  slots_[slot] = hash;
  if (2 * ++used_ > slots_.size()) grow();
  return true;
}

void HashSet::grow() {
  const std::vector<std::uint64_t> old =
      std::exchange(slots_, std::vector<std::uint64_t>(2 * slots_.size(), 0));
  used_ = 0;
  for (const std::uint64_t hash : old) {
    if (hash != 0) insert(hash);
  }
}

void OddDocuments::add_text(std::string_view text) {
  hash_.add(text);
  has_text_ = has_text_ || text.find_first_not_of(" \t\r\n") != text.npos;
}

std::uint64_t OddDocuments::end_document(const std::string& place) {
  const std::uint64_t hash = std::exchange(hash_, {}).value();
  is_repeated_ = !hashes_.insert(hash);
  if (!std::exchange(has_text_, false)) {
    empty_.add(place);
  } else if (is_repeated_) {
    repeated_.add(place);
  }
  return hash;
}

std::vector<std::string> OddDocuments::lines(bool dropped) const {
  std::vector<std::string> lines;
  const auto add = [&](const Kind& kind, std::string_view one, std::string_view many) {
    if (kind.count == 0) return;
    lines.push_back(fmt::format("{} document{}; the first is {}", kind.count,
                                kind.count == 1 ? one : many, kind.first));
  };
  add(empty_, " is empty", "s are empty");
  if (dropped) {
    add(repeated_, " repeats another and is left out", "s repeat others and are left out");
  } else {
    add(repeated_, " repeats another, which --drop-repeated leaves out",
        "s repeat others, which --drop-repeated leaves out");
  }
  add(invalid_, " is not valid UTF-8 and is left out", "s are not valid UTF-8 and are left out");
  return lines;
}

}  // namespace tessera
