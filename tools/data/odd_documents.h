// Odd documents: those that a person may not expect in a corpus.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/hash.h"

namespace tessera {

/// A set of 64-bit numbers. Memory: at most 32 bytes for each.
class HashSet {
 public:
  /// False if it was there.
  bool insert(std::uint64_t hash);

 private:
  void grow();

  std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(16, 0);
  std::size_t used_ = 0;
  bool has_zero_ = false;
};

/// Counts odd documents, and keeps the place of the first of each kind. Texts are compared by a hash of 64 bits.
class OddDocuments {
 public:
  /// A part of the document in progress.
  void add_text(std::string_view text);
  /// Ends the document, and returns the hash of its text. `place`: "a.jsonl:12".
  std::uint64_t end_document(const std::string& place);
  /// A document that was left out, since it is not valid UTF-8.
  void add_invalid(const std::string& place) { invalid_.add(place); }
  /// A document that an earlier call has ended, by its hash.
  void add_earlier(std::uint64_t hash) { hashes_.insert(hash); }
  /// Whether the document that ended last has the text of an earlier one.
  bool is_repeated() const { return is_repeated_; }

  /// A line for each kind that there is: "2 documents are empty; the first is a.jsonl:7".
  std::vector<std::string> lines(bool dropped) const;

 private:
  struct Kind {
    std::int64_t count = 0;
    std::string first = {};
    void add(const std::string& place) {
      if (count++ == 0) first = place;
    }
  };

  Fnv1a hash_;
  bool has_text_ = false, is_repeated_ = false;
  HashSet hashes_;
  Kind empty_, repeated_, invalid_;
};

}  // namespace tessera
