// What a person may write behind a program's name: subcommands, options and arguments.
//
// CLI11 reads the command line. It takes long to compile, so options.cpp alone includes it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera {

/// An option "--name", or an argument without dashes. Its functions return it, for a chain of them.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  /// How --help names the value, in place of TEXT or INT.
  Option& type(const std::string& name);
  /// --help shows the value that the variable has now.
  Option& shows_default();
  Option& positive();
  Option& not_negative();
  /// T is int, std::int64_t or double.
  template <typename T>
  Option& range(T least, T most);
  Option& one_of(const std::vector<std::string>& values);
  /// `mistake` returns the mistake in a value, or an empty text.
  Option& check(const std::function<std::string(const std::string&)>& mistake);
  /// A vector takes "a,b" as two values.
  Option& separated_by_commas();
  /// A vector takes one argument, so that arguments without dashes may follow.
  Option& one_argument();
  Option& excludes(const Option& other);

 private:
  CLI::Option* option_;
};

/// The words that may follow a command, as --help lists them, for scripts that complete words.
struct CommandWords {
  struct Word {
    std::string text;
    std::string help;
    bool takes_value = false;
  };
  /// Its name behind the program's: "checkpoint list", or "" for the program.
  std::string path;
  std::vector<Word> subcommands;
  /// Those with dashes.
  std::vector<Word> options;
  /// It takes key=value.
  bool overrides = false;
};

/// A program, one of its subcommands, or a group of options. Copies stand for the same command.
class Command {
 public:
  /// A program.
  Command(const std::string& name, const std::string& description);

  /// A person must choose one of the subcommands.
  Command subcommand(const std::string& name, const std::string& description);
  /// Options of which exactly one must be given.
  Command one_of(const std::string& group);

  /// Declares an option that sets `variable`, which lives as long as the command. T is a string, a
  /// path, int, std::int64_t, std::uint64_t, double, or a vector.
  template <typename T>
  Option option(const std::string& name, T& variable, const std::string& help);
  /// An option that calls `set`.
  Option option_function(const std::string& name, std::function<void(const std::string&)> set,
                         const std::string& help);
  Option flag(const std::string& name, bool& variable, const std::string& help);
  /// --help shows the defaults of all options that are declared from now on.
  void shows_defaults();

  /// The subcommand's work, once every option has been read.
  void runs(std::function<void()> function);

  std::string name() const;
  /// The command's words, and then those of all commands below it.
  std::vector<CommandWords> words() const;
  /// Reads `arguments` (without the program's name) and runs the subcommand. Raises UsageError.
  void parse(std::span<const std::string> arguments);

 private:
  explicit Command(std::shared_ptr<CLI::App> app);

  std::shared_ptr<CLI::App> app_;
};

/// Arguments that the command does not take, or a request for help.
class UsageError : public Error {
 public:
  UsageError(const std::string& message, std::string text, bool help)
      : Error(message), text_(std::move(text)), help_(help) {}

  /// The program's output, with line breaks.
  const std::string& text() const { return text_; }
  bool asks_for_help() const { return help_; }

 private:
  std::string text_;
  bool help_;
};

/// The words of a command line, as a shell splits them at spaces outside of quotes.
std::vector<std::string> split_words(const std::string& text);

}  // namespace tessera
