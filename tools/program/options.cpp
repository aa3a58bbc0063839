#include "tools/program/options.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <utility>

namespace tessera {

namespace {

using Word = CommandWords::Word;

void add_words(const CLI::App& app, CommandWords& words) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_name(true) == "overrides") words.overrides = true;
    for (const std::string& name : option->get_lnames()) {
      words.options.push_back(
          {"--" + name, option->get_description(), option->get_items_expected_max() > 0});
    }
  }
}

void list_commands(const CLI::App& app, const std::string& path, std::vector<CommandWords>& all) {
  CommandWords words = {.path = path, .subcommands = {}, .options = {}};
  add_words(app, words);
  const auto children = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* child : children) {
    if (child->get_name().empty()) {
      add_words(*child, words);  // a group of options
    } else {
      words.subcommands.push_back({child->get_name(), child->get_description()});
    }
  }
  all.push_back(words);
  for (const CLI::App* child : children) {
    if (child->get_name().empty()) continue;
    list_commands(*child, path.empty() ? child->get_name() : path + ' ' + child->get_name(), all);
  }
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::type(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Option& Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

template <typename T>
Option& Option::range(T least, T most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
template Option& Option::range(int, int);
template Option& Option::range(std::int64_t, std::int64_t);
template Option& Option::range(double, double);

Option& Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::check(const std::function<std::string(const std::string&)>& mistake) {
  option_->check(mistake);
  return *this;
}

Option& Option::separated_by_commas() {
  option_->delimiter(',');
  return *this;
}

Option& Option::one_argument() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Command::Command(const std::string& name, const std::string& description)
    : app_(std::make_shared<CLI::App>(description, name)) {}

Command::Command(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}

Command Command::subcommand(const std::string& name, const std::string& description) {
  app_->require_subcommand(1);
  return Command({app_, app_->add_subcommand(name, description)});
}

Command Command::one_of(const std::string& group) {
  CLI::App* const options = app_->add_option_group(group);
  options->require_option(1);
  return Command({app_, options});
}

template <typename T>
Option Command::option(const std::string& name, T& variable, const std::string& help) {
  return Option(app_->add_option(name, variable, help));
}
using std::filesystem::path;
template Option Command::option(const std::string&, std::string&, const std::string&);
template Option Command::option(const std::string&, path&, const std::string&);
template Option Command::option(const std::string&, int&, const std::string&);
template Option Command::option(const std::string&, std::int64_t&, const std::string&);
template Option Command::option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::option(const std::string&, double&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::option(const std::string&, std::vector<path>&, const std::string&);
template Option Command::option(const std::string&, std::vector<int>&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::int64_t>&, const std::string&);

Option Command::option_function(const std::string& name,
                                std::function<void(const std::string&)> set,
                                const std::string& help) {
  return Option(app_->add_option_function<std::string>(name, std::move(set), help));
}

Option Command::flag(const std::string& name, bool& variable, const std::string& help) {
  return Option(app_->add_flag(name, variable, help));
}

void Command::shows_defaults() {
  app_->option_defaults()->always_capture_default();
}

void Command::runs(std::function<void()> function) {
  app_->callback(std::move(function));
}

std::string Command::name() const {
  return app_->get_name();
}

std::vector<CommandWords> Command::words() const {
  std::vector<CommandWords> all;
  list_commands(*app_, "", all);
  return all;
}

void Command::parse(std::span<const std::string> arguments) {
  try {
    // CLI11 takes the last argument first.
    app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    const bool help = app_->exit(error, text, text) == 0;
    throw UsageError(error.what(), text.str(), help);
  }
}

std::vector<std::string> split_words(const std::string& text) {
  return CLI::detail::split_up(text);
}

}  // namespace tessera
