// The subcommands of `tessera`, one file each. add_NAME declares the options and the function that
// runs. A command that fails raises Error.
#pragma once

#include <span>
#include <string>

#include "tools/program/options.h"

namespace tessera {

void add_prepare(Command& app);
void add_train(Command& app);
void add_reference(Command& app);
void add_launch(Command& app);
void add_selftest(Command& app);
void add_encode(Command& app);
void add_generate(Command& app);
void add_score(Command& app);
void add_serve(Command& app);
void add_eval(Command& app);
void add_export(Command& app);
void add_checkpoint(Command& app);
void add_plan(Command& app);
void add_report(Command& app);
void add_replay(Command& app);
void add_bisect(Command& app);
void add_config_reference(Command& app);
/// Comes last: its scripts know the commands that were added before.
void add_completion(Command& app);

/// Runs the program on its arguments (without the program's name) and returns its exit status; see
/// tools/program/command_line.h.
int run_program(std::span<const std::string> arguments);

}  // namespace tessera
