#include "tools/program/completion.h"

#include <fmt/format.h>

#include "runtime/check.h"

namespace tessera {
namespace {

using Word = CommandWords::Word;

/// The words that may follow a command.
std::vector<Word> words_behind(const CommandWords& command, std::span<const std::string> keys) {
  std::vector<Word> words = command.subcommands;
  words.insert(words.end(), command.options.begin(), command.options.end());
  for (const std::string& key : keys) {
    if (command.overrides) words.push_back({key + "=", "configuration key", true});
  }
  return words;
}

/// In single quotes, for all three shells. Fish alone reads backslashes between them.
std::string in_quotes(std::string_view text) {
  std::string all = "'";
  for (const char c : text) {
    if (c == '\'') {
      all += "'\\''";
    } else {
      all += c;
    }
  }
  return all + "'";
}

/// The commands as patterns of a `case`. A longer path comes first: "checkpoint list", "checkpoint".
template <typename Line>
std::string cases(std::span<const CommandWords> commands, const Line& line) {
  std::string text;
  for (std::size_t i = commands.size(); i-- > 0;) {
    const std::string& path = commands[i].path;
    const std::string pattern = path.empty() ? "*" : fmt::format("'{} '*", path);
    text += fmt::format("    {})\n{}      ;;\n", pattern, line(commands[i]));
  }
  return text;
}

std::string bash_script(const std::string& program, std::span<const CommandWords> commands,
                        std::span<const std::string> keys) {
  const std::string choices = cases(commands, [&](const CommandWords& command) {
    std::string words;
    for (const Word& word : words_behind(command, keys)) words += word.text + ' ';
    return fmt::format("      words={}\n", in_quotes(words));
  });
  return fmt::format(R"(_{0}() {{
  local words
  case "${{COMP_WORDS[*]:1:COMP_CWORD-1}} " in
{1}  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  # A value follows the key without a space.
  if [[ ${{COMPREPLY[0]}} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}}
complete -o default -F _{0} {0}
)",
                     program, choices);
}

/// Texts of zsh's _describe: "word:help", with the word's own colons behind a backslash.
std::string zsh_script(const std::string& program, std::span<const CommandWords> commands,
                       std::span<const std::string> keys) {
  const std::string choices = cases(commands, [&](const CommandWords& command) {
    std::string words, values;
    for (const Word& word : words_behind(command, keys)) {
      if (word.text.back() == '=') {
        values += ' ' + in_quotes(word.text);
      } else {
        words += ' ' + in_quotes(word.text + ':' + word.help);
      }
    }
    return fmt::format("      words_here=({} )\n      keys_here=({} )\n", words, values);
  });
  return fmt::format(R"(#compdef {0}
local -a words_here keys_here
case "${{words[2,CURRENT-1]}} " in
{1}esac
_describe -o word words_here
compadd -S '' -- $keys_here
_files
)",
                     program, choices);
}

std::string fish_script(const std::string& program, std::span<const CommandWords> commands,
                        std::span<const std::string> keys) {
  std::string text;
  for (const CommandWords& command : commands) {
    const std::size_t space = command.path.rfind(' ');
    std::string condition = "__fish_use_subcommand";
    if (!command.path.empty()) {
      condition = "__fish_seen_subcommand_from " + command.path.substr(0, space);
      if (space != std::string::npos) {
        condition += "; and __fish_seen_subcommand_from " + command.path.substr(space + 1);
      }
    }
    for (const Word& word : words_behind(command, keys)) {
      const bool option = word.text.starts_with("--");
      text += fmt::format("complete -c {} -n {} {} {}{} -d {}\n", program, in_quotes(condition),
                          option ? "-l" : "-a", in_quotes(option ? word.text.substr(2) : word.text),
                          option && word.takes_value ? " -r" : "", in_quotes(word.help));
    }
  }
  return text;
}

}  // namespace

std::string completion_script(std::string_view shell, const std::string& program,
                              std::span<const CommandWords> commands,
                              std::span<const std::string> keys) {
  if (shell == "bash") return bash_script(program, commands, keys);
  if (shell == "zsh") return zsh_script(program, commands, keys);
  check(shell == "fish", "there is no completion for {}: choose bash, zsh or fish", shell);
  return fish_script(program, commands, keys);
}

}  // namespace tessera
