#pragma once
// JSON Schema validation (valijson).

#include "base/json.h"
#include "base/result.h"

namespace stitch {

// bad_input with the path of the first offending member and the rule it breaks.
Status validate_json(const Json& schema, const Json& value);

}  // namespace stitch
