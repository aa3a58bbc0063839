// Commands of bash, which finds the programs of this build.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "runtime/file.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace tessera::test {

struct ShellOutcome {
  int status;
  std::string out, err;
  std::string text() const { return out + err; }
};

/// Files of the folder take the command and its output.
inline ShellOutcome shell(const std::string& command, const TemporaryDirectory& folder) {
  const std::string script = folder / "command.sh", out = folder / "out.txt",
                    err = folder / "err.txt";
  write_file_atomically(script, "PATH=" TESSERA_BINARY_DIR "/bin:$PATH\n" + command + "\n");
  const int status = std::system(("bash " + script + " > " + out + " 2> " + err).c_str());
  return {WEXITSTATUS(status), read_text_file(out), read_text_file(err)};
}

}  // namespace tessera::test
