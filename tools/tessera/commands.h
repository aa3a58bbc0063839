// The subcommands of `tessera`, one file each. add_NAME declares the options and the function that
// runs. A command that fails raises Error.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace tessera {

void add_prepare(CLI::App& app);
void add_train(CLI::App& app);
void add_launch(CLI::App& app);
void add_selftest(CLI::App& app);
void add_encode(CLI::App& app);
void add_generate(CLI::App& app);
void add_score(CLI::App& app);
void add_eval(CLI::App& app);
void add_export(CLI::App& app);
void add_checkpoint(CLI::App& app);
void add_plan(CLI::App& app);
void add_report(CLI::App& app);
void add_config_reference(CLI::App& app);

/// Runs the program on its arguments (without the program's name) and returns its exit status; see
/// tools/program/command_line.h.
int run_program(std::span<const std::string> arguments);

}  // namespace tessera
