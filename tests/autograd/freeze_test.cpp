#include "autograd/freeze.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Catch::Contains;

struct Names final : Module {
  std::vector<Parameter> parameters;

  Names() {
    for (const char* name : {"model.wte.weight", "model.wpe.weight", "model.h.1.fc.weight",
                             "model.h.1.fc.bias", "model.h.10.fc.weight", "model.norm.weight"}) {
      parameters.emplace_back(name, Shape{1}, Initializer::zeros());
    }
  }
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
    for (const Parameter& parameter : parameters) visit(parameter);
    visit(parameters[0]);  // tied
  }
  /// One letter per parameter: t(rained) or f(rozen).
  std::string letters() const {
    std::string all;
    for (const Parameter& parameter : parameters) all += parameter.trainable() ? 't' : 'f';
    return all;
  }
};

std::string frozen_by(const std::string& prefixes) {
  const Names names;
  freeze(names, prefixes);
  return names.letters();
}

}  // namespace

TEST_CASE("parameters are frozen by the beginnings of their names") {
  CHECK(frozen_by("") == "tttttt");
  CHECK(frozen_by("model.wte") == "fttttt");
  CHECK(frozen_by("model.w") == "fftttt");
  CHECK(frozen_by("model.h.1.") == "ttfftt");
  CHECK(frozen_by("model.h.1") == "ttffft");
  CHECK(frozen_by("model.h.1.fc.weight") == "ttfttt");
  CHECK(frozen_by("model.wte,model.h.10.") == "ftttft");
  CHECK(frozen_by(" model.wte , model.norm.weight ") == "fttttf");
  CHECK(frozen_by("model.wte,model.w,") == "fftttt");
}

TEST_CASE("a beginning of no name is refused with the nearest, and nothing is frozen") {
  const Names names;
  const auto refuses = [&](const std::string& prefixes, const std::string& what) {
    CAPTURE(prefixes);
    CHECK_THROWS_WITH(freeze(names, prefixes), Contains(what));
    CHECK(names.letters() == "tttttt");
  };
  refuses("model.wte,model.h.2.", "cannot freeze 'model.h.2.'");
  refuses("model.h.2.", "did you mean 'model.h.1.'?");
  refuses("model.wqe", "did you mean 'model.wte.'?");
  refuses("model.wte.weight.", "did you mean 'model.wte.weight'?");
  refuses("h.10.", "did you mean 'model.h.10.'?");
  refuses("wte", "did you mean 'model.wte.'?");
  refuses("something.else.entirely", "names are like 'model.norm.weight'");
  refuses("odel.wte", "'odel.wte'");  // in the middle of a name
  refuses("model.wte,,model.wpe", "cannot freeze ''");
  refuses(",", "cannot freeze ''");
}

TEST_CASE("something must be left to train") {
  const Names names;
  REQUIRE_THROWS_WITH(freeze(names, "model.w,model.h.,model.norm"),
                      Contains("model.w,model.h.,model.norm") && Contains("left to train"));
  REQUIRE(names.letters() == "tttttt");
}

}  // namespace tessera
