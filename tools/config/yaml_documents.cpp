#include "tools/config/yaml_documents.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <sstream>

#include "runtime/check.h"

namespace tessera {
namespace {

/// Counts the documents of a text. With some damaged texts yaml-cpp 0.7 begins documents without
/// end, and LoadAll keeps them all.
struct DocumentCounter final : YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override { ++documents; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  std::int64_t documents = 0;
};

}  // namespace

std::vector<YAML::Node> yaml_documents(const std::string& text, std::int64_t most) {
  // A document begins on a line of its own.
  const std::int64_t lines = std::count(text.begin(), text.end(), '\n') + 1;
  const std::int64_t limit = std::min(most, lines);
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentCounter counter;
  while (counter.documents <= limit && parser.HandleNextDocument(counter)) {
  }
  check(counter.documents <= most, "expected {} YAML document{}, got {} or more", most,
        most == 1 ? "" : "s", limit + 1);
  check(counter.documents <= lines, "not valid YAML: more documents begin than there are lines");
  return YAML::LoadAll(text);
}

std::string place_in_text(const YAML::Node& node) {
  return fmt::format("character {}", node.Mark().column + 1);  // yaml-cpp counts from 0
}

}  // namespace tessera
