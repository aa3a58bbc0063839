#include "runtime/category.h"

namespace tessera {
namespace {

thread_local Category current_category_ = Category::other;

}  // namespace

CategoryScope::CategoryScope(Category category) : previous_(current_category_) {
  current_category_ = category;
}

CategoryScope::~CategoryScope() {
  current_category_ = previous_;
}

Category current_category() {
  return current_category_;
}

}  // namespace tessera
