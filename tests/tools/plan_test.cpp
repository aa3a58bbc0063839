// `tessera plan`: the page, and the traffic that leaves a node.
#include "tools/plan/plan.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sharding/plan/crossing.h"
#include "sharding/plan/footprint.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/train/resolve.h"

namespace tessera {

using Catch::Contains;

namespace {

Config fsdp(const std::string& preset, std::int64_t batch = 8) {
  Config config;
  config.model.preset = preset;
  config.sharding.strategy = StrategyKind::fsdp;
  config.data.batch_size = batch;
  return config;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// The words of a row: of a page's indented lines the first that begins with `first`.
std::vector<std::string> row_of(const std::string& page, const std::string& first) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(line);
    if (line.starts_with("  ") && !words.empty() && words.front() == first) return words;
  }
  FAIL(page << "no row begins with " << first);
  return {};
}

std::string line_of(const std::string& page, const std::string& first) {
  return fmt::format("{}", fmt::join(row_of(page, first), " "));
}

/// The numbers of a strategy's row: parameters, gradients, optimizer, slots, total, at the peak, sent
/// per step.
std::vector<double> numbers_of(const std::string& page, const std::string& strategy) {
  std::vector<double> numbers;
  for (const std::string& word : row_of(page, strategy)) {
    if (word.find('.') != word.npos) numbers.push_back(std::stod(word));
  }
  return numbers;
}

/// Mean bytes per rank that leave a node of `ranks_per_node`.
Crossing crossing(const ShardingOptions& options, int ranks, int ranks_per_node) {
  const auto model = make_model(resolve(workload("tiny", {})));
  const Plan plan =
      make_plan(model->units(), options, {.ranks = ranks, .ranks_per_node = ranks_per_node});
  Crossing mean;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto one = bytes_across_nodes(traffic_of(plan, rank), ranks_per_node);
    REQUIRE(one.has_value());
    mean.direct += one->direct / ranks;
    mean.rings += one->rings / ranks;
  }
  return mean;
}

}  // namespace

TEST_CASE("plan: GPT-2 on one rank takes 4 + 4 + 8 bytes for each of its 124439808 parameters") {
  Config config = fsdp("gpt2");
  config.sharding.strategy = StrategyKind::single;
  const std::string page = plan(config, {});
  CHECK_THAT(page, Contains("single on 1 rank\n") && Contains("124.44M parameters") &&
                       Contains("in 13 units"));
  CHECK(row_of(page, "optimizer").back() == "995518464");  // 8 * 124439808
  CHECK_THAT(page, Contains("Not included:") && Contains("At the peak of a step, "));
}

TEST_CASE("plan: every preset, on an odd number of ranks") {
  for (const std::string_view preset : model_presets()) {
    CAPTURE(preset);
    Config config = fsdp(std::string(preset), 6);
    config.data.sequence_length = 16;
    CHECK_THAT(plan(config, {.ranks = 3}), Contains("fsdp on 3 ranks"));
  }
  Config beyond_the_window = fsdp("mistral-7b", 6);
  beyond_the_window.data.sequence_length = 8192;
  CHECK_THAT(plan(beyond_the_window, {.ranks = 3}), Contains("7241.73M parameters"));
  // Llama 3 8B is not tied: the embedding, 32 blocks and the head.
  CHECK_THAT(plan(fsdp("llama3-8b", 1024), {.ranks = 1024}),
             Contains("8030.26M parameters") && Contains("in 34 units"));
}

