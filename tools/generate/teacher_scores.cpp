#include "tools/generate/teacher_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "models/hugging_face.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "tools/data/document_windows.h"
#include "tools/data/manifest.h"
#include "tools/data/token_corpus.h"
#include "tools/generate/model_tokenizer.h"
#include "tools/generate/teacher_records.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Tokens are computed together up to so many, and up to so many bytes of logits.
constexpr std::int64_t kTokensAtATime = 4096, kBytesOfLogits = std::int64_t{1} << 28;

std::int64_t tokens_at_a_time(const TransformerShape& shape) {
  const std::int64_t bytes = shape.vocab_size * static_cast<std::int64_t>(sizeof(float));
  return std::clamp<std::int64_t>(kBytesOfLogits / bytes, 1, kTokensAtATime);
}

/// One pass of the model over a token file.
class TeacherPass {
 public:
  /// Without `take` the pass only takes part in the other ranks' computations.
  TeacherPass(LanguageModel& model, const TokenFile& tokens, std::int64_t top_k,
              const TakeRecords& take)
      : model_(model),
        tokens_(tokens),
        top_k_(top_k),
        take_(take),
        at_a_time_(tokens_at_a_time(model.shape())) {}

  void add(const DocumentWindow& window) {
    if (grouped_ + window.tokens > at_a_time_) finish();
    group_.push_back(window);
    grouped_ += window.tokens;
  }

  /// Computes the windows that wait for others.
  void finish() {
    if (group_.empty()) return;
    std::vector<KeyValueCache> caches;
    for (const DocumentWindow& window : group_) caches.emplace_back(model_.shape(), window.tokens);
    // Only a window that is alone has several pieces.
    for (std::int64_t begin = 0; begin < group_.front().tokens; begin += at_a_time_) {
      compute_pieces(begin, caches);
    }
    group_.clear();
    grouped_ = 0;
  }

  /// The mean cross-entropy of all next tokens.
  double mean_loss() const {
    check(next_tokens_ > 0, "{}: no document has two tokens", tokens_.path().string());
    return loss_ / static_cast<double>(next_tokens_);
  }

 private:
  /// The piece of every window from its token `begin` on.
  void compute_pieces(std::int64_t begin, std::vector<KeyValueCache>& caches) {
    std::vector<NewTokens> sequences;
    std::vector<std::int32_t> next_tokens;  // of the tokens that get records now
    for (std::size_t i = 0; i < group_.size(); ++i) {
      const DocumentWindow& window = group_[i];
      const std::int64_t count = std::min(at_a_time_, window.tokens - begin);
      const std::int64_t rows = std::min(count, begin + count - window.repeated);
      std::vector<std::int32_t> ids = ids_of(window, begin, count);
      if (rows > 0) next_tokens.insert(next_tokens.end(), ids.end() - rows, ids.end());
      ids.pop_back();
      sequences.push_back(
          {Tensor::from(ids, {count}), &caches[i], std::max<std::int64_t>(rows, 1)});
    }
    const Tensor logits = model_.next_logits(sequences);
    if (!take_ || next_tokens.empty()) return;
    RecordsOfRows records = teacher_records(logits, next_tokens, top_k_);
    loss_ += records.loss;
    next_tokens_ += records.next_tokens;
    take_({records.ids, records.log_probabilities});
  }

  /// Tokens [begin, begin + count) of a window and the one behind them: kIgnoreIndex behind a document.
  std::vector<std::int32_t> ids_of(const DocumentWindow& window, std::int64_t begin,
                                   std::int64_t count) const {
    const bool last = window.ends_document && begin + count == window.tokens;
    std::vector<TokenId> ids(static_cast<std::size_t>(last ? count : count + 1));
    tokens_.read(window.first + begin, ids);
    std::vector<std::int32_t> result(ids.begin(), ids.end());
    if (last) result.push_back(kIgnoreIndex);
    return result;
  }

  LanguageModel& model_;
  const TokenFile& tokens_;
  const std::int64_t top_k_;
  const TakeRecords& take_;
  const std::int64_t at_a_time_;
  std::vector<DocumentWindow> group_;
  std::int64_t grouped_ = 0;  // their tokens
  double loss_ = 0.0;         // of the next tokens
  std::int64_t next_tokens_ = 0;
};

/// A token file and its marks, if it has some.
struct Source {
  TokenFile tokens;
  std::optional<MarkFile> marks;
};

/// Called on every rank. The result is that of rank 0.
TeacherScores write_one(LanguageModel& model, const Source& source,
                        std::optional<std::int32_t> document_token, std::int64_t length,
                        std::int64_t top_k) {
  TeacherScores scores = {.path = teacher_file_of(source.tokens.path())};
  const auto produce = [&](const TakeRecords& take) {
    TeacherPass pass(model, source.tokens, top_k, take);
    for_each_window(source.tokens, source.marks, document_token, length,
                    [&](const DocumentWindow& window) { pass.add(window); });
    pass.finish();
    if (take) scores.loss = pass.mean_loss();
  };
  if (context().rank() == 0) {
    scores.header = {.top_k = top_k,
                     .vocab_size = model.shape().vocab_size,
                     .tokens = source.tokens.size(),
                     .hash = hash_of_tokens(source.tokens)};
    write_teacher_file(scores.path, scores.header, produce);
  } else {
    produce({});
  }
  return scores;
}

void write_all(LanguageModel& model, const TeacherOptions& options,
               const std::function<void(const TeacherScores& scores)>& done) {
  const TransformerShape& shape = model.shape();
  check(options.top_k <= shape.vocab_size, "--top-k {} is more than the model's {} tokens",
        options.top_k, shape.vocab_size);
  const std::int64_t length = options.sequence_length > 0 ? options.sequence_length : shape.context;
  check(length <= shape.context, "--sequence-length {} is more than the model's context of {}",
        length, shape.context);
  const auto document_token =
      document_token_of(options, options.document_token, options.data, shape.vocab_size);
  std::vector<Source> sources;
  for (const fs::path& path : token_files_of(options.data)) {
    TokenFile tokens = open_verified(path, shape.vocab_size);
    sources.push_back({tokens, open_verified_marks(tokens)});
  }
  std::vector<std::string> less_work;
  if (length > tokens_at_a_time(shape)) less_work.emplace_back("a shorter --sequence-length");
  with_inference_advice(options, less_work, [&] {
    for (const Source& source : sources) {
      const TeacherScores scores = write_one(model, source, document_token, length, options.top_k);
      if (context().rank() == 0) done(scores);
    }
  });
}

}  // namespace

void write_teacher_files(const TeacherOptions& given,
                         const std::function<void(const TeacherScores& scores)>& done) {
  TeacherOptions options = given;
  if (options.document_token.empty()) {
    const auto run = config_of_run(find_model(options.model, options.adapter).own());
    if (run) options.document_token = run->data.document_token;
  }
  run_model(options, [&](LanguageModel& model) { write_all(model, options, done); });
}

std::string to_text(const TeacherScores& scores) {
  return fmt::format(
      "{}: the {} likeliest next tokens of {} tokens, {} bytes; loss {:.4f}\n",
      scores.path.string(), scores.header.top_k, scores.header.tokens,
      TeacherFile::kHeaderBytes + scores.header.tokens * scores.header.bytes_per_record(),
      scores.loss);
}

}  // namespace tessera
