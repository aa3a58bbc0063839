// The program `tessera` within the test's process.
#pragma once

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tools/tessera/commands.h"

namespace tessera::test {

/// Catches the text that is written to a stream during the scope.
class Redirect {
 public:
  explicit Redirect(std::ostream& stream) : stream_(stream), old_(stream.rdbuf(text_.rdbuf())) {}
  ~Redirect() { stream_.rdbuf(old_); }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

  std::string text() const { return text_.str(); }

 private:
  std::ostream& stream_;
  std::ostringstream text_;
  std::streambuf* old_;
};

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

inline Outcome run(const std::vector<std::string>& arguments) {
  const Redirect out(std::cout);
  const Redirect err(std::cerr);
  const int status = run_program(arguments);
  return {status, out.text(), err.text()};
}

}  // namespace tessera::test