TEST_CASE("plan: 1024 ranks, every strategy in one table of one unit") {
  const std::string page = plan(fsdp("gpt2", 1024), {.ranks = 1024, .nodes = 128});
  CHECK_THAT(page, Contains("fsdp on 1024 ranks, 8 per node") && Contains("in MiB:"));
  for (const std::string& name : strategy_variants()) CHECK(numbers_of(page, name).size() == 7);
  // ddp keeps 16 bytes per parameter, padding aside, on any number of ranks.
  CHECK_THAT(line_of(page, "ddp"), Contains("474.70 474.70 949.40 0.00 1898.80"));
  // The mean over all ranks of the parameters that they own is 4 bytes per parameter over 1024.
  CHECK(row_of(page, "parameters")[2] == "0.46");
  CHECK_THAT(line_of(page, "hsdp"), Contains("128 x 8"));
  CHECK_THAT(page, Contains("Bytes that a rank sends to another node") && Contains("in rings"));
}

TEST_CASE("plan: the table shows the rank with the most, and totals with the slots") {
  const std::string page = plan(fsdp("gpt2"), {.ranks = 8});
  // zero3 owns whole tensors: the rank with the most has more than an eighth, the others less.
  CHECK(8 * numbers_of(page, "zero3")[0] > 1.5 * 474.70);
  for (const char* name : {"ddp", "zero1", "zero2", "fsdp", "hsdp"}) {  // ranks are alike
    CAPTURE(name);
    const std::vector<double> row = numbers_of(page, name);
    CHECK(row[4] == Approx(row[0] + row[1] + row[2] + row[3]).margin(0.03));
    CHECK(row[5] > row[4]);
  }
  CHECK(numbers_of(page, "fsdp")[3] > 100.0);
}

TEST_CASE("plan: the peak is that of the rank with the most") {
  Config config = fsdp("gpt2", 3);
  config.data.sequence_length = 32;
  config.sharding.strategy = StrategyKind::zero3;  // ranks own whole tensors
  const std::string page = plan(config, {.ranks = 3});
  CHECK_THAT(page, Contains("\nrank 1 on cpu, "));
  const std::size_t peak = page.find("At the peak of a step, ");
  REQUIRE(peak != page.npos);
  CHECK(row_of(page.substr(peak), "parameters")[2] == row_of(page, "parameters").back());
  CHECK(std::stod(row_of(page.substr(peak), "total")[1]) ==
        Approx(numbers_of(page, "zero3")[5]).margin(0.02));
}

TEST_CASE("plan: with offloading the peak has the bytes that stay on the device") {
  for (const char* strategy : {"ddp", "zero2", "fsdp"}) {
    Config config = variant_of(fsdp("gpt2-mini"), strategy);
    config.data.accumulation_steps = 2;
    std::int64_t before = 0;
    for (const Offload offload : {Offload::all, Offload::optimizer, Offload::none}) {
      CAPTURE(strategy, name_of(offload));
      config.sharding.offload = offload;
      const Config one =
          variant_of(config, strategy);  // all is optimizer where nothing is gathered
      const std::string page = plan(one, {.ranks = 2});
      const std::string peak = page.substr(page.find("At the peak of a step, "));
      for (const char* category : {"parameters", "gradients", "optimizer"}) {
        CAPTURE(category);
        CHECK(row_of(peak, category)[2] == row_of(page, category).back());
      }
      CHECK(row_of(peak, "communication").back() == row_of(page, "slots").back());
      const std::int64_t total = std::stoll(row_of(peak, "total")[2]);
      CHECK(total >= before);
      before = total;
    }
  }
}

TEST_CASE("plan: with experts shared out, the peak is that of equal counts, with a bound for all") {
  Config config = fsdp("qwen3-moe-mini");
  CHECK_THAT(plan(config, {.ranks = 4}), !Contains("the peak is at most"));
  config.sharding.expert_parallel = 4;
  const std::string page = plan(config, {.ranks = 4});
  const std::size_t bound = page.find("the peak is at most\n");
  REQUIRE(bound != page.npos);
  const std::size_t peak = page.find("At the peak of a step, ");
  REQUIRE(peak != page.npos);
  CHECK(std::stod(page.substr(page.find_first_of("0123456789", bound))) >
        std::stod(row_of(page.substr(peak), "total")[1]));
}

