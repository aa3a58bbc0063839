// The purpose of allocated memory. Every allocation is charged to exactly one category.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/enum_names.h"

namespace tessera {

enum class Category : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  communication,
  workspace,
  other,
};

template <>
inline constexpr EnumNames<Category> kEnumNames<Category> = {
    "memory category",
    {"parameters", "gradients", "optimizer", "activations", "communication", "workspace", "other"}};

inline constexpr int kCategories = static_cast<int>(enum_names<Category>().size());

constexpr std::string_view name_of(Category category) {
  return enum_name(category);
}

/// Charges this thread's allocations during the scope to `category`. Scopes nest; outside any scope
/// the category is `other`.
class CategoryScope {
 public:
  explicit CategoryScope(Category category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  Category previous_;
};

/// The category that an allocation on this thread is charged to now.
Category current_category();

}  // namespace tessera
