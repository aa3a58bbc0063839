#include "tools/plan/plan.h"

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "tools/config/find.h"
#include "tools/plan/advice.h"
#include "tools/plan/machine_file.h"
#include "tools/plan/predicted_trace.h"
#include "tools/plan/search.h"
#include "tools/tessera/commands.h"

namespace tessera {

void add_plan(Command& app) {
  struct Options {
    std::string config;
    std::vector<std::string> overrides;
    std::string ranks;
    PlanOptions plan;
    std::string machine;
    std::string memory;
    std::string trace;
    bool search = false;
    bool json = false;
  };
  constexpr int kMostRanks = 1 << 20;
  Command command =
      app.subcommand("plan", "Predict memory, traffic and time of any number of ranks.");
  const auto options = std::make_shared<Options>();
  command
      .option(
          "config", options->config,
          "A file of keys (docs/configuration.md), or a preset such as gpt2; its strategy is fsdp")
      .required()
      .type("CONFIG");
  command.option("overrides", options->overrides, "Keys to set after the file")
      .type("key.path=value");
  command
      .option("--ranks", options->ranks,
              "A number of ranks for a page; or several, such as 1,2,8-64 (8,16,32,64), for "
              "tables. runtime.ranks by default")
      .type("N,N-M,...");
  command.option("--nodes", options->plan.nodes, "Machines that the ranks are spread over")
      .range(1, kMostRanks);
  command.flag("--partition", options->plan.partition,
               "Also print the elements that each rank owns, on the page of one number of ranks");
  command
      .option("--machine", options->machine,
              "Also predict the time of a step: a machine file, or a100, h100, h200 as in their "
              "data sheets, or h200-sustained with the rate of products in steps")
      .type("FILE|NAME");
  command
      .option("--memory", options->memory,
              "On the page of one number of ranks: the largest micro-batch in so much memory "
              "per rank, and the cheapest change that fits")
      .type("80GiB");
  command
      .option("--trace", options->trace,
              "Also write the predicted step as a Chrome trace; with --machine")
      .type("FILE.json");
  command.flag(
      "--search", options->search,
      "Instead print strategies, meshes and cuts for one number of ranks, the fastest first; "
      "with --machine, and with --memory those that fit");
  command.flag("--json", options->json, "Print the figures as one line of JSON");
  command.runs([options] {
    // The page compares every strategy in any case, and `single` suits one rank only.
    const Config config =
        find_config(options->config, options->overrides, "sharding: {strategy: fsdp}");
    const std::vector<int> ranks =
        options->ranks.empty() ? std::vector{0} : parse_rank_counts(options->ranks);
    check(options->trace.empty() || ranks.size() == 1,
          "--trace draws the step of one number of ranks, and --ranks has {}", ranks.size());
    check(!options->search || ranks.size() == 1,
          "--search is for one number of ranks, and --ranks has {}", ranks.size());
    if (!options->machine.empty()) options->plan.machine = load_machine(options->machine);
    if (ranks.size() == 1) options->plan.ranks = ranks.front();
    std::optional<std::int64_t> bytes;  // for tensors
    std::int64_t nccl = 0;
    if (!options->memory.empty()) {
      const std::int64_t memory = parse_memory(options->memory);
      nccl = nccl_part_of(memory, config, options->plan);
      bytes = memory - nccl;
    }
    if (options->search) {
      const auto found = search_strategies(config, options->plan, bytes);
      std::cout << (options->json ? search_json(found) + "\n" : search_table(found)) << std::flush;
    } else if (options->json) {
      std::cout << plan_json(config, ranks, options->plan) << std::endl;
    } else if (ranks.size() > 1) {
      std::cout << plan_sweep(config, ranks, options->plan) << std::flush;
    } else {
      std::cout << plan(config, options->plan);
      if (bytes) {
        std::cout << advice_text(memory_advice(config, options->plan, *bytes), *bytes, nccl);
      }
      std::cout << std::flush;
    }
    if (!options->trace.empty()) write_predicted_trace(config, options->plan, options->trace);
  });
}

}  // namespace tessera
