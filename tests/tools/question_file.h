// Files of multiple-choice questions in llm.c's format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/eval/question.h"

namespace tessera::test {

/// As llm.c's dev/data/data_common.py, write_evalfile, lays it out.
inline std::string question_file(const std::vector<Question>& questions) {
  std::vector<std::int32_t> header(256);
  std::vector<std::uint16_t> numbers;
  header[0] = 20240522;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(questions.size());
  for (std::size_t i = 0; i < questions.size(); ++i) {
    std::vector<std::uint16_t> one = {65535, 0, static_cast<std::uint16_t>(i),
                                      static_cast<std::uint16_t>(questions[i].label),
                                      static_cast<std::uint16_t>(questions[i].endings.size())};
    const auto add = [&](const std::vector<std::int32_t>& tokens) {
      one.push_back(static_cast<std::uint16_t>(tokens.size()));
      one.insert(one.end(), tokens.begin(), tokens.end());
    };
    add(questions[i].context);
    for (const auto& ending : questions[i].endings) add(ending);
    one[1] = static_cast<std::uint16_t>(2 * one.size());
    numbers.insert(numbers.end(), one.begin(), one.end());
  }
  return std::string(reinterpret_cast<const char*>(header.data()), 1024) +
         std::string(reinterpret_cast<const char*>(numbers.data()), 2 * numbers.size());
}

}  // namespace tessera::test
