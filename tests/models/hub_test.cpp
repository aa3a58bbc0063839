// Models by their names on the hub, found in a cache made here.
#include "models/hub.h"

#include <catch2/catch.hpp>
#include <string>

#include "models/hugging_face.h"
#include "runtime/file.h"
#include "tests/models/whole_model.h"
#include "tests/support/environment.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr const char* kHash = "0e9e39f249a16976918f6564b8830bc894c89659";

/// A cache with the model tiny-org/gpt2.plain, a golden model. As the hub's tools do it, the
/// snapshot has links to files that are named by their contents.
fs::path make_cache(const test::TemporaryDirectory& home) {
  const fs::path repository = home.path() / "hub/models--tiny-org--gpt2.plain";
  fs::create_directories(repository / "snapshots" / kHash);
  fs::create_directories(repository / "refs");
  write_file_atomically(repository / "refs/main", std::string(kHash));
  for (const char* const name : {"config.json", "model.safetensors"}) {
    fs::create_symlink(test::golden_folder("gpt2/plain") / name,
                       repository / "snapshots" / kHash / name);
  }
  return repository;
}

}  // namespace

TEST_CASE("a name on the hub is two words with a slash between them") {
  for (const char* const name : {"gpt2/plain", "Qwen/Qwen3-0.6B", "meta-llama/Llama_2"}) {
    CHECK(is_hub_name(name));
  }
  for (const char* const name :
       {"", "gpt2", "/gpt2", "gpt2/", "a/b/c", "../gpt2", "a/..", "./a", "a/b c", "a/-b", "a//b"}) {
    CAPTURE(name);
    CHECK_FALSE(is_hub_name(name));
  }
}

TEST_CASE("a model of the hub is read from the snapshot that refs/main names") {
  const test::TemporaryDirectory home;
  const fs::path repository = make_cache(home);
  const test::EnvironmentGuard variable({{"HF_HOME", home.path().string()}});
  CHECK(model_folder("tiny-org/gpt2.plain") == repository / "snapshots" / kHash);
  const test::Rank rank;
  const test::WholeModel cached("tiny-org/gpt2.plain");
  const test::WholeModel direct(test::golden_folder("gpt2/plain"));
  REQUIRE(cached.shards().size() == direct.shards().size());
  for (std::size_t i = 0; i < direct.shards().size(); ++i) {
    CHECK(cached.shards()[i].data.to_vector<float>() == direct.shards()[i].data.to_vector<float>());
  }
}

TEST_CASE("without HF_HOME the hub's cache lies in the home directory") {
  const test::TemporaryDirectory home;
  fs::create_directories(home.path() / ".cache");
  fs::create_directory_symlink(home.path(), home.path() / ".cache/huggingface");
  make_cache(home);
  const test::EnvironmentGuard variables({{"HF_HOME", ""}, {"HOME", home.path().string()}});
  CHECK(fs::exists(model_folder("tiny-org/gpt2.plain") / "config.json"));
}

TEST_CASE("a folder goes before a model of the hub") {
  const test::TemporaryDirectory home;
  make_cache(home);
  const test::EnvironmentGuard variable({{"HF_HOME", home.path().string()}});
  const fs::path here = fs::current_path();
  fs::current_path(home.path());
  fs::create_directories("tiny-org/gpt2.plain");
  write_file_atomically("tiny-org/gpt2.plain/config.json", "{}");
  CHECK(model_folder("tiny-org/gpt2.plain") == "tiny-org/gpt2.plain");
  fs::current_path(here);
}

TEST_CASE("a model that the hub's cache lacks is one line with the folder and the command") {
  const test::TemporaryDirectory home;
  const test::EnvironmentGuard variable({{"HF_HOME", home.path().string()}});
  CHECK_THROWS_WITH(model_folder("some-org/some-model"),
                    Contains("some-org/some-model: no such folder, and the hub's cache has no " +
                             (home.path() / "hub/models--some-org--some-model").string()) &&
                        Contains("'hf download some-org/some-model'"));
  const fs::path repository = make_cache(home);
  // A hash is a name: a damaged file must not lead out of the cache.
  for (const std::string hash : {"", "missing", "../../..", "/"}) {
    CAPTURE(hash);
    write_file_atomically(repository / "refs/main", hash);
    CHECK_THROWS_WITH(model_folder("tiny-org/gpt2.plain"),
                      Contains("refs/main does not name a folder of snapshots") &&
                          Contains("hf download tiny-org/gpt2.plain"));
  }
  fs::remove(repository / "refs/main");
  CHECK_THROWS_WITH(model_folder("tiny-org/gpt2.plain"), Contains("is incomplete"));
}

}  // namespace tessera
