// The test runner: Catch2's own main, with --list-with-files, from which tests/support/discover.py makes
// CTest's list.
//
// Builds with the emulated GPU take four more options:
//   --thread-order  the order in which threads and blocks run
//   --architecture  the emulated GPU's compute capability
//   --arithmetic    exact, or with the errors of a GPU's approximate functions
//   --kernel-uses   print all launches at the end
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <iostream>

#if defined(TESSERA_EMULATED)
#include <cstdio>

#include "runtime/emulation/device/arithmetic.h"
#include "runtime/emulation/device/emulator.h"
#include "runtime/emulation/toolkit/emulated_device.h"

namespace {

void print_kernel_uses() {
  std::printf("launches threads  static dynamic  kernel\n");
  for (const auto& use : tessera::emulation::kernel_uses()) {
    std::printf("%8llu %7u %7zu %7zu  %s\n", static_cast<unsigned long long>(use.launches),
                use.threads, use.static_bytes, use.dynamic_bytes, use.kernel.c_str());
  }
}

}  // namespace
#endif

namespace {

// A line for each test case: its file, its tags and its name.
void list_tests() {
  for (const auto& test : Catch::getRegistryHub().getTestCaseRegistry().getAllTests()) {
    std::cout << test.lineInfo.file << '\t' << test.tagsAsString() << '\t' << test.name << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  Catch::Session session;
  bool lists_tests = false;
  session.cli(session.cli() |
              Catch::clara::Opt(lists_tests)["--list-with-files"]("list tests for CTest"));
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
  const auto set_architecture = [](int capability) {
    using Catch::clara::ParserResult;
    auto options = tessera::emulation::device_options();
    options.capability = capability;
    try {
      tessera::emulation::set_device_options(options);
    } catch (const std::exception& error) {
      return ParserResult::runtimeError(std::string("--architecture: ") + error.what());
    }
    return ParserResult::ok(Catch::clara::ParseResultType::Matched);
  };
  const auto set_arithmetic = [](const std::string& name) {
    using tessera::emulation::Arithmetic;
    if (name != "exact" && name != "approximate") {
      return Catch::clara::ParserResult::runtimeError("--arithmetic is exact or approximate");
    }
    tessera::emulation::set_arithmetic(name == "exact" ? Arithmetic::exact
                                                       : Arithmetic::approximate);
    return Catch::clara::ParserResult::ok(Catch::clara::ParseResultType::Matched);
  };
  bool lists_uses = false;
  session.cli(session.cli() |
              Catch::clara::Opt(set_order, "forward|reverse|shuffled")["--thread-order"](
                  "the order of a GPU's threads and blocks") |
              Catch::clara::Opt(set_architecture, "80|86|89|90")["--architecture"](
                  "the compute capability of the emulated GPU") |
              Catch::clara::Opt(set_arithmetic, "exact|approximate")["--arithmetic"](
                  "errors of a GPU's approximate functions, as large as its manual allows") |
              Catch::clara::Opt(lists_uses)["--kernel-uses"](
                  "print the launches of every kernel with its shared memory"));
#endif
  if (const int wrong = session.applyCommandLine(argc, argv)) return wrong;
  if (lists_tests) {
    list_tests();
    return 0;
  }
  const int status = session.run();
#if defined(TESSERA_EMULATED)
  if (lists_uses) print_kernel_uses();
#endif
  return status;
}