TEST_CASE("plan: the plan is printed, with its mesh") {
  CHECK_THAT(plan(fsdp("gpt2-mini"), {.ranks = 4}), Contains("replica 1 x shard 4"));
  Config mixed = fsdp("gpt2-mini");
  mixed.sharding.rules = parse_placement_rules("*.mlp.* -> hsdp, *.ln_* -> ddp");
  mixed.sharding.sum_replicas_once = true;
  mixed.data.accumulation_steps = 2;
  CHECK_THAT(plan(mixed, {.ranks = 4}), Contains("replica 2 x shard 2") && Contains("\nfsdp: ") &&
                                            Contains("\nhsdp: ") && Contains("\nddp: ") &&
                                            Contains("summed after the last micro-batch"));
  mixed.sharding.rules = parse_placement_rules("*.moe.* -> ddp");
  CHECK_THROWS_WITH(plan(mixed, {.ranks = 4}), Contains("'*.moe.*' matches no parameter"));
}

TEST_CASE("plan: a batch need not divide among the ranks, but the page says so") {
  const std::string problem = "tessera train would refuse it: data.batch_size 8 is not a multiple";
  CHECK_THAT(plan(fsdp("gpt2-mini", 8), {.ranks = 16}),
             Contains(problem) && Contains("fsdp on 16 ranks"));
  CHECK_THAT(plan(fsdp("gpt2-mini", 16), {.ranks = 16}), !Contains("would refuse"));
}

TEST_CASE("plan: experts cut by rows are uneven on more ranks than experts, flat ones are not") {
  Config config = fsdp("qwen3-30b-a3b");
  const auto most = [&] {
    return std::stod(row_of(plan(config, {.ranks = 1024}), "parameters").back());
  };
  const double by_rows = most();
  config.sharding.rules = parse_placement_rules("*.mlp.experts.* -> fsdp_flat");
  CHECK(by_rows > 7.0 * most());
}

TEST_CASE("plan: several ranks of a configuration for one are planned with fsdp, and told so") {
  Config config = fsdp("gpt2-mini", 8);
  config.data.sequence_length = 16;
  config.runtime.threads = 1;
  Config single = config;
  single.sharding.strategy = StrategyKind::single;
  const std::string line = "The configured strategy single suits one rank: ";
  const std::string page = plan(single, {.ranks = 4});
  CHECK_THAT(page, Contains("fsdp on 4 ranks") && Contains(line + "this page is of fsdp.\n"));
  CHECK(numbers_of(page, "total") == numbers_of(plan(config, {.ranks = 4}), "total"));
  CHECK_THAT(plan(single, {.ranks = 1}), Contains("single on 1 rank") && !Contains(line));

  const std::string sweep = plan_sweep(single, {1, 2, 4}, {});
  CHECK_THAT(sweep, Contains(line + "the rows of more are of fsdp.\n"));
  CHECK(numbers_of(sweep, "4") == numbers_of(plan_sweep(config, {2, 4}, {}), "4"));
  CHECK_THAT(plan_sweep(single, {1}, {}), !Contains(line));
  CHECK_THAT(plan_sweep(config, {1, 2}, {}), !Contains(line));
  const auto plans = nlohmann::json::parse(plan_json(single, {1, 4}, {}))["plans"];
  CHECK(plans[0]["strategy"] == "single");
  CHECK(plans[1]["strategy"] == "fsdp");
}

TEST_CASE("plan: the row of a strategy that does not suit the ranks has the reason") {
  Config groups_of_five = fsdp("gpt2-mini", 5);
  groups_of_five.sharding.reshard_group = 5;
  const std::string page = plan(groups_of_five, {.ranks = 5});
  CHECK_THAT(line_of(page, "hsdp"), Contains("5 does not divide"));
  CHECK(numbers_of(page, "zero3").size() == 7);
}

