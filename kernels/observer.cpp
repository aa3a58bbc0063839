#include "kernels/observer.h"

#include <utility>

namespace tessera {
namespace {

thread_local OperationObserver* observer_ = nullptr;

}  // namespace

OperationObserver* operation_observer() {
  return observer_;
}

ObserverScope::ObserverScope(OperationObserver& observer)
    : previous_(std::exchange(observer_, &observer)) {}

ObserverScope::~ObserverScope() {
  observer_ = previous_;
}

}  // namespace tessera
