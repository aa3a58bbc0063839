#include "models/tokenizers/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "models/tokenizers/tokenizer_file.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/json.h"

namespace tessera {
namespace {

constexpr std::size_t kJobBytes = 1 << 20;

std::vector<AddedToken> normalized_tokens(const std::vector<AddedToken>& all,
                                          const std::vector<Normalizer>& normalizers) {
  std::vector<AddedToken> chosen;
  for (AddedToken token : all) {
    if (!token.normalized) continue;
    for (const Normalizer& normalize : normalizers) normalize(token.text);
    if (!token.text.empty()) chosen.push_back(std::move(token));
  }
  return chosen;
}

std::vector<AddedToken> literal_tokens(std::vector<AddedToken> all) {
  std::erase_if(all, [](const AddedToken& token) { return token.normalized; });
  return all;
}

}  // namespace

/// A run of segments, or a range of one long segment.
struct BpeTokenizer::Job {
  std::size_t first, last;  // segments
  bool is_range = false;
  std::size_t begin = 0, end = 0;  // bytes of the segment

  std::vector<std::int32_t> tokens;
  /// Where the first pieces begin in the segment and in `tokens`.
  struct Mark {
    std::size_t text, token;
  };
  std::vector<Mark> marks;
  std::size_t next = 0;  // where the piece after the range begins
};

BpeTokenizer::BpeTokenizer(Parts parts)
    : parts_(std::move(parts)),
      in_text_(literal_tokens(parts_.added_tokens)),
      in_normalized_(normalized_tokens(parts_.added_tokens, parts_.normalizers)) {
  const auto& ids = parts_.bpe.ids();
  const std::size_t count = ids.size() + parts_.added_tokens.size();
  std::int32_t greatest = -1;
  for (const auto& [text, id] : ids) greatest = std::max(greatest, id);
  for (const AddedToken& token : parts_.added_tokens) greatest = std::max(greatest, token.id);
  check(static_cast<std::size_t>(greatest) + 1 <= 4 * count + 65536 || greatest < 0,
        "a token has the id {}, but there are {} tokens", greatest, count);
  texts_.resize(static_cast<std::size_t>(greatest + 1));
  taken_.resize(texts_.size());
  for (const auto& [text, id] : ids) place_token(text, id);
  place_added_tokens();
  auto& stages = parts_.splitters.stages;
  if (parts_.bpe.words_stay_apart()) stages.push_back(make_word_splitter());
  while (rewriting_ < stages.size() && stages[rewriting_]->rewrites()) ++rewriting_;
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::place_token(const std::string& text, std::int32_t id) {
  const auto place = static_cast<std::size_t>(id);
  if (taken_[place]) {
    fail("the tokens {} and {} have the id {}", excerpt(texts_[place]), excerpt(text), id);
  }
  taken_[place] = true;
  texts_[place] = text;
}

/// Hugging Face's library gives an added token the vocabulary's id, or the next free one, whatever
/// the file says. A file that says otherwise is refused.
void BpeTokenizer::place_added_tokens() {
  const auto& ids = parts_.bpe.ids();
  auto next = static_cast<std::int32_t>(ids.size());
  for (const AddedToken& token : parts_.added_tokens) {
    const auto known = ids.find(token.text);
    const std::int32_t expected = known == ids.end() ? next : known->second;
    check(token.id == expected, "the added token {} has the id {}; expected {}",
          excerpt(token.text), token.id, expected);
    if (known == ids.end()) {
      place_token(token.text, token.id);
      ++next;
    }
  }
  for (const AddedToken& token : normalized_tokens(parts_.added_tokens, parts_.normalizers)) {
    texts_[static_cast<std::size_t>(token.id)] = token.text;
  }
}

std::vector<std::int32_t> BpeTokenizer::encode(std::string_view text) const {
  return encode(text, /*plain=*/false);
}

std::vector<std::int32_t> BpeTokenizer::encode_plain(std::string_view text) const {
  return encode(text, /*plain=*/true);
}

std::vector<std::int32_t> BpeTokenizer::with_special_tokens(
    std::vector<std::int32_t> tokens) const {
  tokens.insert(tokens.begin(), parts_.before.begin(), parts_.before.end());
  tokens.insert(tokens.end(), parts_.after.begin(), parts_.after.end());
  return tokens;
}

std::vector<std::int32_t> BpeTokenizer::encode(std::string_view text, bool plain) const {
  if (!is_valid_utf8(text)) return encode(repaired_utf8(text), plain);
  std::deque<std::string> storage;
  const Segments segments = segments_of(text, plain, storage);
  std::vector<Job> jobs = jobs_of(segments);
  const auto count = static_cast<std::int64_t>(jobs.size());
  const auto run_some = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) run(jobs[static_cast<std::size_t>(i)], segments);
  };
  if (count > 1 && context_or_null() != nullptr) {
    parallel_for(count, 1, run_some);
  } else {
    run_some(0, count);
  }
  return joined(jobs, segments);
}

