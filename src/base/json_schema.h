#pragma once
// JSON Schema validation (valijson).

#include "base/json.h"
#include "base/result.h"

namespace stitch {

// bad_input with the JSON pointer of an offending member ("/tasks/0/id") and the rule it breaks.
Status validate_json(const Json& schema, const Json& value);

}  // namespace stitch