TEST_CASE("plan: the partition is printed on request, and the optimizer's state counts") {
  Config config = fsdp("gpt2-mini");
  CHECK_THAT(plan(config, {.ranks = 2}), !Contains("elements owned by rank"));
  CHECK_THAT(plan(config, {.ranks = 2, .partition = true}),
             Contains("rows over 2 ranks: elements owned by rank") &&
                 Contains("transformer.h.3.mlp.c_proj.weight"));
  config.optimizer.name = OptimizerKind::sgd;
  CHECK(row_of(plan(config, {.ranks = 2}), "optimizer").back() == "0");
  config.optimizer.momentum = 0.9;
  const std::string page = plan(config, {.ranks = 2});
  CHECK(line_of(page, "optimizer").substr(10) == line_of(page, "gradients").substr(10));
}

TEST_CASE("plan: a list of ranks has numbers and ranges that double") {
  using Counts = std::vector<int>;
  CHECK(parse_rank_counts("3") == Counts{3});
  CHECK(parse_rank_counts("1,2,8-64,100") == Counts{1, 2, 8, 16, 32, 64, 100});
  CHECK(parse_rank_counts("3-20") == Counts{3, 6, 12});
  CHECK(parse_rank_counts("1048576-1048576") == Counts{1 << 20});
  for (const char* bad :
       {"", ",", "2,", "0", "-4", "4-", "x", "2 ", "1.5", "1048577", "99999999999"}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH(parse_rank_counts(bad), Contains("8-64, which is 8,16,32,64"));
  }
  CHECK_THROWS_WITH(parse_rank_counts("8-2"), Contains("begins with its smaller number"));
}

TEST_CASE("plan: a sweep has the numbers of the pages, and reasons where there are none") {
  Config config = fsdp("gpt2-mini", 16);
  config.data.sequence_length = 16;
  config.runtime.threads = 1;
  const std::string sweep = plan_sweep(config, {2, 3, 8}, {.nodes = 2});
  const std::size_t peaks = sweep.find("At the peak of a step, by strategy, in MiB:");
  REQUIRE(peaks != sweep.npos);
  for (const int ranks : {2, 8}) {
    CAPTURE(ranks);
    const std::string page = plan(config, {.ranks = ranks, .nodes = 2});
    const std::vector<double> own = numbers_of(page, "fsdp");
    const std::vector<double> row = numbers_of(sweep, std::to_string(ranks));
    REQUIRE(row.size() == own.size() + 2);
    CHECK(std::vector(row.begin(), row.end() - 2) == own);
    const std::size_t crossings = page.find("Bytes that a rank sends to another node");
    CHECK(std::vector(row.end() - 2, row.end()) == numbers_of(page.substr(crossings), "fsdp"));
    std::vector<double> of_strategies;
    for (const std::string& name : strategy_variants()) {
      of_strategies.push_back(numbers_of(page, name)[5]);
    }
    CHECK(numbers_of(sweep.substr(peaks), std::to_string(ranks)) == of_strategies);
  }
  CHECK_THAT(line_of(sweep, "3"), Contains("3 ranks cannot be spread evenly over 2 nodes"));
  CHECK_THAT(plan_sweep(config, {8, 32}, {}),
             Contains("would refuse it: data.batch_size 16") && Contains("number of ranks, 32"));
  CHECK_THROWS_WITH(plan_sweep(config, {3, 5}, {.nodes = 2}), Contains("3 ranks cannot be"));
  CHECK_THROWS_WITH(plan(config, {.ranks = 3, .nodes = 2}), Contains("3 ranks cannot be"));
}

