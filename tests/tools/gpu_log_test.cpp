// The clock and the power of a GPU during work, with a stand-in for nvidia-smi.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "runtime/file.h"
#include "tests/support/temporary_directory.h"
#include "tools/bench/gpu_log.h"
#include "tools/bench/sustained.h"
#include "tools/bench/sustained_report.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::TemporaryDirectory;

/// While it lives, nvidia-smi is this script of bash.
class StandIn {
 public:
  StandIn(const TemporaryDirectory& folder, const std::string& body) : path_(std::getenv("PATH")) {
    const std::filesystem::path program = folder / "nvidia-smi";
    write_file_atomically(program, "#!/bin/bash\n" + body + "\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    ::setenv("PATH", (std::string(folder / "") + ":" + path_).c_str(), 1);
  }
  ~StandIn() { ::setenv("PATH", path_.c_str(), 1); }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

 private:
  std::string path_;
};

/// The outcome of a log that ends once `file` exists.
GpuLog::Outcome log_until(const std::filesystem::path& file) {
  GpuLog log("3");
  while (!std::filesystem::exists(file)) std::this_thread::yield();
  return log.stop();
}

}  // namespace

TEST_CASE("samples are the complete lines of nvidia-smi with numbers") {
  const std::vector<GpuSample> samples = gpu_samples(
      "1980, 412.50, 0x0000000000000000\n"
      "1635, 698.32, 0x0000000000000004\n"
      "[N/A], 698.32, 0x0000000000000004\n"
      "1620, [Not Supported], 0x0000000000000004\n"
      "Field \"clocks_event_reasons.active\" is not a valid field to query.\n"
      "\n"
      "1605, 700.01, 0x0000000000000024\n"
      "1590, 70");
  REQUIRE(samples.size() == 3);
  CHECK(samples[1].sm_mhz == 1635.0);
  CHECK(samples[1].watts == 698.32);
  CHECK(samples[2].reasons == 0x24);
}

TEST_CASE("means are over the samples of a GPU at work, and each reason has its share of them") {
  const GpuMeans means = means_of(
      {{1980, 400, 0x0}, {1600, 700, 0x4}, {1500, 706, 0x24}, {345, 80, 0x1}, {1400, 694, 0x84}});
  CHECK(means.samples == 4);
  CHECK(means.sm_mhz == (1980 + 1600 + 1500 + 1400) / 4.0);
  CHECK(means.watts == (400 + 700 + 706 + 694) / 4.0);
  CHECK(means.reasons == std::map<std::string, double>{{"sw_power_cap", 0.75},
                                                       {"sw_thermal_slowdown", 0.25},
                                                       {"hw_power_brake_slowdown", 0.25}});
  CHECK(means_of({}).samples == 0);
}

TEST_CASE("a log asks nvidia-smi for one GPU ten times a second, and ends it") {
  const TemporaryDirectory folder;
  const std::filesystem::path ready = folder / "ready";
  const StandIn program(folder, "echo $$ \"$@\" > " + std::string(folder / "asked") +
                                    "\necho '1635, 698.32, 0x0000000000000004'\ntouch " +
                                    std::string(ready) + "\nexec sleep 600");
  const GpuLog::Outcome outcome = log_until(ready);
  REQUIRE(outcome.samples.size() == 1);
  CHECK(outcome.samples[0].watts == 698.32);
  CHECK(outcome.reason.empty());
  const std::string asked = read_text_file(folder / "asked");
  CHECK_THAT(asked, Contains("--id=3 ") && Contains("--loop-ms=100") &&
                        Contains("clocks.sm,power.draw,clocks_event_reasons.active"));
  CHECK_FALSE(std::filesystem::exists("/proc/" + asked.substr(0, asked.find(' '))));
}

TEST_CASE("nvidia-smi knows a GPU by its place in CUDA_VISIBLE_DEVICES, or by its number") {
  const Device second{DeviceType::cuda, 1};
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK(nvidia_smi_name(second) == "1");
  ::setenv("CUDA_VISIBLE_DEVICES", "6, GPU-8932f937", 1);
  CHECK(nvidia_smi_name(second) == "GPU-8932f937");
  CHECK(nvidia_smi_name({DeviceType::cuda, 0}) == "6");
  CHECK(nvidia_smi_name({DeviceType::cpu, 0}) == "");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE("without samples a log has the reason: nvidia-smi's, or that it is missing") {
  const TemporaryDirectory folder;
  {
    const StandIn program(folder,
                          "echo 'No devices were found'\ntouch " + std::string(folder / "ready"));
    CHECK(log_until(folder / "ready").reason == "No devices were found");
  }
  const StandIn none(folder, "");
  ::setenv("PATH", "/nonexistent", 1);
  GpuLog log("0");
  CHECK_THAT(log.stop().reason, Contains("stdbuf"));
}

TEST_CASE("sustained work settles for a second, and then counts its runs and their time") {
  double time = 100.0;
  int runs = 0, finished = 0;
  const auto run = [&] { time += 0.25, ++runs; };
  const auto finish = [&] { time += 0.125, ++finished; };
  const Sustained sustained =
      sustain(run, finish, /*seconds=*/2.0, /*gpu=*/"", [&] { return time; });
  CHECK(runs == 4 + 8);
  CHECK(finished == 2);
  CHECK(sustained.runs == 8);
  CHECK(sustained.seconds == 2.125);
  CHECK(sustained.reason == "no GPU");
  CHECK(sustain(run, finish, /*seconds=*/0.1, "", [&] { return time; }).runs == 1);
}

TEST_CASE("a sustained step has its MFU, and the energy of a token") {
  const Sustained sustained = {
      .runs = 20,
      .seconds = 4.0,
      .gpu = {.samples = 40, .sm_mhz = 1635, .watts = 700, .reasons = {{"sw_power_cap", 0.5}}}};
  const nlohmann::ordered_json entries =
      sustained_entries(sustained, {.flops = 4e13, .tokens = 1000, .peak = 1e15});
  CHECK(entries["step_ms"] == 200.0);
  CHECK(entries["tokens_per_second"] == 5000.0);
  CHECK(entries["mfu"].get<double>() == Approx(0.2));
  CHECK(entries["joules_per_token"].get<double>() == Approx(700 * 0.2 / 1000));
  CHECK(entries["clock_event_reasons"]["sw_power_cap"] == 0.5);
  Sustained unseen;
  unseen.runs = 1, unseen.seconds = 1.0, unseen.reason = "No devices were found";
  const nlohmann::ordered_json without = sustained_entries(unseen, {.flops = 1, .tokens = 1});
  CHECK(without["mfu"].is_null());
  CHECK(without["reason"] == "No devices were found");
}

}  // namespace tessera
