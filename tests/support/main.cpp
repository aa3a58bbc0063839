// The test runner: Catch2's own main. Builds with the emulated GPU also take
// --thread-order=forward|reverse|shuffled, in which the threads of blocks, and blocks, then run.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#if defined(TESSERA_EMULATED)
#include "runtime/emulation/device/emulator.h"
#endif

int main(int argc, char** argv) {
  Catch::Session session;
#if defined(TESSERA_EMULATED)
  const auto set_order = [](const std::string& name) {
    using Catch::clara::ParserResult;
    const auto order = tessera::emulation::parse_order(name);
    if (!order) {
      return ParserResult::runtimeError("--thread-order is forward, reverse or shuffled");
    }
    tessera::emulation::set_schedule({*order, *order, 1});
    return ParserResult::ok(Catch::clara::ParseResultType::Matched);
  };
  session.cli(session.cli() |
              Catch::clara::Opt(set_order, "forward|reverse|shuffled")["--thread-order"](
                  "the order of a GPU's threads and blocks"));
#endif
  return session.run(argc, argv);
}
