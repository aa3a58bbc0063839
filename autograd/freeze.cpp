#include "autograd/freeze.h"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "runtime/nearest.h"
#include "runtime/text.h"

namespace tessera {
namespace {

/// The most similar name, or beginning of a name up to a dot.
std::string suggestion(std::string_view prefix, const std::vector<Parameter>& parameters) {
  if (prefix.ends_with('.')) prefix.remove_suffix(1);
  std::vector<std::string> candidates;
  for (const Parameter& parameter : parameters) {
    const std::string& name = parameter.name();
    for (std::size_t dot = name.find('.'); dot != std::string::npos;
         dot = name.find('.', dot + 1)) {
      candidates.push_back(name.substr(0, dot));
    }
    candidates.push_back(name);
  }
  const auto nearest = nearest_name(prefix, candidates);
  if (!nearest) return fmt::format("names are like '{}'", parameters.back().name());
  const bool whole = std::any_of(parameters.begin(), parameters.end(),
                                 [&](const Parameter& p) { return p.name() == *nearest; });
  return fmt::format("did you mean '{}{}'?", *nearest, whole ? "" : ".");
}

}  // namespace

void freeze(const Module& module, std::string_view prefixes) {
  std::vector<Parameter> trained = parameters_of(module), frozen;
  const std::vector<Parameter> all = trained;
  for (const std::string_view prefix : split(prefixes, ',')) {
    const auto begins = [&](const Parameter& parameter) {
      return !prefix.empty() && parameter.name().starts_with(prefix);
    };
    if (std::none_of(all.begin(), all.end(), begins)) {
      fail("cannot freeze '{}': no parameter has a name with this prefix; {}", prefix,
           suggestion(prefix, all));
    }
    std::copy_if(all.begin(), all.end(), std::back_inserter(frozen), begins);
    std::erase_if(trained, begins);
  }
  check(!trained.empty() || frozen.empty(), "cannot freeze '{}': no parameter is left to train",
        prefixes);
  for (const Parameter& parameter : frozen) parameter.set_trainable(false);
}

}  // namespace tessera