BpeTokenizer::Segments BpeTokenizer::segments_of(std::string_view text, bool plain,
                                                 std::deque<std::string>& storage) const {
  Segments segments;
  if (plain) {
    if (!text.empty()) append_normalized({text, true}, plain, storage, segments);
    return segments;
  }
  in_text_.cut(text, [&](const AddedToken* token, std::string_view part) {
    if (token != nullptr) {
      segments.push_back({.token = token->id});
    } else {
      append_normalized({part, part.data() == text.data()}, plain, storage, segments);
    }
  });
  return segments;
}

void BpeTokenizer::append_normalized(const Piece& text, bool plain,
                                     std::deque<std::string>& storage, Segments& segments) const {
  std::string_view normal = text.text;
  if (!parts_.normalizers.empty()) {
    std::string& changed = storage.emplace_back(text.text);
    for (const Normalizer& normalize : parts_.normalizers) normalize(changed);
    normal = changed;
  }
  const auto append_text = [&](std::string_view part) {
    Piece piece{part, text.at_start && part.data() == normal.data()};
    for (std::size_t i = 0; i < rewriting_; ++i) {
      std::string& changed = storage.emplace_back();
      parts_.splitters.stages[i]->cut(piece, [&](const Piece& made) { changed = made.text; });
      piece.text = changed;
    }
    segments.push_back({.text = piece});
  };
  if (plain) {
    if (!normal.empty()) append_text(normal);
    return;
  }
  in_normalized_.cut(normal, [&](const AddedToken* token, std::string_view part) {
    if (token != nullptr) {
      segments.push_back({.token = token->id});
    } else {
      append_text(part);
    }
  });
}

std::vector<BpeTokenizer::Job> BpeTokenizer::jobs_of(const Segments& segments) const {
  const auto& stages = parts_.splitters.stages;
  const bool cuttable = rewriting_ < stages.size() && stages[rewriting_]->forgets();
  std::vector<Job> jobs;
  std::size_t bytes = kJobBytes;  // of the last job; full, so the first segment begins a new one
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::string_view text = segments[i].text.text;
    if (cuttable && text.size() > kJobBytes) {
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end =
            stages[rewriting_]->guess(text, std::min(begin + kJobBytes, text.size()));
        jobs.push_back({.first = i, .last = i + 1, .is_range = true, .begin = begin, .end = end});
        begin = end;
      }
      bytes = kJobBytes;
    } else {
      if (bytes >= kJobBytes) {
        jobs.push_back({.first = i, .last = i});
        bytes = 0;
      }
      jobs.back().last = i + 1;
      bytes += text.size();
    }
  }
  return jobs;
}

void BpeTokenizer::run(Job& job, const Segments& segments) const {
  std::unique_ptr<PieceCache> cache = take_cache();
  if (job.is_range) {
    run_range(job, segments[job.first].text, *cache);
  } else {
    for (std::size_t i = job.first; i < job.last; ++i) {
      if (segments[i].token >= 0) {
        job.tokens.push_back(segments[i].token);
      } else {
        run_stages(segments[i].text, rewriting_, *cache, job.tokens);
      }
    }
  }
  return_cache(std::move(cache));
}