TEST_CASE("plan: JSON has the page's bytes, and every strategy or its problem") {
  Config config = fsdp("gpt2-mini", 12);
  config.sharding.reshard_group = 2;
  const auto json = nlohmann::json::parse(plan_json(config, {4, 3, 5}, {.nodes = 1}));
  CHECK(json["program"] == "plan");
  CHECK(json["nodes"] == 1);
  CHECK(json["config"]["sharding.strategy"] == "fsdp");
  CHECK_THAT(json["model"].get<std::string>(), Contains("16.09M parameters"));
  REQUIRE(json["plans"].size() == 3);
  const auto& four = json["plans"][0];
  const std::string page = plan(config, {.ranks = 4});
  CHECK(four["ranks"] == 4);
  CHECK(four["refused"].is_null());
  for (const char* name : {"parameters", "gradients", "optimizer", "slots", "total"}) {
    CAPTURE(name);
    const auto& spread = four["memory"][name];
    CHECK(std::to_string(spread["most"].get<std::int64_t>()) == row_of(page, name).back());
    CHECK(spread["least"] <= spread["mean"]);
  }
  std::int64_t at_peak = 0;
  for (const auto& bytes : four["peak"]["categories"]) at_peak += bytes.get<std::int64_t>();
  CHECK(four["peak"]["total"] == at_peak);
  CHECK_THAT(page, Contains(std::to_string(at_peak)) &&
                       Contains(four["peak"]["moment"].get<std::string>()));
  CHECK(four["bytes_leaving_node"].is_null());
  REQUIRE(four["strategies"].size() == strategy_variants().size());
  for (const auto& row : four["strategies"]) {
    CAPTURE(row.dump());
    const auto name = row["strategy"].get<std::string>();
    CHECK(row["peak"]["total"].get<double>() / 0x1p20 ==
          Approx(numbers_of(page, name)[5]).margin(0.006));
    if (name == "fsdp") CHECK(row["memory"] == four["memory"]);
    CHECK(row["mesh"] == (name == "hsdp" ? nlohmann::json("2 x 2") : nlohmann::json()));
  }
  std::int64_t elements = 0;
  for (const auto& group : json["optimizer_groups"]) {
    const std::string line = line_of(page, group["group"]);
    elements += group["elements"].get<std::int64_t>();
    for (const char* number : {"tensors", "elements", "state_bytes"}) {
      CHECK_THAT(line, Contains(" " + group[number].dump() + " "));
    }
    CHECK(group["rules"] == nlohmann::json{"adamw"});
    CHECK(group["state_bytes"] == 8 * group["elements"].get<std::int64_t>());
  }
  CHECK(four["memory"]["parameters"]["mean"] == static_cast<double>(elements));
  // Groups of 2 do not divide 3 ranks, and a batch of 12 does not divide among 5.
  CHECK_THAT(json["plans"][1]["problem"].get<std::string>(), Contains("2 does not divide"));
  CHECK(json["plans"][2].contains("problem"));
  config.sharding.reshard_group = 0;
  const auto others = nlohmann::json::parse(plan_json(config, {5, 6}, {.nodes = 1}));
  CHECK_THAT(others["plans"][0]["refused"].get<std::string>(), Contains("not a multiple"));
  CHECK(nlohmann::json::parse(plan_json(
            config, {6}, {.nodes = 2}))["plans"][0]["bytes_leaving_node"]["directly"] > 0.0);
  config.sharding.offload = Offload::all;
  const auto offloaded = nlohmann::json::parse(plan_json(config, {2}, {}))["plans"][0];
  CHECK(offloaded["peak"]["categories"]["optimizer"] == 0);
  CHECK(offloaded["on_host"]["most"] > 0);
}

TEST_CASE("traffic: the flows of every strategy add up to the bytes sent") {
  const auto model = make_model(resolve(workload("tiny", {})));
  for (const std::string& name : strategy_variants()) {
    for (const int micro_batches : {1, 3}) {
      CAPTURE(name, micro_batches);
      Config config = variant_of(fsdp("gpt2-mini"), name);
      config.data.accumulation_steps = micro_batches;
      const Plan plan = make_plan(model->units(), sharding_options(config), {.ranks = 8});
      for (int rank = 0; rank < 8; ++rank) {
        double sum = 0.0;
        for (const Flow& flow : traffic_of(plan, rank)) sum += flow.bytes;
        CHECK(sum == static_cast<double>(footprint_of(plan, rank).bytes_sent));
      }
    }
  }
}

