// Environment variables during a scope.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace tessera::test {

class EnvironmentGuard {
 public:
  explicit EnvironmentGuard(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) {
      const char* const old = std::getenv(name.c_str());
      old_[name] = old != nullptr ? std::optional<std::string>(old) : std::nullopt;
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~EnvironmentGuard() {
    for (const auto& [name, value] : old_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  EnvironmentGuard(const EnvironmentGuard&) = delete;
  EnvironmentGuard& operator=(const EnvironmentGuard&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> old_;
};

}  // namespace tessera::test
