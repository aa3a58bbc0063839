// The lines of a grader, which tools/course.py reads: "pass TEST" and "fail TEST: feedback".
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

namespace tessera::course {

class Grader {
 public:
  void pass(std::string_view test) { line("pass", test, ""); }
  /// `feedback` names the idea, not the answer. Its first line is shown.
  void fail(std::string_view test, std::string_view feedback) {
    line("fail", test, ": " + std::string(feedback.substr(0, feedback.find('\n'))));
    failed_ = true;
  }
  /// `feedback` is empty if the test passes.
  void grade(std::string_view test, std::string_view feedback) {
    feedback.empty() ? pass(test) : fail(test, feedback);
  }
  /// The same of a function that returns the feedback or raises an exception.
  template <typename Test>
  void run(std::string_view test, Test body) {
    try {
      grade(test, body());
    } catch (const std::exception& error) {
      fail(test, error.what());
    }
  }
  int status() const { return failed_ ? 1 : 0; }

 private:
  static void line(std::string_view word, std::string_view test, std::string_view rest) {
    std::printf("%s %s%s\n", std::string(word).c_str(), std::string(test).c_str(),
                std::string(rest).c_str());
    std::fflush(stdout);  // a crash may follow
  }

  bool failed_ = false;
};

}  // namespace tessera::course
