// What a byte of memory is for. Every allocation is charged to exactly one category.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

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

inline constexpr int kCategories = 7;

inline constexpr std::array<std::string_view, kCategories> kCategoryNames = {
    "parameters", "gradients", "optimizer", "activations", "communication", "workspace", "other"};

inline std::string_view name_of(Category category) {
  return kCategoryNames[static_cast<int>(category)];
}

/// Charges what this thread allocates during the scope to `category`. Scopes nest; outside any
/// scope the category is `other`.
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
