// Keys with a list of pairs: "[[1, 1], [100, 0.5]]".
#pragma once

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "tools/config/key_types.h"
#include "tools/config/yaml_documents.h"

namespace tessera {

template <typename Pair>
struct PairForm {
  /// "a list of [step, factor] such as [[1, 1], [100, 0.5]]".
  const char* list;
  /// The values that a pair may have: "a stage has a step from 1 on and a factor from 0 on".
  const char* pair;
  /// The pair of two texts, and whether they have the form.
  std::function<bool(Pair&, const std::string& first, const std::string& second)> read;
  /// Whether a pair may follow another, and the rule: "the steps of a table rise".
  std::function<bool(const Pair& before, const Pair& pair)> follows;
  const char* rule;
  /// "[100, 0.5]".
  std::function<std::string(const Pair&)> text;
};

template <typename Pair>
std::vector<Pair> read_pairs(const PairForm<Pair>& form, const YAML::Node& list,
                             const NodePlace& place) {
  std::vector<Pair> pairs;
  for (const YAML::Node& node : list) {
    check(node.IsSequence() && node.size() == 2 && node[0].IsScalar() && node[1].IsScalar(),
          "{}: expected {}", place(node), form.list);
    Pair pair;
    check(form.read(pair, node[0].Scalar(), node[1].Scalar()), "{}: {}; got [{}, {}]", place(node),
          form.pair, node[0].Scalar(), node[1].Scalar());
    check(pairs.empty() || form.follows(pairs.back(), pair), "{}: {}; {} follows {}", place(node),
          form.rule, form.text(pair), pairs.empty() ? "" : form.text(pairs.back()));
    pairs.push_back(pair);
  }
  return pairs;
}

template <typename Pair>
Key pair_list_key(std::string name, std::vector<Pair>& pairs, const PairForm<Pair>& form,
                  std::string documentation) {
  const auto parse = [form](std::string_view text) {
    return parse_yaml_list<std::vector<Pair>>(
        text, [&](const YAML::Node& list) { return read_pairs(form, list, place_in_text); });
  };
  const auto text_of = [form](const std::vector<Pair>& all) {
    std::vector<std::string> texts;
    for (const Pair& pair : all) texts.push_back(form.text(pair));
    return texts.empty() ? "" : fmt::format("[{}]", fmt::join(texts, ", "));
  };
  Key key = form_key(std::move(name), pairs, form.list, parse, text_of, std::move(documentation));
  key.parse_list = [&pairs, form](const YAML::Node& list, const NodePlace& place) {
    pairs = read_pairs(form, list, place);
  };
  return key;
}

}  // namespace tessera
