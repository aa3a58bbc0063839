#include "sharding/strategy/parameter_store.h"

#include "sharding/strategy/gathered_parameters.h"
#include "sharding/strategy/resident_parameters.h"

namespace tessera {

std::unique_ptr<ParameterStore> make_parameter_store(const GroupResources& resources,
                                                     OwnValues& own_values) {
  if (resources.group.placement.parameters == Held::whole) {
    return std::make_unique<ResidentParameters>(resources, own_values);
  }
  return std::make_unique<GatheredParameters>(resources, own_values);
}

}  // namespace tessera
