// A tokenizer of Hugging Face's: the stages of a tokenizer.json around byte-pair encoding.
//
//   text -> added tokens -> normalizers -> added tokens -> splitters -> byte-pair encoding -> ids
//
// Text that is not UTF-8 is repaired first (utf8.h). A long text is encoded by all threads of the
// current context; the ids are those of one thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/tokenizers/added_tokens.h"
#include "models/tokenizers/bpe.h"
#include "models/tokenizers/decoders.h"
#include "models/tokenizers/normalizers.h"
#include "models/tokenizers/splitters.h"
#include "models/tokenizers/tokenizer.h"

namespace tessera {

class BpeTokenizer : public Tokenizer {
 public:
  /// The parts of a tokenizer.json, read by read_tokenizer_json (tokenizer_json.h).
  struct Parts {
    std::vector<AddedToken> added_tokens;
    std::vector<Normalizer> normalizers;
    SplitterChain splitters;
    Bpe bpe;
    std::vector<TextDecoder> decoders;
    /// The tokens that the post-processor puts around a text, such as one that begins it.
    std::vector<std::int32_t> before, after;
    /// The file itself, which `save` writes again.
    std::string file;
    /// The tokenizer_config.json next to it; a short one if it is empty.
    std::string config;
  };

  /// Raises Error if two tokens have one id, or one text has two ids.
  explicit BpeTokenizer(Parts parts);
  ~BpeTokenizer() override;

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::vector<std::int32_t> encode_plain(std::string_view text) const override;
  std::vector<std::int32_t> with_special_tokens(std::vector<std::int32_t> tokens) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(texts_.size()); }
  std::string spelling(std::int32_t token) const override;
  void save(const std::filesystem::path& directory) const override;

 private:
  /// An added token, or text to cut into pieces.
  struct Segment {
    std::int32_t token = -1;
    Piece text;
  };
  struct Job;
  using Segments = std::vector<Segment>;

  void place_added_tokens();
  void place_token(const std::string& text, std::int32_t id);
  Segments segments_of(std::string_view text, bool plain, std::deque<std::string>& storage) const;
  void append_normalized(const Piece& text, bool plain, std::deque<std::string>& storage,
                         Segments& segments) const;
  std::vector<std::int32_t> encode(std::string_view text, bool plain) const;
  std::vector<Job> jobs_of(const Segments& segments) const;
  void run(Job& job, const Segments& segments) const;
  void run_range(Job& job, const Piece& text, PieceCache& cache) const;
  void run_stages(const Piece& piece, std::size_t stage, PieceCache& cache,
                  std::vector<std::int32_t>& tokens) const;
  std::vector<std::int32_t> joined(std::vector<Job>& jobs, const Segments& segments) const;
  std::unique_ptr<PieceCache> take_cache() const;
  void return_cache(std::unique_ptr<PieceCache> cache) const;

  Parts parts_;
  AddedTokenFinder in_text_, in_normalized_;
  std::vector<std::string> texts_;  // of every token, by id
  std::vector<bool> taken_;         // whether the id has a token
  std::size_t rewriting_ = 0;       // this many stages at the beginning rewrite the text

  mutable std::mutex caches_mutex_;
  mutable std::vector<std::unique_ptr<PieceCache>> caches_;  // not in use now
};

}  // namespace tessera