TEST_CASE("crossing: direct sends cross as often as pairs of ranks lie on two nodes") {
  for (const int group : {2, 4, 8, 16}) {
    for (const int stride : {1, 2, 8}) {
      for (const int node : {1, 2, 4, 8, 16}) {
        CAPTURE(group, stride, node);
        int pairs = 0, crossing = 0;
        for (int a = 0; a < group; ++a) {
          for (int b = 0; b < group; ++b) {
            if (a == b) continue;
            ++pairs;
            crossing += a * stride / node != b * stride / node;
          }
        }
        const Flow flow{.ranks = group, .stride = stride, .bytes = 1e6};
        const auto found = bytes_across_nodes({flow}, node);
        REQUIRE(found.has_value());
        CHECK(found->direct == Approx(1e6 * crossing / pairs));
      }
    }
  }
}

TEST_CASE("crossing: reductions add inside a node first, and rings cross once per node") {
  // 16 ranks on 2 nodes send 15/16 of 16 MB each. Sums of 2 MB per rank cross to the other node: of
  // every 16th of the sum one message, 1 MB, and in a ring one rank of 8 sends all it has across.
  const Flow sum{.ranks = 16, .adds = true, .bytes = 15e6};
  CHECK(bytes_across_nodes({sum}, 8)->direct == Approx(1e6));
  CHECK(bytes_across_nodes({sum}, 8)->rings == Approx(15e6 / 8));
  // Nodes of 6 have no tree of their own: the sums are direct, (12 - 6) / 11.
  const Flow six{.ranks = 12, .adds = true, .bytes = 11e6};
  CHECK(bytes_across_nodes({six}, 6)->direct == Approx(6e6));
  CHECK(bytes_across_nodes({sum}, 16)->direct == 0.0);
  CHECK(bytes_across_nodes({sum}, 16)->rings == 0.0);
  // Nodes of 6 cut groups of 4 unevenly.
  CHECK_FALSE(bytes_across_nodes({{.ranks = 4, .stride = 1, .bytes = 1.0}}, 6).has_value());
}

TEST_CASE("crossing: gathers in groups of a node's ranks stay on the node") {
  const auto leaves = [](int reshard_group) {
    return crossing({.strategy = StrategyKind::fsdp, .reshard_group = reshard_group}, 16, 4);
  };
  // With `never`, forward gathers and reductions are all there is. Groups of a node add gathers for
  // backward, none of which leaves it; groups of two nodes add some; all 16 ranks the most.
  const Crossing never = leaves(1);
  CHECK(leaves(4).direct == Approx(never.direct));
  CHECK(leaves(4).rings == Approx(never.rings));
  CHECK(leaves(8).direct > 1.05 * never.direct);
  CHECK(leaves(0).direct > leaves(8).direct);
}

TEST_CASE("crossing: hsdp with a replica per node sends only sums of shards across") {
  const ShardingOptions hsdp{.strategy = StrategyKind::hsdp, .shard_size = 4};
  const auto model = make_model(resolve(workload("tiny", {})));
  const Plan plan = make_plan(model->units(), hsdp, {.ranks = 8, .ranks_per_node = 4});
  // By hand: 2 replicas; an all_reduce of every fourth of the gradients sends a half, and a half of
  // the sums: one fourth of all bytes, padding included. The norm's 4 + 16 and the loss's 4 bytes go
  // between all ranks or the shards of a replica.
  double elements = 0.0;
  for (const BucketLayout& bucket : plan.groups.front().buckets()) {
    for (int i = 0; i < bucket.trainable_segments; ++i) {
      elements += static_cast<double>(bucket.segments[static_cast<std::size_t>(i)].range.count);
    }
  }
  CHECK(crossing(hsdp, 8, 4).direct == Approx(4.0 * elements / 4).margin(24.0));
}

}  // namespace tessera