void BpeTokenizer::run_range(Job& job, const Piece& text, PieceCache& cache) const {
  constexpr std::size_t kMostMarks = 256;
  const auto sink = [&](const Piece& piece) {
    if (job.marks.size() < kMostMarks) {
      const auto begin = static_cast<std::size_t>(piece.text.data() - text.text.data());
      job.marks.push_back({begin, job.tokens.size()});
    }
    run_stages(piece, rewriting_ + 1, cache, job.tokens);
  };
  job.next = parts_.splitters.stages[rewriting_]->cut_range(text, job.begin, job.end, sink);
}

void BpeTokenizer::run_stages(const Piece& piece, std::size_t stage, PieceCache& cache,
                              std::vector<std::int32_t>& tokens) const {
  const auto& stages = parts_.splitters.stages;
  if (stage == stages.size()) return cache.encode(parts_.bpe, piece.text, tokens);
  stages[stage]->cut(piece, [&](const Piece& part) { run_stages(part, stage + 1, cache, tokens); });
}

/// The jobs' tokens in order. A range that begins inside a piece of the range before is wrong up to
/// the first piece at which both agree; from there on all pieces are the same.
std::vector<std::int32_t> BpeTokenizer::joined(std::vector<Job>& jobs,
                                               const Segments& segments) const {
  std::vector<std::int32_t> tokens;
  std::size_t next = 0;  // where the next piece of the segment begins
  for (Job& job : jobs) {
    std::size_t from = 0;
    if (job.is_range && job.begin > 0) {
      const Piece& text = segments[job.first].text;
      auto mark = job.marks.begin();
      while (next < job.end) {
        while (mark != job.marks.end() && mark->text < next) ++mark;
        if (mark != job.marks.end() && mark->text == next) break;
        // One piece more, or all that is left if there is no mark to agree with.
        const std::size_t until = mark == job.marks.end() ? job.end : next + 1;
        Job more{.first = job.first, .last = job.last, .begin = next, .end = until};
        const auto cache = std::make_unique<PieceCache>();
        run_range(more, text, *cache);
        tokens.insert(tokens.end(), more.tokens.begin(), more.tokens.end());
        next = more.next;
      }
      if (next >= job.end) continue;
      from = mark->token;
    }
    tokens.insert(tokens.end(), job.tokens.begin() + static_cast<std::ptrdiff_t>(from),
                  job.tokens.end());
    next = job.next;
    job.tokens = {};
  }
  return tokens;
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    const bool known =
        token >= 0 && token < vocab_size() && taken_[static_cast<std::size_t>(token)];
    check(known, "token {} is not in the vocabulary of {}", token, vocab_size());
    texts.push_back(texts_[static_cast<std::size_t>(token)]);
  }
  if (texts.empty()) return {};
  for (const TextDecoder& decode : parts_.decoders) decode(texts);
  std::string text;
  for (const std::string& part : texts) text += part;
  return text;
}

std::string BpeTokenizer::spelling(std::int32_t token) const {
  if (token < 0 || token >= vocab_size()) return {};
  return texts_[static_cast<std::size_t>(token)];
}

void BpeTokenizer::save(const std::filesystem::path& directory) const {
  write_file_atomically(directory / kFileName, parts_.file);
  write_tokenizer_config(directory, parts_.config);
}

std::unique_ptr<PieceCache> BpeTokenizer::take_cache() const {
  const std::lock_guard lock(caches_mutex_);
  if (caches_.empty()) return std::make_unique<PieceCache>();
  std::unique_ptr<PieceCache> cache = std::move(caches_.back());
  caches_.pop_back();
  return cache;
}

void BpeTokenizer::return_cache(std::unique_ptr<PieceCache> cache) const {
  const std::lock_guard lock(caches_mutex_);
  caches_.push_back(std::move(cache));
}

}  // namespace tessera
